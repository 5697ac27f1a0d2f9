"""Calls come from code without an event loop and are made in a loop of their own, in one thread for each process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from firetime.values.errors import WrongContext

T = TypeVar("T")


class Portal:
    """One event loop in one daemon thread; after a fork the child makes its own, for a thread does not survive one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Runs ``await function()`` over there and waits for it.

        Raises ``WrongContext`` inside a running event loop, which it would block.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise WrongContext("an event loop runs in this thread: await the call without _sync instead")

        async def awaited() -> T:
            return await function()

        future: Future[T] = asyncio.run_coroutine_threadsafe(awaited(), self._running_loop())
        return future.result()

    def close(self, clean_up: Callable[[], Awaitable[None]]) -> None:
        """Runs the clean-up in the loop, if there is one in this process, and ends its thread."""
        with self._lock:
            loop = self._loop if self._pid == os.getpid() else None
            self._loop = None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(_awaited(clean_up), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            # the parent's lock may have been held by a thread that does not exist in this child
            self._lock = threading.Lock()
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                threading.Thread(target=_run, args=(self._loop,), name="firetime-portal", daemon=True).start()
            return self._loop


async def _awaited(function: Callable[[], Awaitable[None]]) -> None:
    await function()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
