"""A worker starts, works, and stops so that stopping costs nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from firetime.upkeep.lease import Renewed
from firetime.values.errors import QueueError
from firetime.values.events import WorkerEvent
from firetime.worker.heartbeat import RenewalThread, say_alive, show_turning
from firetime.worker.hooks import Buffer, call_hooks
from firetime.worker.intake import Intake
from firetime.worker.road import Road
from firetime.worker.scheduler import Scheduler
from firetime.worker.workshop import Health, Patience, Stir, Workshop

_log = logging.getLogger("firetime.worker")
_LAST_WORDS_S = 5.0
"""How long a stopping worker tries to settle and to take its leave while the server does not answer."""


class Worker:
    """One worker of one process: it serves the queues of its workshop until stopped.

    Connections: one for each call at once (usually two or three), one for bells, one for cancels, one for the
    renewing thread, and with the scheduler one for news of earlier heads.
    """

    def __init__(self, shop: Workshop, *, works: bool = True, schedules: bool = True) -> None:
        self._shop = shop
        self._works = works
        self._schedules = schedules
        self._stir = Stir()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._health = Health(shop, self._connected_anew)
        self._road = Road(shop, self._stir, self._spawn)
        self._intake = Intake(shop, self._road, self._stir, self._health, on_doubt=self._doubt)
        self._scheduler = Scheduler(shop, self._health)
        self._renewal = RenewalThread(
            shop,
            on_renewed=self._renewed,
            on_trouble=lambda error: self._health.lost("renewal", error),
            on_good=lambda: self._health.back("renewal"),
        )
        self._settling = False
        self._hook_buffer = Buffer()
        self._hurry = asyncio.Event()
        self._upkeep: list[asyncio.Task[Any]] = []
        self._claims: list[asyncio.Task[Any]] = []

    @property
    def token(self) -> str:
        """The worker's name."""
        return self._shop.token

    @property
    def healthy(self) -> bool:
        """Whether every loop of it does its work and its event loop turns."""
        return not self._health.troubled and not self._renewal.renewal.stalled()

    @property
    def leads(self) -> list[str]:
        """The queues it leads now."""
        return [queue for queue, schedule in self._scheduler.schedules.items() if schedule.leads]

    @property
    def running(self) -> int:
        """Tasks that run, or wait for a thread, here."""
        return self._road.slots.running

    def start(self) -> None:
        """Starts everything; the first claims go out at once."""
        self._shop.events.subscribe(self._hook_buffer.put, every_task=False)
        self._upkeep.append(self._spawn(call_hooks(self._shop.hooks, self._hook_buffer)))
        self._upkeep.append(self._spawn(say_alive(self._shop, self._health, lambda: self.running)))
        if self._schedules:
            self._upkeep.append(self._spawn(self._scheduler.run()))
        if self._works:
            self._upkeep.append(self._spawn(show_turning(self._renewal.renewal)))
            self._upkeep.append(self._spawn(self._settle_all()))
            self._upkeep.append(self._spawn(self._hear_cancels()))
            self._claims = [self._spawn(self._intake.claim_all()), self._spawn(self._intake.hear_bells())]
            self._renewal.start()
        self._shop.events.emit(WorkerEvent("ready", self.token, ",".join(self._shop.queues)))

    async def stop(self, within_s: float | None = None) -> None:
        """Stops so that it costs no task a retry or a crash.

        No more claims; what has not started is given back; the rest may finish within ``within_s`` (default: the
        ``shutdown`` setting), then it is cancelled and given back.
        """
        self._shop.events.emit(WorkerEvent("stopping", self.token))
        within_s = self._shop.settings.shutdown if within_s is None else within_s
        self._intake.close()
        await self._end_claims()
        self._road.release_unstarted()
        await self._until(lambda: self._road.clear, within_s, may_hurry=True)
        self._road.interrupt()
        await self._until(lambda: self._road.clear, _LAST_WORDS_S)
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        await self._leave()
        self._renewal.stop()
        self._road.threads.close()
        self._shop.events.emit(WorkerEvent("stopped", self.token))
        self._shop.events.unsubscribe(self._hook_buffer.put)

    def hurry(self) -> None:
        """While it stops: does not wait for what runs any longer."""
        self._hurry.set()
        self._stir.notify()

    async def until_idle(self) -> None:
        """Until nothing is ready or running in its queues; what is delayed does not count."""
        while True:
            await self._until(lambda: self._intake.quiet and self._road.clear, None)
            self._intake.look_again()
            await self._until(lambda: self._intake.quiet, None)
            if self._road.clear:
                return

    async def until_news(self) -> None:
        """Until something changes: a task ends, a bell rings."""
        await self._stir.wait()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _until(self, reached: Any, within_s: float | None, *, may_hurry: bool = False) -> None:
        loop = asyncio.get_running_loop()
        end = None if within_s is None else loop.time() + within_s
        while not reached() and not (may_hurry and self._hurry.is_set()):
            left_s = None if end is None else end - loop.time()
            if left_s is not None and left_s <= 0:
                return
            await self._stir.wait(left_s)

    async def _end_claims(self) -> None:
        """A claim in flight is answered: its deliveries were given to us, and go back with the rest."""
        if not self._claims:
            return
        claims, bells = self._claims
        bells.cancel()
        await asyncio.wait([claims, bells], timeout=_LAST_WORDS_S)
        claims.cancel()
        await asyncio.gather(claims, bells, return_exceptions=True)

    async def _settle_all(self) -> None:
        patience = Patience(self._health, "settle")
        settler = self._road.settler
        while True:
            await settler.wait()
            try:
                done = await settler.tick()
            except QueueError as error:
                await patience.endure(error)
                continue
            patience.over()
            for settled in done:
                self._road.settled(settled)

    async def _hear_cancels(self) -> None:
        """For ever: hears at once who is asked to stop. What is missed is told by the next renewal."""
        patience = Patience(self._health, "control")
        line = self._shop.server.line()
        channels = [keys.control_channel for keys in self._shop.queues.values()]
        while True:
            try:
                await line.say("SUBSCRIBE", *channels)
                silent = 0
                while silent < 2:
                    heard = await line.listen(_SILENCE_S)
                    patience.over()
                    silent = silent + 1 if heard is None else 0
                    if heard is None:
                        await line.say("PING")
                    elif heard[0] == b"message":
                        self._road.cancel(heard[2].decode())
                await line.aclose()
            except QueueError as error:
                error.kind = "control"
                await patience.endure(error)
            except asyncio.CancelledError:
                await line.aclose()
                raise

    async def _leave(self) -> None:
        for keys in self._shop.queues.values():
            try:
                await self._shop.server.run("leave", keys, {"token": self.token}, deadline_s=_LAST_WORDS_S)
            except QueueError as error:
                _log.warning("worker %s could not take its leave of %s: %s", self.token, keys.queue, error)

    def _connected_anew(self) -> None:
        self._intake.connected_anew()
        for queue in self._shop.queues:
            self._renewal.renewal.suspect(queue)
        self._renewal.at_once()

    def _doubt(self, queue: str) -> None:
        self._renewal.renewal.suspect(queue)

    def _renewed(self, renewed: Renewed) -> None:
        self._road.renewed(renewed, claim_in_flight=self._intake.claim_in_flight(renewed.queue))


_SILENCE_S = 20.0
"""After so long without a word a subscription is asked whether it still stands."""
