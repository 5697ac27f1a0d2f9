"""A worker starts, works, and stops so that stopping costs nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from firetime.upkeep.lease import Renewed
from firetime.values.errors import QueueError, RestartNeeded, WrongContext
from firetime.values.events import Event, WorkerEvent
from firetime.values.log import say
from firetime.worker.control import hear_cancels, when_heard
from firetime.worker.heartbeat import RenewalThread
from firetime.worker.hooks import Buffer, call_hooks
from firetime.worker.intake import Intake
from firetime.worker.road import Road
from firetime.worker.scheduler import Scheduler
from firetime.worker.vigil import Vigil
from firetime.worker.wellbeing import Wellbeing
from firetime.worker.workshop import Health, Patience, Stir, Workshop

_log = logging.getLogger("firetime.worker")
_LAST_WORDS_S = 5.0
"""How long a stopping worker tries to settle and to take its leave while the server does not answer."""

_STUBBORN_S = 1.0
"""How long it tries to give back what has not ended although it was cancelled."""


class Worker:
    """One worker of one process: it serves the queues of its workshop until stopped.

    How many connections it takes: docs/operations.md.
    """

    def __init__(self, shop: Workshop, *, works: bool = True, schedules: bool = True) -> None:
        self._shop = shop
        self._works = works
        self._schedules = schedules
        self._stir = Stir()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._health = Health(shop, on_back=self._connected_anew, on_outage_over=self._put_off_sweeps)
        self._road = Road(shop, self._stir, self._spawn, on_broken=self._lacking_processes)
        self._intake = Intake(shop, self._road, self._stir, self._health, on_doubt=self._doubt)
        self._scheduler = Scheduler(shop, self._health)
        self._renewal = RenewalThread(
            shop,
            on_renewed=self._renewed,
            on_trouble=lambda error: self._health.lost("renewal", error),
            on_good=lambda: self._health.back("renewal"),
            on_broken=self._broken,
        )
        self._vigil = Vigil(
            shop, self._health, self._road, self._renewal.renewal, works=works, ended_by=lambda: self._ended_by
        )
        self._hook_buffer = Buffer()
        self._hooks: asyncio.Task[Any] | None = None
        self._hurry = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._upkeep: list[asyncio.Task[Any]] = []
        self._claims: list[asyncio.Task[Any]] = []

    @property
    def token(self) -> str:
        """The worker's name."""
        return self._shop.token

    @property
    def healthy(self) -> bool:
        """Whether every loop of it does its work, its event loop turns, and it need not make room for a new process."""
        return not self._health.troubled and self.wellbeing.alive and not self._over.done()

    @property
    def wellbeing(self) -> Wellbeing:
        """How it is, and what ails it; what has failed for less than 3 s does not count yet."""
        return self._vigil.look()

    @property
    def health_page(self) -> tuple[str, int] | None:
        """Host and port of its health page, where the ``health`` setting asks for one."""
        return self._vigil.page

    @property
    def spent(self) -> str:
        """Why it should make room for a new process; empty while it need not."""
        return self._road.spent

    @property
    def _ended_by(self) -> tuple[str, bool]:
        broken = self._over.done() and (self._over.cancelled() or self._over.exception() is not None)
        return "a part of it broke" if broken else "", self._ending is not None

    @property
    def orphaned(self) -> bool:
        """Whether its event loop was closed before it was stopped: it works no more, and its leases run out."""
        return self._over.get_loop().is_closed()

    def forget(self) -> None:
        """Lets go of what an orphaned worker leaves in this process."""
        self._shop.events.unsubscribe(self._tell_hooks)
        self._road.close()

    @property
    def leads(self) -> list[str]:
        """The queues it leads now."""
        return [queue for queue, each in self._scheduler.schedules.items() if each.leads and each.keys.is_home]

    @property
    def running(self) -> int:
        """Tasks that run, or wait for a thread or a process, here."""
        return self._road.slots.running

    def warm_up(self) -> None:
        """Makes ready what takes time, before anything is started. Raises ``InvalidOption`` where it could not work."""
        if self._works:
            self._road.warm_up()

    def start(self) -> None:
        """Starts everything; the first claims go out at once."""
        self._shop.events.subscribe(self._tell_hooks, every_task=False)
        self._hooks = self._keep(call_hooks(self._shop.hooks, self._hook_buffer))
        self._upkeep.append(self._keep(self._vigil.show_turning()))
        if self._schedules:
            self._upkeep.append(self._keep(self._scheduler.run()))
        if self._works:
            self._upkeep.append(self._keep(self._settle_all()))
            hears, renew = asyncio.Event(), self._renewal.at_once
            cancels = hear_cancels(self._shop, self._health, self._road.cancel, hears=hears, on_hearing=renew)
            self._upkeep.append(self._keep(cancels))
            claims = when_heard(hears, self._intake.claim_all)
            self._claims = [self._keep(claims), self._keep(self._intake.hear_bells())]
        self._renewal.start(self._vigil.keep, renews=self._works)
        queues = ",".join(dict.fromkeys(keys.logical for keys in self._shop.queues.values()))
        self._shop.events.emit(WorkerEvent("ready", self.token, queues))

    async def stop(self, within_s: float | None = None) -> None:
        """Stops so that it costs no task a retry or a crash.

        No more claims; what has not started is given back; the rest may finish within ``within_s`` (default: the
        ``shutdown`` setting), then it is cancelled and given back.
        Once begun it goes on, whatever becomes of the caller; a second call waits for the same end. Raises
        ``WrongContext`` in another event loop, and in a task that it runs: that would wait for itself.
        """
        if asyncio.get_running_loop() is not self._over.get_loop():
            raise WrongContext("a worker is stopped in the event loop that it was started in")
        if self._road.delivery_of(asyncio.current_task()) is not None:
            raise WrongContext("a task cannot wait for the end of its own worker: asyncio.create_task(runner.stop())")
        if self._ending is None:
            self._ending = self._spawn(self._end(within_s))
        await asyncio.shield(self._ending)

    async def _end(self, within_s: float | None) -> None:
        self._shop.events.emit(WorkerEvent("stopping", self.token))
        within_s = self._shop.settings.shutdown if within_s is None else within_s
        self._intake.close()
        await self._end_claims()
        self._road.release_unstarted()
        await self._until(lambda: self._road.clear, within_s, may_hurry=True)
        self._road.interrupt()
        await self._until(lambda: self._road.clear, _LAST_WORDS_S)
        self._road.give_up()
        await self._until(lambda: self._road.clear, _STUBBORN_S)
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        # before it takes its leave, for it would say again that it is there
        await self._renewal.stop(_LAST_WORDS_S)
        await self._leave()
        self._road.close()
        self._shop.events.emit(WorkerEvent("stopped", self.token))
        self._shop.events.unsubscribe(self._tell_hooks)
        await self._end_hooks()
        if not self._over.done():
            self._over.set_result(None)

    async def until_stopped(self) -> None:
        """Until ``stop`` has ended. Raises what ended one of its loops meanwhile: none should, and it must not be missed."""
        await asyncio.shield(self._over)

    def hurry(self) -> None:
        """While it stops: does not wait for what runs any longer."""
        self._hurry.set()
        self._stir.notify()

    async def until_idle(self) -> None:
        """Until nothing is ready or running in its queues; what is delayed does not count.

        Raises ``RestartNeeded`` where ``max_tasks`` are taken, so that it would wait for ever.
        """
        while True:
            await self._until_quiet()
            await self._until(lambda: self._road.clear, None)
            taken = self._road.taken
            self._intake.look_again()
            await self._until_quiet()
            # what came meanwhile may be ready again, for a retry, behind the back of the last claim
            if self._road.taken == taken:
                return

    async def _until_quiet(self) -> None:
        await self._until(lambda: self._intake.quiet or self._road.takes_no_more, None)
        if self._road.takes_no_more and not self._intake.quiet:
            await self._until(lambda: self._road.clear, None)
            raise RestartNeeded(self._road.spent)

    async def until_spent(self) -> None:
        """Until it should make room for a new process: see ``spent``. It goes on until it is stopped."""
        await self._until(lambda: self._road.spent, None)
        self._shop.events.emit(WorkerEvent("spent", self.token, detail=self._road.spent))

    async def until_news(self) -> None:
        """Until something changes: a task ends, a bell rings."""
        await self._stir.wait()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        loop = self._spawn(work)
        loop.add_done_callback(self._loop_ended)
        return loop

    def _loop_ended(self, loop: asyncio.Task[Any]) -> None:
        if loop.cancelled():
            # by somebody else, who cancels whatever he finds in the event loop: it must not count as healthy after that
            if self._ending is None:
                self._over.cancel()
            return
        error = loop.exception()
        if error is not None:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        """A part that should never end has. It is told at once: not everybody waits for ``until_stopped``."""
        say(_log, logging.CRITICAL, "worker %s: a part of it broke", self.token, error=error)
        if not self._over.done():
            self._over.set_exception(error)

    def _lacking_processes(self, error: BaseException) -> None:
        """No process can be made for its tasks: it stops, so that they go back to workers that may run them."""
        self._broken(error)
        if self._ending is None:
            self._ending = self._spawn(self._end(None))

    def _tell_hooks(self, event: Event) -> None:
        # nothing else may push out of the buffer what a hook is to hear of
        if self._shop.hooks.calls_for(event):
            self._hook_buffer.put(event)

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

    async def _end_hooks(self) -> None:
        """They hear of the end as well, but nobody waits for long for one that hangs."""
        if self._hooks is not None:
            self._hook_buffer.close()
            await asyncio.wait([self._hooks], timeout=_LAST_WORDS_S)
            self._hooks.cancel()
            await asyncio.gather(self._hooks, return_exceptions=True)

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

    async def _leave(self) -> None:
        for keys in self._shop.queues.values():
            try:
                led = await self._shop.server.run("leave", keys, {"token": self.token}, deadline_s=_LAST_WORDS_S)
                if led and keys.is_home:
                    self._shop.events.emit(WorkerEvent("demoted", self.token, keys.queue, "it has resigned"))
            except QueueError as error:
                said = "worker %s could not take its leave of %s: %s"
                say(_log, logging.WARNING, said, self.token, keys.queue, error)

    def _put_off_sweeps(self) -> None:
        self._intake.put_off_sweeps()

    def _connected_anew(self) -> None:
        self._intake.look_again()
        for queue in self._shop.queues:
            self._renewal.renewal.suspect(queue)
        self._renewal.at_once()

    def _doubt(self, queue: str) -> None:
        self._renewal.renewal.suspect(queue)

    def _renewed(self, renewed: Renewed) -> None:
        self._road.renewed(renewed, claim_in_flight=self._intake.claim_in_flight(renewed.queue))
