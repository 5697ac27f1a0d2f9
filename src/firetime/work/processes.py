"""Runs go to a bounded number of child processes, each led by a thread, and come back to the event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable

import msgspec

from firetime.values.definition import Definition
from firetime.values.errors import (
    FailedElsewhere,
    InvalidOption,
    InvalidTaskPayload,
    TaskCrashed,
    TaskTimeout,
    WrongContext,
)
from firetime.values.log import say
from firetime.values.message import Delivery
from firetime.values.verdict import Outcome
from firetime.work.child import Errand, errand_encoder, report_decoder
from firetime.work.jobs import Jobs
from firetime.work.process import Child, Died
from firetime.work.run import OnOutcome, timeout_of
from firetime.work.whereabouts import Whereabouts

_log = logging.getLogger("firetime.worker")
_NO_ROOM_S = 1.0
"""How long to wait where the machine has no room for one more process."""


class ProcessRun:
    """One run of a ``def`` task in a process."""

    __slots__ = ("_definition", "_lease_s", "_loop", "_on_outcome", "_processes", "_settled", "_timer", "delivery")

    def __init__(
        self,
        delivery: Delivery,
        definition: Definition,
        processes: Processes,
        on_outcome: OnOutcome,
        *,
        lease_s: float,
    ) -> None:
        self.delivery = delivery
        self._definition = definition
        self._lease_s = lease_s
        self._processes = processes
        self._on_outcome = on_outcome
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._settled = False

    def errand(self) -> bytes:
        """What the child is told."""
        return errand_encoder.encode(Errand(self.delivery, self._lease_s))

    def began(self) -> None:
        """In the thread that leads the child: it has been handed over."""
        timeout_s = timeout_of(self.delivery, self._definition)
        if timeout_s is not None:
            self._loop.call_soon_threadsafe(self._arm, timeout_s)

    def ended(self, answer: bytes | Died) -> None:
        """On the event loop: the child has reported, or died."""
        if isinstance(answer, Died):
            self._report(Outcome("vanished", error=TaskCrashed(self.delivery.task, 1, answer.how)))
            return
        try:
            report = report_decoder.decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as spoilt:
            # its own code may write what it likes to any descriptor
            self._report(Outcome("raised", error=InvalidTaskPayload(self.delivery.task, f"its report: {spoilt}")))
            return
        timeout_s = timeout_of(self.delivery, self._definition)
        if timeout_s is not None and report.duration_s > timeout_s:
            # the event loop was blocked when the timer should have struck
            self._report(self._late(timeout_s))
        elif report.error is None:
            self._report(Outcome("returned", report.value, None, report.duration_s))
        else:
            error = FailedElsewhere(self._definition.name, report.error)
            self._report(Outcome("raised", error=error, duration_s=report.duration_s))

    def stop(self, outcome: Outcome) -> None:
        """Kills its process, and another takes its place. Where it has ended just now, that outcome counts."""
        if self._processes.withdraw_one(self) or self._processes.kill(self):
            self._report(outcome)

    def cancel(self) -> None:
        """Somebody asked for it."""
        self.stop(Outcome("cancelled"))

    def give_up(self) -> None:
        """Its end is on its way, and the event loop has not come to hear of it."""
        self._report(Outcome("interrupted"))

    def _arm(self, timeout_s: float) -> None:
        if not self._settled:
            self._timer = self._loop.call_later(timeout_s, self.stop, self._late(timeout_s))

    def _late(self, timeout_s: float) -> Outcome:
        return Outcome("raised", error=TaskTimeout(self._definition.name, timeout_s), duration_s=timeout_s)

    def _report(self, outcome: Outcome) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._settled:
            self._settled = True
            self._on_outcome(self.delivery, outcome)


class Processes(Jobs[ProcessRun, Child]):
    """Child processes, made when first needed, and made anew when one was killed, has died, or has done enough.

    ``find`` tells how a child gets to the tasks, or raises ``InvalidOption``.
    ``on_broken`` is told, once and on the event loop, when the program cannot be imported in a child: no run will start.
    """

    def __init__(
        self,
        size: int,
        find: Callable[[], Whereabouts | None],
        *,
        recycle_after: int,
        on_broken: Callable[[BaseException], None],
    ) -> None:
        super().__init__(size)
        self._find = find
        self._where: Whereabouts | None = None
        self._recycle_after = recycle_after
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._made = 0
        self._broken = self._closed = False

    def submit(self, run: ProcessRun) -> None:
        """Runs it in the next free child. Raises ``InvalidOption`` where a child could not find the tasks."""
        where = self._found()
        self._put(run)
        if self._made < self.size and self.waiting + self.busy > self._made:
            self._grow(where)

    def warm_up(self) -> None:
        """Makes a first child before it is needed, so that what is wrong with it is told at once.

        Raises ``InvalidOption`` like ``submit``.
        """
        self._grow(self._found())

    def _found(self) -> Whereabouts:
        self._where = self._where or self._find()
        if self._where is None:  # whoever asks has a task for it
            raise InvalidOption("run_in", "process", "a task registered with it")
        return self._where

    def kill(self, run: ProcessRun) -> bool:
        """Kills the child that has the run; False when it has just ended."""
        child = self._taken_from(run)
        if child is None:
            return False
        child.kill()
        return True

    def close(self) -> None:
        """Ends the children that are idle, and the others once their run has ended."""
        self._closed = True
        self._dismiss(self._made)

    def _grow(self, where: Whereabouts) -> None:
        self._made += 1
        name = f"firetime-process-{self._made}"
        threading.Thread(target=self._lead, args=(where,), name=name, daemon=True).start()

    def _lead(self, where: Whereabouts) -> None:
        """In a thread: one child after the other. They end with it, for the kernel knows them by who started them."""
        while not self._closed and not self._broken:
            try:
                child = Child(where)
            except OSError as error:
                say(_log, logging.WARNING, "no process for run_in='process', trying again: %s", error)
                time.sleep(_NO_ROOM_S)
                continue
            try:
                child.get_ready()
            except WrongContext as error:
                self._break(error)
                return
            self._employ(child)
            if not child.ended:
                child.dismiss()

    def _employ(self, child: Child) -> None:
        """Until it has done enough, has died, or nothing more comes."""
        rounds = range(self._recycle_after) if self._recycle_after else itertools.count()
        for _ in rounds:
            run = self._line.get()
            if run is None:
                return
            if not self._started(run, child):
                continue
            answer = child.run(run.errand(), run.began)
            if self._taken_from(run) is not None:
                self._tell(run.ended, answer)
            if isinstance(answer, Died):
                return

    def _break(self, error: BaseException) -> None:
        if not self._broken:
            self._broken = True
            self._tell(self._on_broken, error)

    def _tell(self, hear: Callable[..., None], news: object) -> None:
        try:
            self._loop.call_soon_threadsafe(hear, news)
        except RuntimeError:
            # the loop is closed: the worker gave this run up when it stopped
            return
