"""Tasks in processes of their own: what they do to their process is done to nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from firetime import InvalidOption, Status, TaskCrashed, TaskExecutionError, TaskRunner
from tests.embedded.users import alive
from tests.kit.waiting import until

if TYPE_CHECKING:
    from firetime import Handle
    from tests.conftest import StartWorker
    from tests.faults.crew import Crew
    from tests.kit.processes import WorkerProcess
    from tests.story.stage import LookAt, NewRunner

LEASE_S = 1.0
SHORT: dict[str, Any] = {"lease": LEASE_S, "sweep": 0.2}


class StartComputing(Protocol):
    def __call__(self, **settings: Any) -> WorkerProcess: ...


@pytest.fixture
def start(crew: Crew) -> StartComputing:
    return crew.start_computing


async def until_status(handle: Handle[Any], *statuses: Status) -> None:
    async def it_is() -> bool:
        return await handle.status() in statuses

    await until(it_is, timeout=30, what=f"{handle.task_id} to be {statuses}")


@pytest.mark.usefixtures("server")
async def test_it_runs_in_a_child_of_the_worker_and_its_result_comes_back(
    start: StartComputing, runner: TaskRunner, look_at: LookAt
) -> None:
    worker = start()
    handles = [await runner.named("note", result_ttl=60).dispatch(f"Zoë {number}") for number in range(10)]
    told = [await handle.result(timeout=30) for handle in handles]
    pids = {int(each.split()[2]) for each in told}
    assert worker.pid not in pids
    assert 1 <= len(pids) <= 2
    assert {(each.split()[1], int(each.split()[3])) for each in told} == {(str(n), worker.pid) for n in range(10)}
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 30) == 0
    await until(lambda: not any(map(alive, pids)), what="the children to end with their worker")
    assert (await look_at()).pending == {}


@pytest.mark.parametrize(
    ("how", "result"),
    [("late", "attempt 2"), ("retry", "attempt 2"), ("exit", "attempt 2"), ("value", "attempt 2")],
)
async def test_what_it_raises_is_judged_by_its_own_rules(
    start: StartComputing, runner: TaskRunner, crew: Crew, how: str, result: str
) -> None:
    start()
    handle = await runner.named("fail", result_ttl=60).dispatch("a", how)
    assert await handle.result(timeout=30) == result
    assert [line.failures for line in crew.lines("started")] == [0, 1]


@pytest.mark.parametrize(
    ("how", "reason", "kind"), [("refused", "failed", "__main__.Refused"), ("reject", "rejected", "Reject")]
)
async def test_what_is_not_retried_is_a_dead_letter_with_the_words_of_the_error(
    start: StartComputing, runner: TaskRunner, how: str, reason: str, kind: str
) -> None:
    start()
    handle = await runner.named("fail").dispatch("a", how)
    await until_status(handle, Status.DEAD)
    letter = await runner.dead().show(handle.task_id)
    assert letter.reason.startswith(reason)
    (error,) = letter.errors
    assert error.type.endswith(kind)
    assert f"{how[:6]}" in error.text
    assert 'computing.py", line' in error.traceback
    if how == "refused":
        with pytest.raises(TaskExecutionError, match="Refused: refused a"):
            await handle.result(timeout=10)


@pytest.mark.parametrize(
    ("how", "said"), [("exit", "ended with exit code 7"), ("memory", "SIGKILL"), ("fault", "SIGSEGV")]
)
async def test_a_child_that_dies_is_a_crash_of_its_task_alone(
    start: StartComputing, runner: TaskRunner, crew: Crew, how: str, said: str
) -> None:
    worker = start(max_crashes=1)
    beside = await runner.named("hold", result_ttl=60).dispatch("beside")
    await crew.until("started", "beside")
    poison = await runner.named("die").dispatch("poison", how)
    await until_status(poison, Status.DEAD)
    letter = await runner.dead().show(poison.task_id)
    assert (letter.reason, letter.crashes, letter.failures) == ("crashed", 2, 0)
    assert said in letter.errors[0].text
    with pytest.raises(TaskCrashed):
        await poison.result(timeout=10)
    assert [(line.attempt, line.crashes) for line in crew.lines("started", "poison")] == [(1, 0), (2, 1)]
    crew.let_go("beside")
    await beside.result(timeout=30)
    assert len(crew.lines("started", "beside")) == 1
    assert worker.running


async def test_after_a_crash_it_runs_again_and_may_end_well(
    start: StartComputing, runner: TaskRunner, crew: Crew
) -> None:
    start()
    handle = await runner.named("die", result_ttl=60).dispatch("a", "once")
    assert await handle.result(timeout=30) == "alive"
    assert [(line.crashes, line.failures, line.fence) for line in crew.lines("started")] == [(0, 0, 1), (1, 0, 2)]


async def test_at_its_timeout_its_process_is_killed_with_what_it_has_started(
    start: StartComputing, runner: TaskRunner, crew: Crew
) -> None:
    start(task_processes=1)
    handle = await runner.named("lead").dispatch("a")
    (program,) = await crew.until("started", "a")
    await until_status(handle, Status.DEAD)
    assert (await runner.dead().show(handle.task_id)).errors[0].type == "firetime.values.errors.TaskTimeout"
    await until(lambda: not alive(program.pid), what="the program it had started to be killed")
    assert await (await runner.named("note", result_ttl=60).dispatch("next")).result(timeout=30)


async def test_a_task_that_holds_the_gil_can_be_ended(start: StartComputing, runner: TaskRunner, crew: Crew) -> None:
    start(task_processes=1)
    handle = await runner.named("compute", timeout=0.3, max_retry=0).dispatch("a", 60)
    await until_status(handle, Status.DEAD)
    assert (await runner.dead().show(handle.task_id)).errors[0].type == "firetime.values.errors.TaskTimeout"
    assert crew.lines("ended") == []


async def test_a_cancel_kills_it(start: StartComputing, runner: TaskRunner, crew: Crew) -> None:
    start()
    handle = await runner.dispatch("hold", "a")
    (line,) = await crew.until("started", "a")
    await handle.cancel()
    await until_status(handle, Status.CANCELLED)
    await until(lambda: not alive(line.pid))


async def test_what_does_not_end_in_time_when_the_worker_stops_is_killed_and_given_back(
    start: StartComputing, runner: TaskRunner, crew: Crew
) -> None:
    worker = start(shutdown=0.3, task_processes=1)
    running = await runner.dispatch("hold", "running")
    (line,) = await crew.until("started", "running")
    waiting = await runner.dispatch("hold", "waiting")
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 30) == 0
    await until(lambda: not alive(line.pid))
    for handle in (running, waiting):
        found = await handle.look()
        assert (found.status, found.crashes, found.state.failures) == (Status.READY, 0, 0)
    assert len(crew.lines("started")) == 1


async def test_what_ends_in_time_when_the_worker_stops_is_done(
    start: StartComputing, runner: TaskRunner, crew: Crew
) -> None:
    worker = start()
    handle = await runner.named("hold", result_ttl=60).dispatch("a")
    await crew.until("started", "a")
    worker.terminate()
    # Ctrl-C and a supervisor may signal the whole family
    os.kill(crew.lines("started", "a")[0].pid, signal.SIGTERM)
    os.kill(crew.lines("started", "a")[0].pid, signal.SIGINT)
    await until(lambda: "stopping" in worker.printed or worker.running)
    crew.let_go("a")
    assert await handle.result(timeout=30)
    assert await asyncio.to_thread(worker.wait, 30) == 0


async def test_the_children_of_a_killed_worker_die_with_it_even_where_they_hold_the_gil(
    start: StartComputing, runner: TaskRunner, crew: Crew
) -> None:
    first = start(**SHORT, task_processes=2)
    await runner.dispatch("compute", "computes", 60)
    await runner.dispatch("hold", "holds")
    lines = [*await crew.until("started", "computes"), *await crew.until("started", "holds")]
    first.kill()
    await until(lambda: not any(alive(line.pid) for line in lines), what="the children to die with their worker")


async def test_a_worker_frozen_past_its_lease_kills_what_it_has_lost_when_it_is_thawed(
    start: StartComputing, runner: TaskRunner, crew: Crew
) -> None:
    frozen = start(**SHORT)
    handle = await runner.named("hold", result_ttl=60).dispatch("a")
    (first,) = await crew.until("started", "a")
    start(**SHORT)
    frozen.freeze()  # its child runs on
    again = (await crew.until("started", "a", times=2))[1]
    assert again.fence > first.fence
    frozen.thaw()
    await until(lambda: not alive(first.pid), timeout=20, what="the run that lost its lease to be killed")
    crew.let_go("a")
    assert await handle.result(timeout=30) == str(again.pid)


async def test_a_process_is_replaced_when_it_has_run_as_many_tasks_as_it_may(
    start: StartComputing, runner: TaskRunner
) -> None:
    start(task_processes=1, recycle_processes=2)
    handles = [await runner.named("note", result_ttl=60).dispatch(str(number)) for number in range(6)]
    pids = [(await handle.result(timeout=60)).split()[1] for handle in handles]
    assert len(set(pids)) == 3
    assert all(pids.count(pid) == 2 for pid in pids)


# ------------------------------------------------------------------------------------------------ where it cannot work


async def test_a_runner_that_no_import_finds_is_refused_at_the_start(new_runner: NewRunner) -> None:
    runner = new_runner()

    @runner.task(run_in="process")
    def compute() -> None: ...

    with pytest.raises(InvalidOption, match=r"task 'compute', run_in='process': expected a runner that is a variable"):
        await runner.start()
    assert runner.worker is None


async def test_a_coroutine_cannot_run_in_a_process(runner: TaskRunner) -> None:
    with pytest.raises(InvalidOption, match="a def function"):

        @runner.task(run_in="process")
        async def wait() -> None: ...

    with pytest.raises(InvalidOption, match="one of 'thread', 'process'"):
        runner.task(run_in="fork")(len)  # type: ignore[call-overload]


async def test_a_program_that_starts_itself_when_imported_is_told_where_that_belongs(
    start_worker: StartWorker, url: str, prefix: str
) -> None:
    unguarded = """
        import asyncio, sys
        from firetime import TaskRunner

        runner = TaskRunner(sys.argv[1], prefix=sys.argv[2])

        @runner.task(run_in="process")
        def compute() -> None: ...

        asyncio.run(runner.run())
    """
    worker = start_worker(unguarded, url, prefix)
    assert await asyncio.to_thread(worker.wait, 60) == 1
    assert 'must stand under if __name__ == "__main__":' in worker.printed.splitlines()[-1]
