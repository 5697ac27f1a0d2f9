"""The road of a delivery through a worker: claimed, admitted, run, settled."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from firetime.upkeep.lease import Renewed
from firetime.values.dead_letter import dead_letter
from firetime.values.definition import Definition
from firetime.values.errors import InvalidOption, LeaseLost
from firetime.values.events import TaskEvent, Trouble
from firetime.values.log import say
from firetime.values.message import Delivery, Fence
from firetime.values.state import FRESH
from firetime.values.verdict import (
    Bury,
    Complete,
    Outcome,
    Release,
    Rules,
    Verdict,
    decide,
    handler_failed,
    handler_interrupted,
)
from firetime.work.admit import UNKNOWN_TASK, admit
from firetime.work.claim import Claimed
from firetime.work.edges import Edges, Settlement
from firetime.work.processes import Processes, ProcessRun
from firetime.work.run import CoroutineRun, ThreadRun, sealed
from firetime.work.settle import Settled, Settler
from firetime.work.threads import Threads
from firetime.worker.call import raised_by
from firetime.worker.slots import Slots
from firetime.worker.workshop import Stir, Workshop

_log = logging.getLogger("firetime.worker")


class Road:
    """Where each delivery of one worker is on its way, from claim to settlement."""

    def __init__(
        self,
        shop: Workshop,
        stir: Stir,
        spawn: Callable[[Any], asyncio.Task[Any]],
        *,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._shop = shop
        self._stir = stir
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        settings = shop.settings
        self._rules = Rules(lease_s=settings.lease, unknown_s=settings.unknown_ttl, now_ms=shop.clock.now_ms)
        self.threads = Threads(settings.threads)
        self.processes = Processes(
            settings.task_process_count,
            shop.whereabouts,
            recycle_after=settings.recycle_processes,
            on_broken=on_broken,
        )
        self._queues = {keys.logical for keys in shop.queues.values()}
        self.slots = Slots(settings.concurrency, self.threads, self.processes, shop.tasks, self._queues)
        self.slots.left = settings.max_tasks or math.inf
        self.settler = Settler(
            Edges(
                shop.server,
                lambda queue: shop.queues[queue],
                shop.token,
                shop.codec,
                history_length=settings.history_length,
                remember_s=settings.remember_ids,
            )
        )
        self.taken = 0
        """Deliveries claimed since the worker started."""
        self.running: dict[Delivery, CoroutineRun | ThreadRun | ProcessRun] = {}
        self._telling: set[asyncio.Task[Any]] = set()
        """Calls of failure handlers."""
        self._handler_room = asyncio.Semaphore(settings.threads)

    @property
    def clear(self) -> bool:
        """Whether nothing is on the road."""
        return not self.running and not self._telling and not len(self._shop.held)

    @property
    def takes_no_more(self) -> bool:
        """Whether it has taken as many tasks as it may."""
        return self.slots.left <= 0

    @property
    def spent(self) -> str:
        """Why this worker should make room for a new process; empty while it need not."""
        leaked, allowed = self.threads.leaked, self._shop.settings.leaks_allowed
        if leaked > allowed:
            return f"{leaked} threads are lost to tasks that ignored their timeout"
        return f"it has taken {self.taken} tasks, as many as max_tasks allows" if self.takes_no_more else ""

    def delivery_of(self, task: asyncio.Task[Any] | None) -> Delivery | None:
        """What an asyncio task runs, if it is one of the runs here; from any thread."""
        runs = tuple(self.running.values())
        return next((run.delivery for run in runs if isinstance(run, CoroutineRun) and run.task is task), None)

    def take(self, claimed: Claimed) -> None:
        """Starts what was claimed, or gives it its end."""
        self.taken += len(claimed.deliveries)
        self.slots.left -= len(claimed.deliveries)
        self._shop.held.add(claimed.deliveries)
        for delivery in claimed.deliveries:
            self._start(delivery)

    def _start(self, delivery: Delivery) -> None:
        if delivery.fence.deliveries > 1:
            self._lose_earlier(delivery.fence)
        definition = self._shop.tasks.get(delivery.task)
        ended = admit(delivery, definition)
        if ended is not None or definition is None:
            self._ended(delivery, ended or Outcome("unknown"))
            return
        if self._shop.events.every_task:
            self._shop.events.emit(TaskEvent("started", delivery))
        if definition.is_coroutine:
            run = CoroutineRun(delivery, definition, self._ended, self._coroutine_gone)
            self.slots.coroutines += 1
            run.task = self._loop.create_task(run.run())
            self.running[delivery] = run
        elif definition.options.run_in == "process":
            self._hand_over(delivery, definition)
        else:
            job = ThreadRun(delivery, definition, self.threads, self._ended)
            self.running[delivery] = job
            self.threads.submit(job)

    def _lose_earlier(self, fence: Fence) -> None:
        """Its lease ran out before a renewal could say so, and it was this worker that found it."""
        for earlier in tuple(self.running):
            if (earlier.fence.queue, earlier.fence.lane, earlier.fence.entry) == (fence.queue, fence.lane, fence.entry):
                self._lose(earlier)

    def _hand_over(self, delivery: Delivery, definition: Definition) -> None:
        run = ProcessRun(delivery, definition, self.processes, self._ended, lease_s=self._rules.lease_s)
        try:
            self.processes.submit(run)
        except InvalidOption as error:
            # registered after the start, which would have refused it
            self._ended(delivery, Outcome("raised", error=error))
        else:
            self.running[delivery] = run

    def _coroutine_gone(self) -> None:
        self.slots.coroutines -= 1
        self._stir.notify()

    def _ended(self, delivery: Delivery, outcome: Outcome) -> None:
        self.running.pop(delivery, None)
        definition = self._shop.tasks.get(delivery.task)
        outcome = sealed(delivery, outcome, self._shop.codec)
        verdict = decide(delivery, outcome, definition.options if definition else UNKNOWN_TASK, self._rules)
        if isinstance(verdict, Bury) and self._shop.failure_handlers:
            telling = self._spawn(self._tell_handlers(delivery, outcome, verdict))
            self._telling.add(telling)
            self.slots.told = len(self._telling)
            telling.add_done_callback(lambda told: self._told(told, delivery, outcome, verdict))
        else:
            self._settle(delivery, outcome, verdict)

    def _told(self, telling: asyncio.Task[Any], delivery: Delivery, outcome: Outcome, bury: Bury) -> None:
        self._telling.discard(telling)
        self.slots.told = len(self._telling)
        if telling.cancelled():
            # settled here and not in the task: one that is cancelled before its first step never takes one
            self._settle(delivery, outcome, handler_interrupted(bury))
        self._stir.notify()

    async def _tell_handlers(self, delivery: Delivery, outcome: Outcome, bury: Bury) -> None:
        letter = dead_letter(
            task_id=delivery.task_id,
            queue=delivery.queue,
            message=delivery.message,
            raw=delivery.raw,
            state=bury.state,
            reason=bury.reason,
            crashes=delivery.crashes,
        )
        verdict: Verdict = bury
        for handler in self._shop.failure_handlers:
            error = await raised_by(handler, letter, bury.error, room=self._handler_room)
            if error is not None:
                said = "the failure handler failed for %s %s; it is told again later"
                say(_log, logging.ERROR, said, letter.task, letter.id, error=error)
                verdict = handler_failed(bury, error, self._rules)
                break
        self._settle(delivery, outcome, verdict)

    def _settle(self, delivery: Delivery, outcome: Outcome, verdict: Verdict) -> None:
        definition = self._shop.tasks.get(delivery.task)
        keep_history = definition is not None and not definition.options.delete_on_ack
        self.settler.put(Settlement(delivery, outcome, verdict, keep_history))
        self._stir.notify()

    def settled(self, settled: Settled) -> None:
        """The server has answered for a batch."""
        deliveries, events = [each.delivery for each in settled.batch], self._shop.events
        if settled.error is None:
            self._shop.held.drop(deliveries)
        else:
            self._shop.held.give_up(deliveries)
            events.emit(Trouble(settled.error))
        for each in settled.batch:
            refused = each.delivery.task_id in settled.refused
            if refused or events.every_task or not isinstance(each.verdict, Complete):
                events.emit(TaskEvent("refused" if refused else "settled", each.delivery, each.outcome, each.verdict))
        for error in settled.not_freed:
            events.emit(Trouble(error))
        self._stir.notify()

    def renewed(self, renewed: Renewed, *, claim_in_flight: bool) -> None:
        """What the renewal of leases has found."""
        for delivery in renewed.lost:
            self._lose(delivery)
        for delivery in renewed.cancel_asked:
            self.cancel(delivery.task_id)
        if not claim_in_flight:
            for fence, task_id in renewed.unknown:
                self._give_back(fence, task_id)

    def _lose(self, delivery: Delivery) -> None:
        run = self.running.get(delivery)
        if run is None:
            # it has ended meanwhile: what its settlement is told counts
            return
        self._shop.events.emit(TaskEvent("lost", delivery))
        self._shop.events.emit(Trouble(LeaseLost(delivery.task, delivery.task_id)))
        run.stop(Outcome("lost"))

    def _give_back(self, fence: Fence, task_id: str) -> None:
        """A claim's reply was lost: what it gave is released, to be run by whoever comes first."""
        if not self._shop.held.knows(fence.queue, (fence.lane, fence.entry)):
            delivery = Delivery(
                task_id=task_id,
                fence=fence,
                message=None,
                state=FRESH,
                fire_ms=0,
                claimed_ms=self._shop.clock.now_ms(),
                logical=self._shop.queues[fence.queue].logical,
            )
            self._shop.held.add([delivery])
            self._settle(delivery, Outcome("interrupted"), Release(started=False))

    def cancel(self, task_id: str) -> None:
        """Somebody asked for it: a coroutine is cancelled, a process killed; a thread runs to its end, but not again."""
        for run in tuple(self.running.values()):
            if run.delivery.task_id == task_id:
                self._shop.events.emit(TaskEvent("cancel asked", run.delivery))
                run.cancel()

    def release_unstarted(self) -> None:
        """Gives back what waits for a thread or a process; no counter of it moves."""
        for job in (*self.threads.withdraw(), *self.processes.withdraw()):
            if isinstance(job, (ThreadRun, ProcessRun)):
                self.running.pop(job.delivery, None)
                self._settle(job.delivery, Outcome("interrupted"), Release(started=False))

    def interrupt(self) -> None:
        """Cancels what runs, failure handlers too; it is given back, and a thread that goes on is not waited for."""
        for run in tuple(self.running.values()):
            run.stop(Outcome("interrupted"))
        for telling in self._telling:
            telling.cancel()

    def warm_up(self) -> None:
        """Makes a process ready where there will be need for one. Raises ``InvalidOption`` where it could not work."""
        tasks = self._shop.tasks.values()
        if any(each.options.run_in == "process" and each.options.queue in self._queues for each in tasks):
            self.processes.warm_up()

    def close(self) -> None:
        """Ends threads and processes, each once its run has ended."""
        self.threads.close()
        self.processes.close()

    def give_up(self) -> None:
        """Gives back what does not end although it was cancelled."""
        for run in tuple(self.running.values()):
            run.give_up()
