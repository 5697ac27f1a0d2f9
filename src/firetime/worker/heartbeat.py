"""Leases are renewed from a thread of its own, and the register hears that the worker is there."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import threading
import time
from collections.abc import Callable

from firetime.store.connect import CALL_S
from firetime.store.places import connect
from firetime.upkeep.lease import Renewal, Renewed
from firetime.upkeep.register import About, Register
from firetime.values.errors import QueueError
from firetime.values.version import __version__
from firetime.worker.scheduler import gone_s
from firetime.worker.workshop import Health, Patience, Workshop

_TURN_S = 1.0
"""How often the event loop shows that it turns."""


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

    def start(self) -> None:
        """Starts the thread."""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, args=(self._loop,), name="firetime-renewal", daemon=True).start()

    def at_once(self) -> None:
        """Renews now, after a reconnection: there is no time to lose."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has stopped
                self._loop.call_soon_threadsafe(self._now.set)

    def stop(self) -> None:
        """Ends the thread and its connection."""
        self._stopping = True
        self.at_once()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_until_complete(self._renew_until_stopped())
        except Exception as error:  # noqa: BLE001 - without renewal every lease is lost: the worker must hear of it
            self._tell(functools.partial(self._on_broken, error))
        finally:
            loop.close()

    async def _renew_until_stopped(self) -> None:
        pause_s, troubled = self._every_s, False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._now.wait()
            self._now.clear()
            if self._stopping or self._worker_loop.is_closed():
                break
            pause_s = self._every_s
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
        await self._server.aclose()

    def _tell(self, news: Callable[[], None]) -> None:
        try:
            self._worker_loop.call_soon_threadsafe(news)
        except RuntimeError:
            # the worker's loop is closed: nobody is left to hear it
            self._stopping = True


async def show_turning(renewal: Renewal) -> None:
    """For ever: shows the renewing thread that the event loop turns."""
    while True:
        renewal.loop_turned = time.monotonic()
        await asyncio.sleep(_TURN_S)


async def say_alive(shop: Workshop, health: Health, running: Callable[[], int], *, works: bool) -> None:
    """For ever: tells the register of each queue, once a lease, that this worker, or scheduler without slots, serves it."""
    started_ms = shop.clock.now_ms()
    registers = [
        (Register(shop.server, keys, gone_s=gone_s(shop)), Patience(health, f"register of {keys.queue}"))
        for keys in shop.queues.values()
    ]
    while True:
        about = _about(shop, started_ms, running(), works=works)
        pause_s = shop.settings.lease
        for register, patience in registers:
            try:
                await register.say_alive(about)
            except QueueError as error:
                error.kind = "fetch"
                pause_s = min(pause_s, patience.pause_s(error))
            else:
                patience.over()
        await asyncio.sleep(pause_s)


def _about(shop: Workshop, started_ms: int, running: int, *, works: bool) -> About:
    return About(
        worker=shop.token,
        host=socket.gethostname(),
        pid=os.getpid(),
        started_ms=started_ms,
        concurrency=shop.settings.concurrency if works else 0,
        threads=shop.settings.threads if works else 0,
        running=running,
        version=__version__,
    )
