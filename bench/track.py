"""Where the tasks of one system run: numbered, sent, drained and counted, by workers that start when the clock does."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from bench.kinds import COROUTINES
from bench.marks import CAPACITY, PIDS, Marks
from bench.processes import Broken, Place, Role
from bench.server import Server
from bench.systems import System

FEWEST = 100
"""Tasks in a measure."""
_POLL_S = 0.002
_READY_S = 15.0
_FEED_S = 1.5
"""The most that sending takes before a drain; it then drains what was sent."""
_FILL_S = 120.0
_LATE_S = 5.0
_MOST_OF_THEM = 0.9
"""A system that leaves more than a tenth undone has no figure."""
_MOST_TIMED = 10_000
_WARM = 0.1
"""The first tenth of a drain is not counted: connections are made and caches filled."""


class Track:
    """One system's numbers, its producer and its workers, in one round."""

    def __init__(self, place: Place, server: Server, marks: Marks, system: System, *, patience_s: float = 12.0) -> None:
        self.place = place
        self.server = server
        self.marks = marks
        self.system = system
        self.producer: Role
        self.notes: set[str] = set()
        self._patience_s = patience_s
        self._next = 0

    def start_producer(self) -> Role:
        """The process that sends."""
        self.producer = Role(self.place, self.system, "producer")
        return self.producer

    def start_worker(self, tasks: tuple[str, ...]) -> Role:
        """A process that works."""
        return Role(self.place, self.system, "worker", tasks)

    def numbers(self, count: int) -> range:
        if self._next + count > CAPACITY:
            raise Broken("no numbers left")
        self._next += count
        return range(self._next - count, self._next)

    def forget(self) -> None:
        self._next = 0
        self.marks.counts[:] = bytes(CAPACITY)
        self.marks.times_ns[:] = memoryview(bytes(len(self.marks.times_ns) * 8)).cast("Q")

    def ready(self, workers: list[Role], task: str = "noop") -> None:
        """Sends one task after another until one has run, and waits for all of them."""
        give_up, first = time.monotonic() + _READY_S, self._next
        while not self.marks.done(range(first, self._next)):
            if time.monotonic() > give_up or not all(worker.running for worker in workers):
                raise Broken(f"its worker ran nothing within {_READY_S:.0f} s")
            number = self.numbers(1)
            self.producer.ask("bulk", task=task, start=number.start, count=1, seconds=5, timeout_s=10)
            self.wait_for(number, 0.5)

    def warm_up(self, workers: list[Role], task: str = "noop") -> None:
        self.drained(workers, task, FEWEST)

    def wait_for(self, numbers: range, within_s: float, runs: int = 1) -> bool:
        give_up = time.monotonic() + within_s
        while self.marks.done(numbers, runs) < len(numbers):
            if time.monotonic() > give_up:
                return False
            time.sleep(_POLL_S)
        return True

    def until_another_works(self, old: list[int]) -> None:
        give_up = time.monotonic() + _READY_S
        while time.monotonic() < give_up:
            numbers = self.numbers(50)
            self.producer.ask("bulk", task="stamp", start=numbers.start, count=50, seconds=5, timeout_s=10)
            if not self.wait_for(numbers, 5.0):
                raise Broken("50 tasks had not run after 5 s")
            if any(self.marks.times_ns[PIDS + number] not in old for number in numbers):
                return
        raise Broken(f"its second worker ran nothing within {_READY_S:.0f} s")

    def drained(
        self,
        workers: list[Role],
        task: str,
        count: int,
        *,
        runs: int = 1,
        delay_s: float = 0.0,
        before: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        """Tasks a second, and what one costs: sent while the workers are frozen, so that nothing runs before the clock starts."""
        for worker in workers:
            worker.freeze()
        numbers = self.numbers(count)
        told = self.producer.ask(
            "bulk", task=task, start=numbers.start, count=count, seconds=_FEED_S, timeout_s=20, delay_s=delay_s
        )
        numbers = numbers[: told["sent"]]
        if before is not None:
            before(len(numbers))
        return self._thawed(workers, numbers, runs)

    def _thawed(self, workers: list[Role], numbers: range, runs: int = 1) -> dict[str, float]:
        server_us, worker_us = self.server.cpu_us(), sum(worker.cpu_us() for worker in workers)
        for worker in workers:
            worker.thaw()
        rate = self._watch(numbers, runs)
        if not all(worker.running for worker in workers):
            raise Broken("its worker ended")
        worker_us = sum(worker.cpu_us() for worker in workers) - worker_us
        ran = self.marks.done(range(numbers.start, self._next), runs)
        server_us = self.server.cpu_us() - server_us
        return {"drain": rate, "drain_cpu": worker_us / ran, "drain_server": server_us / ran}

    def _watch(self, numbers: range, runs: int) -> float:
        total, give_up = len(numbers), time.monotonic() + self._patience_s
        began, before, done = time.monotonic(), 0.0, 0.0
        warm = False
        while done < total:
            time.sleep(_POLL_S)
            done = self.marks.progress(numbers, runs)
            now = time.monotonic()
            if not warm and _WARM * total <= done < total:
                warm, began, before = True, now, done
            if now > give_up:
                break
        took_s = time.monotonic() - began
        if done < total and not self.wait_for(numbers, _LATE_S, runs):
            self._say_what_is_left(numbers, runs, took_s + _LATE_S)
        again = sum(each > runs for each in self.marks.counts[numbers.start : numbers.stop])
        if again:
            self.notes.add(f"{again} tasks ran once too often")
        return (done - before) / took_s

    def _say_what_is_left(self, numbers: range, runs: int, after_s: float) -> None:
        done = self.marks.done(numbers, runs)
        said = f"{len(numbers) - done} of {len(numbers)} tasks had not run after {after_s:.0f} s"
        if done < _MOST_OF_THEM * len(numbers):
            raise Broken(said)
        self.notes.add(said)

    def filled_and_drained(self, waiting: int, drained: int, workers: int, chunk: int) -> dict[str, float]:
        """Sends so many, the last of them timed, then drains the first of them with so many workers."""
        self.forget()
        with ExitStack() as ending:
            ending.enter_context(self.start_producer())
            team = [ending.enter_context(self.start_worker(COROUTINES))]
            self.ready(team)
            while len(team) < workers:
                old = [pid for each in team for pid in each.members()]
                team.append(ending.enter_context(self.start_worker(COROUTINES)))
                self.until_another_works(old)
            self.warm_up(team)
            for worker in team:
                worker.freeze()
            memory, numbers = self.server.memory(), self.numbers(waiting)
            timed = min(waiting, _MOST_TIMED)
            self._send(numbers[:-timed], chunk)
            figures = self._send(numbers[-timed:], chunk)
            figures["bytes"] = (self.server.memory() - memory) / waiting
            return figures | self._thawed(team, numbers[:drained])

    def _send(self, numbers: range, chunk: int) -> dict[str, float]:
        if not numbers:
            return {}
        cpu_us = self.server.cpu_us()
        told = self.producer.ask(
            "bulk",
            task="noop",
            start=numbers.start,
            count=len(numbers),
            chunk=chunk,
            seconds=_FILL_S,
            timeout_s=_FILL_S + 20,
        )
        if told["sent"] < len(numbers):
            raise Broken(f"only {told['sent']} of {len(numbers)} sent in {_FILL_S:.0f} s")
        return {
            "bulk": told["sent"] / told["seconds"],
            "dispatch_cpu": 1e6 * told["cpu_s"] / told["sent"],
            "dispatch_server": (self.server.cpu_us() - cpu_us) / told["sent"],
        }
