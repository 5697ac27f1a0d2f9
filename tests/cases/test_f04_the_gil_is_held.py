"""A task computes in one call of C for four leases and lets nothing else of its interpreter run meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.kit.waiting import until

if TYPE_CHECKING:
    from firetime import TaskRunner
    from tests.faults.crew import Crew
    from tests.story.stage import LookAt

LEASE_S = 1.0
SHORT: dict[str, Any] = {"lease": LEASE_S, "sweep": 0.2}


async def test_f04_in_a_process_it_runs_once(crew: Crew, runner: TaskRunner) -> None:
    crew.start_computing(**SHORT)
    crew.start_computing(**SHORT)
    handle = await runner.named("compute", result_ttl=60).dispatch("a", 4 * LEASE_S)
    assert await handle.result(timeout=60) == 4 * LEASE_S
    (line,) = crew.lines("started")
    assert (line.attempt, line.crashes) == (1, 0)
    assert [each.pid for each in crew.lines("ended")] == [line.pid]
    assert crew.lines("lost") + crew.lines("refused") == []


async def test_f04_in_a_thread_it_may_run_twice_and_one_of_the_two_is_settled(
    crew: Crew, runner: TaskRunner, look_at: LookAt
) -> None:
    for _ in range(2):
        crew.start_computing(**SHORT)
    handle = await runner.named("compute_thread", result_ttl=60).dispatch("a", 4 * LEASE_S)
    pid = await handle.result(timeout=90)
    # each that started it ends it, and learns whether it was its own to settle
    await until(lambda: len(crew.lines("ended")) == len(crew.lines("started")), timeout=90)
    first, *more = crew.lines("started")
    assert pid in {line.pid for line in (first, *more)}
    if more:
        await until(lambda: crew.lines("lost") + crew.lines("refused"))
        assert all(line.fence > first.fence for line in more), "a store can tell the older run from the newer one"
    assert await handle.result() == pid, "whoever comes later changes nothing"
    assert [(task.task, task.runs) for task in (await runner.stats()).tasks] == [("compute_thread", 1)]
    left = await look_at()
    assert (left.tasks, left.pending) == ({}, {})
