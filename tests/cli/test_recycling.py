"""A worker makes room for a new process: after so many tasks, or when too many of its threads are lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from firetime import RestartNeeded, TaskRunner
from firetime.testing import drain
from tests.cli.shell import Shell, process_ids, send, soon, told
from tests.embedded.users import alive
from tests.kit.asking import ask
from tests.kit.ports import free_port
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.kit.servers import ServerProcess

RESTART = 75


async def test_after_so_many_tasks_it_stops_with_an_exit_code_of_its_own_and_takes_none_too_many(
    shell: Shell, runner: TaskRunner
) -> None:
    for number in range(8):
        await send(runner, shell.queue, "greet", str(number))
    worker = shell.start("worker", "app", "--max-tasks", "5")
    assert worker.wait(60) == RESTART
    assert "it has taken 5 tasks" in worker.printed
    assert len(shell.journal()) == 5
    stats = await runner.stats(shell.queue)
    assert (stats.ready, stats.running, stats.workers) == (3, 0, 0)


async def test_processes_that_are_recycled_are_replaced_at_once_and_lose_and_double_nothing(
    shell: Shell, runner: TaskRunner
) -> None:
    task = runner.named("greet", queue=shell.queue)
    await runner.dispatch_many(task.message(str(number)) for number in range(30))
    parent = shell.start("worker", "app", "--processes", "2", "--max-tasks", "5", "--log-level", "info")
    await soon(lambda: len(shell.journal()) >= 30 and len(process_ids(parent)) >= 8)

    async def nothing_left() -> bool:
        stats = await runner.stats(shell.queue)
        return stats.ready + stats.running + stats.delayed + stats.dead == 0

    await soon(nothing_left)
    parent.terminate()
    assert parent.wait(60) == 0
    assert Counter(shell.journal()) == {f"greet {number}": 1 for number in range(30)}
    assert "another starts in" not in parent.printed, "recycling is no crash: nobody pauses for it"
    assert (await runner.stats(shell.queue)).workers == 0


async def test_one_process_may_have_a_supervisor_too(shell: Shell, runner: TaskRunner) -> None:
    for number in range(3):
        await send(runner, shell.queue, "greet", str(number))
    parent = shell.start("worker", "app", "--processes", "1", "--max-tasks", "1", "--log-level", "info")
    await soon(lambda: len(shell.journal()) == 3 and len(process_ids(parent)) == 4)
    parent.terminate()
    assert parent.wait(60) == 0
    assert not any(map(alive, process_ids(parent)))


async def test_a_worker_that_has_lost_too_many_threads_stops_for_a_new_process(
    shell: Shell, runner: TaskRunner
) -> None:
    for name in "abc":
        await send(runner, shell.queue, "hold_thread", name, timeout=0.2, max_retry=0)
    worker = shell.start("worker", "app", "--threads", "1", env={"FIRETIME_MAX_LEAKED_THREADS": "2"})
    assert worker.wait(60) == RESTART
    assert sorted(shell.journal()) == ["begin a", "begin b", "begin c"]
    assert "3 threads are lost to tasks that ignored their timeout" in worker.printed
    assert (await runner.stats(shell.queue)).dead == 3


async def test_a_program_of_its_own_is_told_so(valkey: ServerProcess, queue_name: str) -> None:
    runner = TaskRunner(valkey.url, queues=(queue_name,), max_tasks=2)

    @runner.task(queue=queue_name)
    async def work() -> None: ...

    for _ in range(3):
        await work.dispatch()
    with pytest.raises(RestartNeeded, match="it has taken 2 tasks"):
        await runner.run()
    assert (await runner.stats(queue_name)).ready == 1
    async with runner:
        worker = runner.worker
        assert worker is not None
        await worker.until_idle()
        assert worker.spent == ""
        await work.dispatch()
        await until(lambda: worker.spent)
        assert not worker.healthy
        assert "process" in worker.wellbeing.ailing


async def test_draining_more_than_max_tasks_says_so_instead_of_waiting(valkey: ServerProcess, queue_name: str) -> None:
    runner = TaskRunner(valkey.url, queues=(queue_name,), max_tasks=2)

    @runner.task(queue=queue_name)
    async def work() -> None: ...

    for _ in range(3):
        await work.dispatch()
    with pytest.raises(RestartNeeded, match="max_tasks"):
        await drain(runner)
    await drain(runner)
    assert (await runner.stats(queue_name)).ready == 0
    await runner.aclose()


async def test_workers_of_one_command_serve_their_health_side_by_side(shell: Shell) -> None:
    port = free_port()
    parent = shell.start("worker", "app", "--processes", "2", "--health", str(port))
    await soon(lambda: told(parent, "ready") == 2)
    told_by = [await ask(at, "/readyz") for at in (port, port + 1)]
    assert [status for status, _ in told_by] == [200, 200]
    assert len({document["worker"] for _, document in told_by}) == 2
    parent.terminate()
    assert await asyncio.to_thread(parent.wait, 60) == 0
