"""Calls come from code without an event loop and are made in a loop of their own, in one thread for each process."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from firetime.values.errors import BrokerUnavailable, WrongContext
from firetime.values.forks import in_a_child

T = TypeVar("T")


def refuse_where_a_loop_runs() -> None:
    """Raises ``WrongContext`` inside a running event loop, which a call that waits would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongContext("an event loop runs in this thread: await the call without _sync instead")


class Portal:
    """One event loop in one daemon thread; after a fork the child makes its own, for a thread does not survive one."""

    def __init__(self, *, on_fork: Callable[[], None]) -> None:
        self._on_fork = on_fork
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        in_a_child(self, Portal.begin_anew)

    def begin_anew(self) -> None:
        """In a forked child, before anything else runs there; the lock may be held by a thread that does not exist."""
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._on_fork()

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Runs ``await function()`` over there and waits for it.

        Raises ``WrongContext`` inside a running event loop, which it would block.
        """
        refuse_where_a_loop_runs()
        if sys.is_finalizing():
            # daemon threads run no more: the answer would never come
            raise WrongContext("the interpreter is exiting: make the call earlier, or in an atexit function")

        async def awaited() -> T:
            return await function()

        with self._lock:
            # handed over before anybody closes: what the loop has been given ends, one way or another
            future: Future[T] = asyncio.run_coroutine_threadsafe(awaited(), self._running_loop())
        try:
            return future.result()
        except CancelledError:
            raise BrokerUnavailable("the runner was closed meanwhile", maybe_accepted=True) from None

    def close(self, clean_up: Callable[[], Awaitable[None]]) -> None:
        """Runs the clean-up in the loop, if there is one in this process, and ends its thread.

        Calls that wait there for an answer raise ``BrokerUnavailable``.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_wind_up(clean_up), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="firetime-portal", daemon=True)
            self._thread.start()
        return self._loop


async def _wind_up(clean_up: Callable[[], Awaitable[None]]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await clean_up()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
