"""One system runs the course once: every measure that it has a part in, in the same order as all others."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.kinds import COROUTINES, IN_THREADS, SLEEP_S
from bench.marks import Marks
from bench.processes import Broken, Place, Role
from bench.server import Server
from bench.systems import OWN, ROOT, System
from bench.track import FEWEST, Track

_SETTLE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long each measure takes."""

    dispatch_s: float
    drain_s: float
    latency_count: int
    latency_s: float
    imports: int
    leaves_out: tuple[str, ...] = ()
    """Measures that would take too long."""


FULL = Plan(dispatch_s=0.8, drain_s=1.2, latency_count=120, latency_s=2.5, imports=2)
QUICK = Plan(
    dispatch_s=0.25,
    drain_s=0.35,
    latency_count=30,
    latency_s=0.7,
    imports=1,
    leaves_out=("promote", "delayed_bytes", "drain2"),
)


@dataclass(slots=True)
class Outcome:
    """What one round of one system gave."""

    figures: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)


class Course:
    """One system on its way through one round."""

    def __init__(
        self, place: Place, server: Server, marks: Marks, system: System, plan: Plan, known: dict[str, float]
    ) -> None:
        self.outcome = Outcome(reasons={**system.lacks, **dict.fromkeys(plan.leaves_out, "only in `make bench`")})
        self._track = Track(place, server, marks, system, patience_s=6 * plan.drain_s + 4)
        self._system = system
        self._plan = plan
        self._known = known
        """Rates of an earlier round: how many tasks fill the time of a measure."""

    def run(self) -> Outcome:
        """All measures; what broke has its reason."""
        self._track.forget()
        self._track.server.empty()
        self._try(self._import_time, "import_ms")
        try:
            with self._track.start_producer():
                self._dispatch()
                self._drain_coroutines()
                if self._system.splits:
                    self._drain_threads()
                elif self._system.runs_in == "thread" and "drain" in self.outcome.figures:
                    self.outcome.figures["threads"] = self.outcome.figures["drain"]
        except Broken as error:
            self.outcome.reasons["all"] = str(error)
        if self._system.runs_in in {"process", "main"}:
            self.outcome.reasons.setdefault("threads", "no threads of its own")
        self.outcome.notes |= self._track.notes
        return self.outcome

    def _try(self, measure: Callable[[], None], *keys: str) -> None:
        if all(key in self.outcome.reasons for key in keys):
            return
        try:
            measure()
        except Broken as error:
            self.outcome.reasons.update(dict.fromkeys(keys, str(error)))

    # --- the way out

    def _import_time(self) -> None:
        code = f"import time; began = time.perf_counter(); {self._system.imports}; print(time.perf_counter() - began)"
        python = self._track.place.python(self._system)
        if not python.exists():
            raise Broken("not installed: make bench installs it")
        environment = {"PYTHONPATH": str(ROOT / "src")} if self._system.environment == OWN else {}
        took = []
        for _ in range(self._plan.imports):
            ran = subprocess.run(
                [python, "-c", code], capture_output=True, text=True, timeout=30, check=False, env=environment
            )
            if ran.returncode:
                raise Broken(ran.stderr.strip().splitlines()[-1][:200])
            took.append(float(ran.stdout))
        self.outcome.figures["import_ms"] = 1000 * min(took)

    def _dispatch(self) -> None:
        for key in self._ways():
            self._try(lambda key=key: self._rate(key), key)  # type: ignore[misc]
            self._track.server.empty()
        self._try(self._bulk, "bulk", "queued_bytes", "dispatch_cpu", "dispatch_server")
        self._track.server.empty()

    def _ways(self) -> tuple[str, ...]:
        if self._system.runs_in != "coroutine":
            return "one_sync", "fifty"
        return ("one", "one_sync", "fifty") if self._system.blocks_too else ("one", "fifty")

    def _rate(self, key: str) -> None:
        seconds = self._plan.dispatch_s
        told = self._track.producer.ask(key, seconds=seconds, start=0, timeout_s=seconds + 20)
        self.outcome.figures[key] = told["sent"] / told["seconds"]

    def _bulk(self) -> None:
        cpu_us, memory = self._track.server.cpu_us(), self._track.server.memory()
        seconds = self._plan.dispatch_s
        told = self._track.producer.ask(
            "bulk", task="noop", start=0, count=200_000, seconds=seconds, timeout_s=seconds + 20
        )
        sent = told["sent"]
        self.outcome.figures |= {
            "bulk": sent / told["seconds"],
            "dispatch_cpu": 1e6 * told["cpu_s"] / sent,
            "dispatch_server": (self._track.server.cpu_us() - cpu_us) / sent,
            "queued_bytes": (self._track.server.memory() - memory) / sent,
        }

    # --- the way in

    def _drain_coroutines(self) -> None:
        with ExitStack() as ending:
            worker = ending.enter_context(self._track.start_worker(COROUTINES))
            self._track.ready([worker])
            time.sleep(_SETTLE_S)
            self.outcome.figures["idle_rss"] = worker.memory_mib("Rss")
            self.outcome.figures["idle_pss"] = worker.memory_mib("Pss")
            self._try(self._latency, "latency_p50", "latency_p99")
            self._try(lambda: self._drain_noop(worker), "drain", "drain_cpu", "drain_server")
            self._try(lambda: self._sleep(worker), "sleep", "sleep_ideal")
            self._try(lambda: self._retry(worker), "retry")
            self._try(lambda: self._promote(worker), "promote", "delayed_bytes")
            self._try(lambda: self._drain_two(worker, ending), "drain2")
        self._track.server.empty()

    def _drain_threads(self) -> None:
        def measure() -> None:
            with self._track.start_worker(IN_THREADS) as worker:
                self._track.ready([worker], "plain")
                self._track.warm_up([worker], "plain")
                count = self._enough("threads", self._pace / 2)
                self.outcome.figures["threads"] = self._track.drained([worker], "plain", count)["drain"]

        self._try(measure, "threads")
        self._track.server.empty()

    @property
    def _pace(self) -> float:
        return self.outcome.figures.get("drain", self._known.get("drain", self._system.pace))

    def _enough(self, key: str, guess: float) -> int:
        return max(FEWEST, round(self._known.get(key, guess) * self._plan.drain_s))

    def _latency(self) -> None:
        numbers = self._track.numbers(self._plan.latency_count)
        told = self._track.producer.ask(
            "latency", start=numbers.start, count=len(numbers), seconds=self._plan.latency_s, timeout_s=30
        )
        waits_ms = sorted(told["waits_ms"])
        self.outcome.figures["latency_p50"] = waits_ms[len(waits_ms) // 2]
        self.outcome.figures["latency_p99"] = waits_ms[math.ceil(0.99 * len(waits_ms)) - 1]

    def _drain_noop(self, worker: Role) -> None:
        self._track.warm_up([worker])
        count = self._enough("drain", self._system.pace)
        self.outcome.figures |= self._track.drained([worker], "noop", count)

    def _drain_two(self, first: Role, ending: ExitStack) -> None:
        old = first.members()
        second = ending.enter_context(self._track.start_worker(COROUTINES))
        self._track.until_another_works(old)
        self._track.warm_up([first, second])
        count = self._enough("drain2", 1.5 * self._pace)
        self.outcome.figures["drain2"] = self._track.drained([first, second], "noop", count)["drain"]

    def _sleep(self, worker: Role) -> None:
        ideal = self._system.at_once / SLEEP_S
        count = self._enough("sleep", min(0.8 * self._pace, ideal))
        rate = self._track.drained([worker], "sleep", count)["drain"]
        self.outcome.figures["sleep"] = rate
        self.outcome.figures["sleep_ideal"] = 100 * rate / ideal

    def _retry(self, worker: Role) -> None:
        count = self._enough("retry", 0.3 * self._pace)
        self.outcome.figures["retry"] = self._track.drained([worker], "flaky", count, runs=2)["drain"]

    def _promote(self, worker: Role) -> None:
        memory = self._track.server.memory()
        count = self._enough("promote", 0.6 * self._pace)
        figures = self.outcome.figures

        def all_due(sent: int) -> None:
            figures["delayed_bytes"] = (self._track.server.memory() - memory) / sent
            # whole seconds is what some systems know, rounded up
            time.sleep(2.1)

        drained = self._track.drained([worker], "noop", count, delay_s=1.0, before=all_due)
        figures["promote"] = drained["drain"]
