"""A worker is looked after from its renewing thread, which goes on when its event loop does not."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import threading
import time
from collections.abc import Callable

from firetime.store.connect import Server
from firetime.upkeep.lease import Renewal
from firetime.upkeep.register import About, Register
from firetime.values.errors import LoopBlocked, QueueError
from firetime.values.events import Trouble, WorkerEvent
from firetime.values.version import __version__
from firetime.worker.health_page import bind, serve
from firetime.worker.road import Road
from firetime.worker.scheduler import gone_s
from firetime.worker.watchdog import Blockage, blocked_by, look_every_s
from firetime.worker.wellbeing import BLOCKED_S, Facts, Wellbeing, examine
from firetime.worker.workshop import Health, Patience, Workshop

_LOOK_S = 1.0
"""How often it is looked whether what the register was told still holds."""


class Vigil:
    """What is seen of one worker, and told: what blocks its event loop, that it is there, how it is."""

    def __init__(
        self,
        shop: Workshop,
        health: Health,
        road: Road,
        renewal: Renewal,
        *,
        works: bool,
        ended_by: Callable[[], tuple[str, bool]],
    ) -> None:
        """``ended_by`` tells what broke the worker, if anything did, and whether it is stopping."""
        self._shop = shop
        self._health = health
        self._road = road
        self._renewal = renewal
        self._works = works
        self._ended_by = ended_by
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._warn_after_s = shop.settings.block_warning
        self._blocked: tuple[LoopBlocked, float] | None = None
        """What blocks the event loop, and when that last turned."""
        self._page = bind(shop.settings.health) if shop.settings.health else None

    @property
    def page(self) -> tuple[str, int] | None:
        """Where questions about its health are answered; None: nowhere."""
        if self._page is None:
            return None
        host, port, *_ = self._page.getsockname()
        return host, port

    async def show_turning(self) -> None:
        """On the event loop, for ever: shows that it turns."""
        every_s = look_every_s(self._warn_after_s)
        while True:
            self._renewal.loop_turned = time.monotonic()
            await asyncio.sleep(every_s)

    async def keep(self, server: Server) -> None:
        """In the renewing thread, for ever; ``server`` is that thread's own."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._say_alive(server))
            if self._page is not None:
                group.create_task(serve(self._page, self.look))

    def look(self) -> Wellbeing:
        """How it is now; from any thread."""
        broken, stopping = self._ended_by()
        blocked_s = time.monotonic() - self._renewal.loop_turned
        facts = Facts(
            troubled=self._health.failing_for(BLOCKED_S),
            # a worker that stops ends its loops one after the other
            stuck={} if stopping else self._health.stuck(self._renewal.loop_turned),
            blocked_s=blocked_s,
            blocked_by=self._blocked[0].culprit if self._blocked is not None else "",
            stall_limit_s=self._shop.settings.stall_limit,
            broken=broken,
            spent=self._road.spent,
            stopping=stopping,
        )
        return examine(
            facts,
            worker=self._shop.token,
            queues=list(self._shop.queues),
            running=self._road.slots.running,
            leaked_threads=self._road.threads.leaked,
        )

    async def _watch(self) -> None:
        blockage, every_s = Blockage(self._warn_after_s), look_every_s(self._warn_after_s)
        while True:
            await asyncio.sleep(every_s)
            turned = self._renewal.loop_turned
            if self._blocked is not None and turned > self._blocked[1]:
                error, since = self._blocked
                detail = f"after {turned - since:.1f} s, by {error.culprit}"
                self._blocked = None
                self._shop.events.emit(WorkerEvent("unblocked", self._shop.token, detail=detail))
            if blockage.look(time.monotonic(), turned):
                self._tell_of(blockage, turned)

    def _tell_of(self, blockage: Blockage, turned: float) -> None:
        error = blocked_by(self._loop, self._thread, self._road.delivery_of, blockage.lasted_s)
        if error is None:
            blockage.told = False
            return
        self._blocked = error, turned
        self._shop.events.emit(Trouble(error))

    async def _say_alive(self, server: Server) -> None:
        """Tells the register of each queue, once a lease and when something changes, that this worker serves it."""
        started_ms = self._shop.clock.now_ms()
        registers = [
            (Register(server, keys, gone_s=gone_s(self._shop)), Patience(self._health, f"register of {keys.queue}"))
            for keys in self._shop.queues.values()
        ]
        while True:
            about = self._about(started_ms)
            pause_s = self._shop.settings.lease
            for register, patience in registers:
                try:
                    await register.say_alive(about)
                except QueueError as error:
                    error.kind = "fetch"
                    pause_s = min(pause_s, patience.next_s())
                    self._loop.call_soon_threadsafe(functools.partial(patience.lost, error))
                else:
                    self._loop.call_soon_threadsafe(patience.over)
            await self._until_changed(about.ailing, pause_s)

    async def _until_changed(self, ailing: tuple[str, ...], within_s: float) -> None:
        end = time.monotonic() + within_s
        while (left_s := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left_s, _LOOK_S))
            if tuple(self.look().ailing) != ailing:
                return

    def _about(self, started_ms: int) -> About:
        return About(
            worker=self._shop.token,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=started_ms,
            concurrency=self._shop.settings.concurrency if self._works else 0,
            threads=self._shop.settings.threads if self._works else 0,
            running=self._road.slots.running,
            version=__version__,
            ailing=tuple(self.look().ailing),
        )
