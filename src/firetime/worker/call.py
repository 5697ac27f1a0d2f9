"""Hooks and failure handlers are called; what they raise, whatever it is, comes back as a value and ends nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any


async def raised_by(
    function: Callable[..., Any], *arguments: object, room: asyncio.Semaphore | None = None
) -> BaseException | None:
    """What a coroutine function, or a plain one in a thread, raises: SystemExit too. None when it ends well.

    Only the cancellation of whoever calls goes through. ``room`` bounds how many threads there are at once.
    """
    if not inspect.iscoroutinefunction(function):
        async with room or contextlib.nullcontext():
            return await _raised_in_a_thread(function, arguments)
    try:
        await function(*arguments)
    except asyncio.CancelledError as error:
        caller = asyncio.current_task()
        if caller is not None and caller.cancelling():
            raise
        return error
    except BaseException as error:  # noqa: BLE001 - user code
        return error
    return None


async def _raised_in_a_thread(function: Callable[..., Any], arguments: tuple[object, ...]) -> BaseException | None:
    """A daemon thread, which a pool's are not: a function that never ends must not keep the process from exiting."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException | None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result(error)

    def work() -> None:
        error = _raised_here(function, arguments)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="firetime-hook", daemon=True).start()
    return await ended


def _raised_here(function: Callable[..., Any], arguments: tuple[object, ...]) -> BaseException | None:
    try:
        function(*arguments)
    except BaseException as error:  # noqa: BLE001 - user code; some of what it raises no future can carry
        return error
    return None
