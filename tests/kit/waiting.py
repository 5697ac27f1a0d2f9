"""Waiting for a condition that nobody announces."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
_POLL_S = 0.005


@overload
async def until(predicate: Callable[[], Awaitable[T]], *, timeout: float = ..., what: str | None = ...) -> T: ...
@overload
async def until(predicate: Callable[[], T], *, timeout: float = ..., what: str | None = ...) -> T: ...
async def until(predicate: Callable[[], object], *, timeout: float = 10, what: str | None = None) -> object:
    """The first true answer of `predicate`, which is asked again and again; an error it raises goes through.

    After `timeout` seconds an AssertionError says what was waited for: `what`, or else the predicate's own source.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + timeout
    while True:
        answer = predicate()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if loop.time() > give_up:
            raise AssertionError(f"waited {timeout:g} s for: {what or _source(predicate)}; the last answer: {answer!r}")
        await asyncio.sleep(_POLL_S)


def _source(predicate: Callable[[], object]) -> str:
    if getattr(predicate, "__name__", "<lambda>") != "<lambda>":
        return predicate.__qualname__
    try:
        return " ".join(inspect.getsource(predicate).split())
    except (OSError, TypeError):  # made where there is no file
        return repr(predicate)
