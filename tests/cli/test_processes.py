"""Several worker processes under one command: replaced when they die, stopped together."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from firetime import Status, TaskRunner
from tests.cli.shell import Shell, process_ids, send, soon, told
from tests.embedded.users import alive

if TYPE_CHECKING:
    from tests.kit.processes import WorkerProcess

SHORT = ("--lease", "1", "--log-level", "info")


async def test_a_killed_process_is_replaced_and_loses_nothing(shell: Shell, runner: TaskRunner) -> None:
    for name in "abc":
        await send(runner, shell.queue, "hold", name)
    parent = shell.start("worker", "app", "--processes", "2", "-c", "2", *SHORT)
    await soon(lambda: {f"begin {name}" for name in "abc"} <= set(shell.journal()))
    victim = shell.process_of("begin a")
    assert victim in process_ids(parent)
    os.kill(victim, signal.SIGKILL)
    await soon(lambda: len(process_ids(parent)) == 3)
    assert "was killed by SIGKILL; another starts in 0.5 s" in parent.printed
    await soon(lambda: shell.process_of("begin a") != victim, what="a to begin again elsewhere")
    shell.let_go()
    await soon(lambda: {f"end {name}" for name in "abc"} <= set(shell.journal()))
    await _settled(runner, shell)
    await _stopped(parent)


async def test_one_signal_stops_them_gently(shell: Shell, runner: TaskRunner) -> None:
    for name in "abcd":
        await send(runner, shell.queue, "hold", name)
    parent = shell.start("worker", "app", "--processes", "2", "-c", "2")
    await soon(lambda: len(shell.journal()) == 4)
    parent.terminate()
    await soon(lambda: told(parent, "stopping") == 2)
    shell.let_go()
    assert parent.wait(60) == 0
    assert sorted(shell.journal()) == sorted(f"{what} {name}" for what in ("begin", "end") for name in "abcd")
    assert not any(map(alive, process_ids(parent)))
    assert "another starts" not in parent.printed


async def test_a_second_signal_stops_them_at_once(shell: Shell, runner: TaskRunner) -> None:
    ids = [await send(runner, shell.queue, "hold", name) for name in "ab"]
    parent = shell.start("worker", "app", "--processes", "2", "-c", "1")
    await soon(lambda: len(shell.journal()) == 2)
    parent.terminate()
    await soon(lambda: told(parent, "stopping") == 2)
    parent.terminate()
    assert parent.wait(60) == 0
    looks = [await runner.handle(task_id, queue=shell.queue).look() for task_id in ids]
    assert [(look.status, look.crashes) for look in looks] == [(Status.READY, 0)] * 2


async def test_they_end_with_the_process_that_started_them(shell: Shell, runner: TaskRunner) -> None:
    await send(runner, shell.queue, "hold", "a")
    parent = shell.start("worker", "app", "--processes", "2", "--shutdown", "0.1")
    await soon(lambda: "begin a" in shell.journal() and told(parent, "ready") == 2)
    parent.kill()
    await soon(lambda: not any(map(alive, process_ids(parent))))
    assert (await runner.stats(shell.queue)).ready == 1, "what ran was given back"


async def test_burst_ends_when_all_are_idle(shell: Shell, runner: TaskRunner) -> None:
    for number in range(50):
        await send(runner, shell.queue, "greet", str(number))
    parent = shell.start("worker", "app", "--processes", "2", "--burst")
    assert parent.wait(60) == 0
    assert sorted(shell.journal()) == sorted(f"greet {number}" for number in range(50))
    assert len(process_ids(parent)) == 2


async def test_one_that_cannot_start_ends_all(shell: Shell) -> None:
    said = await shell.type("worker", "absent:runner", "--processes", "2")
    assert said.code == 1
    assert "absent:runner: there is no module 'absent' in " in said.err
    assert "another starts" not in said.err


async def _settled(runner: TaskRunner, shell: Shell) -> None:
    async def nothing_left() -> bool:
        stats = await runner.stats(shell.queue)
        return stats.ready + stats.running + stats.delayed == 0

    await soon(nothing_left)


async def _stopped(parent: WorkerProcess) -> None:
    parent.terminate()
    assert parent.wait(60) == 0
    assert not any(map(alive, process_ids(parent)))
