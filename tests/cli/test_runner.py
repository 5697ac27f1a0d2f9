"""What the command line does with a runner, an app can do as well: configure it, and run it until it is asked to stop."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from firetime import InvalidOption, RunnerAlreadyStarted, TaskRunner
from firetime.values.events import Event, WorkerEvent
from firetime.worker.scheduler import Scheduler
from tests.cli.shell import soon
from tests.kit.servers import ServerProcess


@pytest.fixture
def runner(valkey: ServerProcess, queue_name: str) -> TaskRunner:
    """It serves the test's queue, by two threads."""
    return TaskRunner(valkey.url, queues=(queue_name,), threads=2)


def happenings(runner: TaskRunner) -> list[str]:
    happened: list[str] = []

    def take(event: Event) -> None:
        if isinstance(event, WorkerEvent):
            happened.append(event.what)

    runner.events.subscribe(take, every_task=False)
    return happened


def test_configure_replaces_settings_and_tells_where_they_came_from(runner: TaskRunner) -> None:
    runner.configure(lease=6, concurrency=None)
    assert (runner.settings.lease, runner.settings.heartbeat_s, runner.settings.threads) == (6, 2, 2)
    sources = runner.sourced.sources
    assert (sources["lease"], sources["threads"], sources["concurrency"]) == ("argument", "argument", "default")


@pytest.mark.parametrize("settings", [{"prefix": "other"}, {"max_payload": 10}, {"lease": -1}, {"leese": 1}])
def test_configure_refuses_what_cannot_be_meant(runner: TaskRunner, settings: dict[str, object]) -> None:
    before = runner.settings
    with pytest.raises(InvalidOption):
        runner.configure(**settings)
    assert runner.settings is before


async def test_configure_comes_before_start(runner: TaskRunner) -> None:
    async with runner:
        with pytest.raises(RunnerAlreadyStarted):
            runner.configure(lease=6)


async def test_run_ends_with_a_signal_and_gives_the_handlers_back(runner: TaskRunner) -> None:
    happened = happenings(runner)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    running = asyncio.create_task(runner.run())
    await soon(lambda: "ready" in happened)
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert happened[-1] == "stopped"
    assert runner.worker is None
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_run_ends_when_the_runner_is_stopped_by_others(runner: TaskRunner) -> None:
    happened = happenings(runner)
    running = asyncio.create_task(runner.run())
    await soon(lambda: "ready" in happened)
    await asyncio.gather(runner.stop(), runner.stop())
    await running
    assert happened.count("stopped") == 1


async def test_run_stops_when_it_is_cancelled(runner: TaskRunner) -> None:
    happened = happenings(runner)
    running = asyncio.create_task(runner.run())
    await soon(lambda: "ready" in happened)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert happened[-1] == "stopped"


async def test_run_hears_no_signals_in_another_thread_and_works_all_the_same(runner: TaskRunner) -> None:
    happened = happenings(runner)
    await asyncio.to_thread(asyncio.run, runner.run(until_idle=True))
    assert happened[-1] == "stopped"


async def test_a_loop_that_breaks_ends_run_with_its_error(runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: Scheduler) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Scheduler, "run", broken)
    happened = happenings(runner)
    with pytest.raises(ZeroDivisionError):
        await runner.run()
    assert happened[-1] == "stopped"
