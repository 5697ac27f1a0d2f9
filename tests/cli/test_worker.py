"""A worker process starts, works, and stops without costing anything."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from firetime import Status, TaskRunner
from tests.cli.shell import Shell, send, soon, told

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartServer, StartWorker
    from tests.kit.servers import ServerProcess


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_what_runs_finish(shell: Shell, runner: TaskRunner, number: signal.Signals) -> None:
    await send(runner, shell.queue, "hold", "a")
    worker = shell.start("worker", "app:runner")
    await soon(lambda: "begin a" in shell.journal())
    os.kill(worker.pid, number)
    await soon(lambda: told(worker, "stopping"))
    assert worker.running
    shell.let_go()
    assert worker.wait(60) == 0
    assert shell.journal() == ["begin a", "end a"]
    assert f"{number.name}: stopping" in worker.printed
    assert "Traceback" not in worker.printed


async def test_a_second_signal_gives_back_what_runs_and_costs_it_nothing(shell: Shell, runner: TaskRunner) -> None:
    task_id = await send(runner, shell.queue, "hold", "a")
    thread_id = await send(runner, shell.queue, "hold_thread", "b")
    worker = shell.start("worker", "app", "--shutdown", "60")
    await soon(lambda: {"begin a", "begin b"} <= set(shell.journal()))
    worker.terminate()
    await soon(lambda: "SIGTERM: stopping" in worker.printed)
    worker.terminate()
    assert worker.wait(60) == 0
    for each in (task_id, thread_id):
        found = await runner.handle(each, queue=shell.queue).look()
        assert (found.status, found.state.failures, found.crashes) == (Status.READY, 0, 0)


async def test_what_runs_past_shutdown_is_given_back(shell: Shell, runner: TaskRunner) -> None:
    task_id = await send(runner, shell.queue, "hold", "a")
    worker = shell.start("worker", "app", "--shutdown", "0.05")
    await soon(lambda: "begin a" in shell.journal())
    worker.terminate()
    assert worker.wait(60) == 0
    assert (await runner.handle(task_id, queue=shell.queue).look()).status is Status.READY


async def test_what_has_not_started_moves_to_another_worker_while_the_rest_runs(
    shell: Shell, runner: TaskRunner
) -> None:
    stopping = shell.start("worker", "app", "--threads", "1")
    await send(runner, shell.queue, "hold_thread", "first")
    await soon(lambda: "begin first" in shell.journal())
    waiting = await send(runner, shell.queue, "hold_thread", "waiting")
    await soon(
        lambda: _is(runner, shell, waiting, Status.RUNNING), what="the same worker to hold it for its one thread"
    )
    other = shell.start("worker", "app")
    await soon(lambda: told(other, "ready"))
    stopping.terminate()
    await soon(lambda: "begin waiting" in shell.journal())
    assert stopping.running
    assert shell.process_of("begin waiting") == other.pid
    assert (await runner.handle(waiting, queue=shell.queue).look()).crashes == 0
    shell.let_go()
    assert stopping.wait(60) == 0
    other.terminate()
    assert other.wait(60) == 0
    assert sorted(shell.journal()) == ["begin first", "begin waiting", "end first", "end waiting"]


async def test_burst_ends_when_nothing_is_ready(shell: Shell, runner: TaskRunner) -> None:
    for number in range(20):
        await send(runner, shell.queue, "greet", str(number))
    await send(runner, shell.queue, "fail", "twice, without delay")
    later = await send(runner, shell.queue, "greet", "later", delay=3600)
    worker = shell.start("worker", "app", "--burst")
    assert worker.wait(60) == 0
    assert sorted(shell.journal()) == sorted(f"greet {number}" for number in range(20))
    stats = await runner.stats(shell.queue)
    assert (stats.ready, stats.running, stats.delayed, stats.dead, stats.workers) == (0, 0, 1, 1, 0)
    await runner.handle(later, queue=shell.queue).cancel()


async def test_a_server_that_is_away_is_waited_for(shell: Shell, start_server: StartServer) -> None:
    server = start_server()
    server.stop()
    worker = shell.start("worker", "app", env={"FIRETIME_URL": server.url})
    await soon(lambda: "waiting for a server: no connection from" in worker.printed)
    server.start()
    await soon(lambda: told(worker, "ready"))
    worker.terminate()
    assert worker.wait(60) == 0
    assert "Traceback" not in worker.printed


async def test_a_worker_that_waits_for_its_server_can_be_stopped(shell: Shell, start_server: StartServer) -> None:
    server = start_server()
    server.stop()
    worker = shell.start("worker", "app", env={"FIRETIME_URL": server.url})
    await soon(lambda: "waiting for a server" in worker.printed)
    worker.terminate()
    assert worker.wait(60) == 0


async def test_a_server_that_refuses_is_an_error_at_once(shell: Shell, start_server: StartServer) -> None:
    server = start_server(requirepass="secret")
    worker = shell.start("worker", "app", env={"FIRETIME_URL": server.url.replace("secret", "wrong")})
    assert worker.wait(60) == 1
    assert "the server refuses these credentials" in worker.printed.splitlines()[-1]
    assert "wrong@" not in worker.printed
    assert "Traceback" not in worker.printed


async def test_options_replace_settings_and_keep_the_tasks(shell: Shell, runner: TaskRunner) -> None:
    options = ("-c", "3", "--threads", "2", "-q", shell.queue, "-q", f"{shell.queue}.b")
    worker = shell.start("worker", "app:runner", *options, env={"FIRETIME_CONCURRENCY": "7"})
    await soon(lambda: told(worker, "ready"))
    for queue in (shell.queue, f"{shell.queue}.b"):
        (about,) = await soon(lambda queue=queue: runner.overview.workers(queue))  # type: ignore[misc]
        assert (about.pid, about.concurrency, about.threads) == (worker.pid, 3, 2)
    await send(runner, f"{shell.queue}.b", "greet", "b")
    await soon(lambda: "greet b" in shell.journal())
    worker.terminate()
    assert worker.wait(60) == 0


async def test_workers_and_scheduler_run_apart(shell: Shell, runner: TaskRunner) -> None:
    worker = shell.start("worker", "app", "--no-scheduler", "--log-level", "debug")
    await soon(lambda: told(worker, "ready"))
    await send(runner, shell.queue, "greet", "later", delay=0.01)
    await send(runner, shell.queue, "greet", "now")
    await soon(lambda: "greet now" in shell.journal())
    assert (await runner.stats(shell.queue)).leader == ""
    scheduler = shell.start("scheduler", "app", "--promote-batch", "10")
    await soon(lambda: "greet later" in shell.journal())
    stats = await runner.stats(shell.queue)
    assert (stats.leader != "", stats.workers) == (True, 1)
    for each in (scheduler, worker):
        each.terminate()
        assert each.wait(60) == 0
    assert not told(worker, "promoted")


async def test_an_app_that_is_not_there_is_one_line(shell: Shell) -> None:
    said = await shell.type("worker", "nowhere:runner")
    assert (said.code, said.out) == (1, "")
    (line,) = said.err.splitlines()
    assert line.startswith("nowhere:runner: there is no module 'nowhere' in ")


async def test_an_app_that_fails_shows_where_without_the_frames_of_others(shell: Shell) -> None:
    (shell.folder / "other.py").write_text("import absent_dependency")
    said = await shell.type("worker", "other")
    assert (said.code, said.out) == (1, "")
    first, *_, last = said.err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last.endswith("other.py:1: ModuleNotFoundError: No module named 'absent_dependency'")
    assert "importlib" not in said.err
    assert "firetime" not in said.err


async def test_an_impossible_setting_is_one_line(shell: Shell) -> None:
    said = await shell.type("worker", "app", "-c", "0")
    assert (said.code, said.err.splitlines()) == (1, ["concurrency=0: expected a whole number of at least 1"])


RUNS_BY_ITSELF = """
import asyncio
from firetime import TaskRunner

