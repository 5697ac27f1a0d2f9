"""Leases are renewed from a thread of its own, which a blocked event loop cannot stop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from firetime.store.connect import CALL_S, Server
from firetime.store.places import connect
from firetime.upkeep.lease import Renewal, Renewed
from firetime.values.errors import QueueError
from firetime.worker.workshop import Workshop

Companion = Callable[[Server], Coroutine[Any, Any, None]]
"""Goes on beside the renewals, in the same thread, with that thread's server."""


class RenewalThread:
    """Renews every heartbeat, in an event loop of its own, until stopped: the worker's may be blocked by a task."""

    def __init__(
        self,
        shop: Workshop,
        *,
        on_renewed: Callable[[Renewed], None],
        on_trouble: Callable[[QueueError], None],
        on_good: Callable[[], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._worker_loop = asyncio.get_running_loop()
        self._every_s = shop.settings.heartbeat_s
        self._server = connect(shop.server.address, shop.server.shift)
        self._on_trouble = on_trouble
        self._on_good = on_good
        self._on_broken = on_broken
        self._loop: asyncio.AbstractEventLoop | None = None
        self._now = asyncio.Event()
        self._stopping = False
        self._ended: asyncio.Future[None] = self._worker_loop.create_future()
        self.renewal = Renewal(
            self._server,
            list(shop.queues.values()),
            shop.held,
            shop.token,
            call_s=min(CALL_S, shop.settings.lease / 3),
            unknown_s=min(CALL_S, shop.settings.lease / 2),
            stall_limit_s=shop.settings.stall_limit,
            on_renewed=lambda renewed: self._tell(lambda: on_renewed(renewed)),
        )

    def start(self, companion: Companion, *, renews: bool) -> None:
        """Starts the thread; a scheduler, which holds nothing, renews nothing."""
        self._loop = asyncio.new_event_loop()
        life = self._renew_until_stopped(companion, renews=renews)
        threading.Thread(target=self._run, args=(self._loop, life), name="firetime-renewal", daemon=True).start()

    def at_once(self) -> None:
        """Renews now, after a reconnection: there is no time to lose."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has stopped
                self._loop.call_soon_threadsafe(self._now.set)

    async def stop(self, within_s: float) -> None:
        """Ends the thread and its connection, and waits for that for a while."""
        self._stopping = True
        self.at_once()
        if self._loop is not None:
            await asyncio.wait([self._ended], timeout=within_s)

    def _run(self, loop: asyncio.AbstractEventLoop, life: Coroutine[Any, Any, None]) -> None:
        try:
            loop.run_until_complete(life)
        except Exception as error:  # noqa: BLE001 - without renewal every lease is lost: the worker must hear of it
            self._tell(functools.partial(self._on_broken, error))
        finally:
            loop.close()
            self._tell(self._say_ended)

    def _say_ended(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    async def _renew_until_stopped(self, companion: Companion, *, renews: bool) -> None:
        beside = asyncio.create_task(companion(self._server))
        beside.add_done_callback(lambda _: self._now.set())
        try:
            await self._renew_all(beside, renews=renews)
        finally:
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
            await self._server.aclose()

    async def _renew_all(self, beside: asyncio.Task[None], *, renews: bool) -> None:
        pause_s, troubled = self._every_s, False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._now.wait()
            self._now.clear()
            if self._stopping or self._worker_loop.is_closed():
                return
            if beside.done():
                # it never ends by itself: what ended it is to be heard of
                beside.result()
            pause_s = self._every_s
            if not renews:
                continue
            try:
                await self.renewal.tick()
            except QueueError as error:
                # try again soon: a lease lasts three heartbeats only
                pause_s, troubled = min(self._every_s, 0.5), True
                self._tell(functools.partial(self._on_trouble, error))
            else:
                if troubled:
                    troubled = False
                    self._tell(self._on_good)

    def _tell(self, news: Callable[[], None]) -> None:
        try:
            self._worker_loop.call_soon_threadsafe(news)
        except RuntimeError:
            # the worker's loop is closed: nobody is left to hear it
            self._stopping = True
