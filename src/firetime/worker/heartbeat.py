"""Leases are renewed from a thread of its own, and the register hears that the worker is there."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable

from firetime.store.blocking import BlockingServer
from firetime.store.connect import CALL_S
from firetime.upkeep.lease import Renewal, Renewed
from firetime.upkeep.register import About, Register
from firetime.values.errors import QueueError
from firetime.values.version import __version__
from firetime.worker.scheduler import gone_s
from firetime.worker.workshop import Health, Patience, Workshop

_TURN_S = 1.0
"""How often the event loop shows that it turns."""


class RenewalThread:
    """Runs the renewal every heartbeat until stopped."""

    def __init__(
        self,
        shop: Workshop,
        *,
        on_renewed: Callable[[Renewed], None],
        on_trouble: Callable[[QueueError], None],
        on_good: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._every_s = shop.settings.heartbeat_s
        self._server = BlockingServer(shop.server.address, shop.server.shift)
        self._on_trouble = on_trouble
        self._on_good = on_good
        self._stop = threading.Event()
        self._now = threading.Event()
        self.renewal = Renewal(
            self._server,
            list(shop.queues.values()),
            shop.held,
            shop.token,
            unknown_s=min(CALL_S, shop.settings.lease / 2),
            stall_limit_s=shop.settings.stall_limit,
            on_renewed=lambda renewed: self._tell(lambda: on_renewed(renewed)),
        )
        self._thread = threading.Thread(target=self._run, name="firetime-renewal", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def at_once(self) -> None:
        """Renews now, after a reconnection: there is no time to lose."""
        self._now.set()

    def stop(self) -> None:
        """Ends the thread and its connection."""
        self._stop.set()
        self._now.set()

    def _run(self) -> None:
        pause_s = self._every_s
        troubled = False
        while not self._stop.is_set():
            self._now.wait(pause_s)
            self._now.clear()
            if self._stop.is_set():
                break
            try:
                self.renewal.tick()
            except QueueError as error:
                # try again soon: a lease lasts three heartbeats only
                pause_s, troubled = min(self._every_s, 0.5), True
                self._tell(lambda error=error: self._on_trouble(error))  # type: ignore[misc]
            else:
                pause_s = self._every_s
                if troubled:
                    troubled = False
                    self._tell(self._on_good)
        self._server.close()

    def _tell(self, news: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(news)
        except RuntimeError:
            # the loop is closed: nobody is left to hear it
            self._stop.set()


async def show_turning(renewal: Renewal) -> None:
    """For ever: shows the renewing thread that the event loop turns."""
    while True:
        renewal.loop_turned = time.monotonic()
        await asyncio.sleep(_TURN_S)


async def say_alive(shop: Workshop, health: Health, running: Callable[[], int]) -> None:
    """For ever: tells the register of each queue, once a lease, that this worker serves it."""
    patience = Patience(health, "register")
    started_ms = shop.clock.now_ms()
    registers = [Register(shop.server, keys, gone_s=gone_s(shop)) for keys in shop.queues.values()]
    while True:
        about = _about(shop, started_ms, running())
        try:
            for register in registers:
                await register.say_alive(about)
        except QueueError as error:
            error.kind = "fetch"
            await patience.endure(error)
            continue
        patience.over()
        await asyncio.sleep(shop.settings.lease)


def _about(shop: Workshop, started_ms: int, running: int) -> About:
    return About(
        worker=shop.token,
        host=socket.gethostname(),
        pid=os.getpid(),
        started_ms=started_ms,
        concurrency=shop.settings.concurrency,
        threads=shop.settings.threads,
        running=running,
        version=__version__,
    )