class Loop(asyncio.SelectorEventLoop):
    def add_signal_handler(self, *_):
        raise NotImplementedError  # as on Windows

runner = TaskRunner()
with asyncio.Runner(loop_factory=Loop) as loop:
    print(" started", flush=True)
    loop.run(runner.run())
"""


async def test_run_hears_signals_where_loops_cannot(start_worker: StartWorker, valkey: ServerProcess) -> None:
    worker = start_worker(
        f"import logging; logging.basicConfig(level=20)\n{RUNS_BY_ITSELF}", env={"REDIS_URL": valkey.url}
    )
    await soon(lambda: told(worker, "ready"))
    worker.terminate()
    assert worker.wait(60) == 0
    assert "SIGTERM: stopping" in worker.printed


async def test_the_app_keeps_its_own_log(shell: Shell, tmp_path: Path) -> None:
    own = "import logging; logging.basicConfig(format='MINE %(message)s', level=20)\n"
    (shell.folder / "app.py").write_text(own + (shell.folder / "app.py").read_text())
    worker = shell.start("worker", "app")
    await soon(lambda: told(worker, "ready"))
    worker.terminate()
    assert worker.wait(60) == 0
    assert all(line.startswith("MINE ") for line in worker.printed.splitlines())


async def _is(runner: TaskRunner, shell: Shell, task_id: str, status: Status) -> bool:
    return await runner.handle(task_id, queue=shell.queue).status() is status
