"""The proof finds what is planted: each way in which a promise can be broken, and nothing in a run that was good."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.diary import ALL, Happened
from chaos.excuses import covered
from chaos.figures import count
from chaos.ledger import Ledger
from chaos.plan import Plan
from chaos.proof import broken_promises

PLAN = Plan(seed=1, tasks=1, faults=0, seconds=10, lease_s=2)
S = 1_000_000


class Told:
    """Journals as they could have been written, in seconds from the beginning."""

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger(folder / "ledger.sqlite")
        self.process("worker-0")
        self.process("worker-1")

    def process(self, slot: str) -> None:
        self.ledger.put("process", [(f"{slot}.1", slot, 0)])

    def sent(
        self, task_id: str, at: float, *, task: str = "plain", answer: str = "yes", delay: float = 0, key: str = ""
    ) -> None:
        self.ledger.put("sent", [(task_id, 1, task, "alpha", 0, delay * S, key, at * S)])
        if answer:
            self.ledger.put("answer", [(task_id, answer, "", at * S)])

    def ran(
        self,
        task_id: str,
        at: float,
        *,
        to: float | None = None,
        how: str = "good",
        fence: int = 1,
        failures: int = 0,
        slot: str = "worker-0",
        task: str = "plain",
        fire: float = 0,
        nominal: float = 0,
    ) -> None:
        times = fence, failures, 0, fire * 1000, nominal * 1000
        self.ledger.put("start", [(task_id, 1, task, "alpha", *times, at * S, f"{slot}.1")])
        if how:
            self.ledger.put("finish", [(task_id, fence, how, (at + 0.1 if to is None else to) * S, f"{slot}.1")])

    def settled(self, task_id: str, at: float, what: str = "Complete", slot: str = "worker-0", fence: int = 1) -> None:
        self.ledger.put("settlement", [(task_id, fence, what, at * S, f"{slot}.1")])

    def fault(self, kind: str, struck: str, at: float, to: float) -> None:
        self.ledger.take_happened([Happened(kind=kind, struck=struck, began_us=round(at * S), ended_us=round(to * S))])

    @property
    def broken(self) -> list[str]:
        self.ledger.close_the_books()
        return [each.promise for each in broken_promises(self.ledger, PLAN)]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_a_good_run_breaks_no_promise(told: Told) -> None:
    told.sent("a", 1)
    told.ran("a", 1)
    told.settled("a", 1.2)
    told.sent("b", 1, task="doomed")
    told.ran("b", 1, how="failed", task="doomed")
    told.ran("b", 2, how="failed", task="doomed", fence=2, failures=1)
    told.ledger.put("dead", [("b", "exhausted", 2)])
    told.ledger.put("told", [("b", "exhausted", 2)])
    told.sent("never answered", 1, answer="")
    told.sent("maybe", 1, answer="maybe")
    told.ran("maybe", 1.5)
    assert told.broken == []
    figures = count(told.ledger, PLAN, 0)
    assert (figures.dispatched, figures.maybe, figures.maybe_run, figures.done) == (2, 2, 1, 2)


def _lost(told: Told) -> None:
    told.sent("a", 1)


def _never_ended(told: Told) -> None:
    told.sent("a", 1)
    told.ran("a", 1, how="")


def _early(told: Told) -> None:
    told.sent("a", 1, delay=0.5)
    told.ran("a", 1.999, fire=2)


def _early_by_the_producer(told: Told) -> None:
    told.sent("a", 1, delay=1)
    told.ran("a", 1.999)


def _early_slot(told: Told) -> None:
    told.ran("a", 1.999, task="tick", nominal=2)


def _slot_twice(told: Told) -> None:
    told.ran("a", 2, task="tick", nominal=2)
    told.ran("b", 2, task="tick", nominal=2)


def _one_fence_twice(told: Told) -> None:
    told.sent("a", 1)
    told.ran("a", 1)
    told.ran("a", 1.1, slot="worker-1")


def _refused_and_run(told: Told) -> None:
    told.sent("a", 1, answer="no")
    told.ran("a", 1)


def _from_nowhere(told: Told) -> None:
    told.ran("a", 1)


def _another_task(told: Told) -> None:
    told.sent("a", 1, task="kept")
    told.ledger.put("history", [("a",)])
    told.ran("a", 1)


def _started_though_cancelled(told: Told) -> None:
    told.sent("a", 1)
    told.ledger.put("cancel_answer", [("a", "CANCELLED", 2 * S)])
    told.ran("a", 2.1)


def _dead_without_cause(told: Told) -> None:
    told.sent("a", 1)
    told.ledger.put("dead", [("a", "record lost", 0)])
    told.ledger.put("told", [("a", "record lost", 1)])


def _dead_in_silence(told: Told) -> None:
    told.sent("a", 1, task="doomed")
    told.ledger.put("dead", [("a", "exhausted", 2)])


def _miscounted(told: Told) -> None:
    told.sent("a", 1, task="doomed")
    told.ledger.put("dead", [("a", "exhausted", 3)])
    told.ledger.put("told", [("a", "exhausted", 1)])


def _completed_twice(told: Told) -> None:
    told.sent("a", 1, task="kept")
    told.ran("a", 1, task="kept")
    told.ledger.put("history", [("a",), ("a",)])


def _kept_and_gone(told: Told) -> None:
    told.sent("a", 1, task="kept")
    told.ran("a", 1, task="kept")


def _key_shared(told: Told) -> None:
    told.sent("a", 1, task="unique", key="k")
    told.sent("b", 1.5, task="unique", key="k")
    told.ran("a", 1, to=2, task="unique")
    told.ran("b", 1.9, task="unique")


def _again_for_nothing(told: Told) -> None:
    told.sent("a", 1)
    told.ran("a", 1)
    told.ran("a", 2, fence=2, slot="worker-1")


def _again_and_only_another_was_killed(told: Told) -> None:
    _again_for_nothing(told)
    told.fault("worker killed", "worker-1", 1.5, 1.5)


def _again_long_before_the_kill(told: Told) -> None:
    told.sent("a", 1)
    told.ran("a", 1)
    told.ran("a", 9, fence=2, slot="worker-1")
    told.fault("worker killed", "worker-0", 6, 6)


def _again_after_a_short_silence(told: Told) -> None:
    _again_for_nothing(told)
    told.fault("worker frozen", "worker-0", 1.2, 1.3)


def _again_though_it_had_ended_before_the_stop(told: Told) -> None:
    _again_for_nothing(told)
    told.fault("worker asked to stop", "worker-0", 1.2, 1.9)


def _settled_twice(told: Told) -> None:
    _again_for_nothing(told)
    told.settled("a", 1.2)
    told.settled("a", 2.2, slot="worker-1", fence=2)


PLANTED: dict[Callable[[Told], None], str] = {
    _lost: "lost: accepted",
    _never_ended: "lost: accepted",
    _early: "early: started before its fire-time",
    _early_by_the_producer: "early: started before its delay was over",
    _early_slot: "early: a run of the schedule",
    _slot_twice: "a slot of the schedule given to two tasks",
    _one_fence_twice: "one delivery, by its fence, run twice",
    _refused_and_run: "run, though the dispatch had been refused",
    _from_nowhere: "run, and nobody had dispatched it",
    _another_task: "run as another task",
    _started_though_cancelled: "started after it had been cancelled",
    _dead_without_cause: "dead, though it need not have failed",
    _dead_in_silence: "dead, and the failure handler was not told",
    _miscounted: "dead with another count of failures",
    _completed_twice: "completed more than once",
    _kept_and_gone: "done and kept, and not in the server's history",
    _key_shared: "two that hold one unique key ran at once",
    _again_for_nothing: "run again, and no fault explains it",
    _again_and_only_another_was_killed: "run again, and no fault explains it",
    _again_long_before_the_kill: "run again, and no fault explains it",
    _again_after_a_short_silence: "run again, and no fault explains it",
    _again_though_it_had_ended_before_the_stop: "run again, and no fault explains it",
    _settled_twice: "settled twice, and no fault explains it",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_what_is_planted_is_found(told: Told, plant: Callable[[Told], None]) -> None:
    plant(told)
    assert any(promise.startswith(PLANTED[plant]) for promise in told.broken)


@pytest.mark.parametrize(
    ("kind", "struck", "at", "to"),
    [
        ("worker killed", "worker-0", 1.5, 1.5),
        ("worker asked to stop", "worker-0", 1.05, 1.9),
        ("worker frozen", "worker-0", 1.05, 1.95),
        ("server frozen", ALL, 1.05, 1.95),
    ],
)
def test_a_fault_that_struck_who_ran_it_first_explains_a_second_run(
    told: Told, kind: str, struck: str, at: float, to: float
) -> None:
    _again_for_nothing(told)
    told.fault(kind, struck, at, to)
    assert told.broken == []
    assert count(told.ledger, PLAN, 0).duplicates == 1


@pytest.mark.parametrize("frozen", [True, False])
def test_a_run_that_begins_after_its_successor_is_explained_by_what_held_it_up(told: Told, *, frozen: bool) -> None:
    """Given to a worker that is frozen before it starts the task: another worker starts it first."""
    told.sent("a", 1)
    told.ran("a", 6.2, fence=1)
    told.ran("a", 4.0, fence=2, slot="worker-1")
    if frozen:
        told.fault("worker frozen", "worker-0", 1.3, 6.1)
    unexplained = any(promise.startswith("run again, and no fault explains it") for promise in told.broken)
    assert unexplained is not frozen


@pytest.mark.parametrize(
    ("intervals", "sum_us"),
    [([], 0), ([(0, 5)], 4), ([(2, 4), (3, 6)], 4), ([(8, 20), (2, 3)], 3), ([(2, 9), (3, 4)], 7)],
)
def test_silences_that_overlap_count_once(intervals: list[tuple[int, int]], sum_us: int) -> None:
    assert covered(intervals, 1, 10) == sum_us
