"""What a worker cannot mend itself, it says; it goes on as well as it can."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from firetime import BrokerUnavailable, QueueError, Status
from firetime.values.events import Trouble
from firetime.worker import intake
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from firetime import TaskRunner
    from tests.kit.proxy import FaultProxy
    from tests.story.stage import NewRunner


async def test_what_will_not_be_cancelled_is_given_back_all_the_same(runner: TaskRunner) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    @runner.task
    async def stubborn() -> None:
        started.set()
        while not finish.is_set():
            try:
                await finish.wait()
            except asyncio.CancelledError:
                continue

    handle = await stubborn.dispatch()
    await runner.start()
    await asyncio.wait_for(started.wait(), 10)
    await runner.stop(within=0)
    found = await handle.look()
    finish.set()
    assert (found.status, found.state.failures, found.crashes) == (Status.READY, 0, 0)


async def test_whoever_asked_hears_of_trouble_and_of_which_part_met_it(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str
) -> None:
    proxy = start_proxy(url)
    runner = new_runner(proxy.url)
    heard: list[QueueError] = []
    iterated: list[BaseException] = []
    runs = []

    @runner.on_error
    def in_a_thread(error: QueueError) -> None:
        heard.append(error)
        raise RuntimeError("a failing hook stops nothing")

    @runner.on_error
    async def in_the_loop(error: QueueError) -> None:
        heard.append(error)

    async def iterate() -> None:
        iterated.extend([await anext(aiter(errors))])

    @runner.task
    async def work() -> None:
        runs.append(1)

    errors = runner.errors()
    iterating = asyncio.create_task(iterate())
    await runner.start()
    await until(lambda: runner.worker is not None and runner.worker.healthy)
    proxy.refuse()
    proxy.cut()
    await until(lambda: len({error.kind for error in heard}) >= 3 and iterated)
    assert {error.kind for error in heard} <= {"fetch", "scheduler", "election", "control", "renew", "settle"}
    assert all(isinstance(error, BrokerUnavailable) for error in (*heard, *iterated))
    assert runner.worker is not None
    assert not runner.worker.healthy
    proxy.heal()
    await work.dispatch()
    await until(lambda: runs)
    await until(lambda: runner.worker is not None and runner.worker.healthy)
    await iterating


async def test_errors_that_nobody_takes_are_dropped_oldest_first(runner: TaskRunner) -> None:
    errors = runner.errors()
    first = asyncio.ensure_future(anext(aiter(errors)))
    await asyncio.sleep(0)
    for number in range(5000):
        runner.events.emit(Trouble(QueueError(str(number))))
    taken = [str(await first)]
    while taken[-1] != "4999":
        taken.append(str(await anext(aiter(errors))))
    assert taken == [str(number) for number in range(4000, 5000)]


async def test_trouble_is_one_line_in_the_log_when_it_begins_and_one_when_it_is_over(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "firetime")
    proxy = start_proxy(url)
    runner = new_runner(proxy.url)
    await runner.start()
    await until(lambda: runner.worker is not None and runner.worker.leads)
    proxy.refuse()
    proxy.cut()
    await until(lambda: "disconnected" in caplog.text)
    proxy.heal()
    await until(lambda: "reconnected" in caplog.text)
    assert caplog.text.count("disconnected") == 1


async def test_a_worker_with_nothing_to_do_is_well_again_as_soon_as_the_server_is_back(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nobody rings the bell here: whoever waits for the end of a read that blocks waits in vain
    monkeypatch.setattr(intake, "_BELL_S", 60)
    monkeypatch.setattr(intake, "_BELL_DEADLINE_S", 65)
    proxy = start_proxy(url)
    runner = new_runner(proxy.url)
    await runner.start()
    await until(lambda: runner.worker is not None and runner.worker.healthy and runner.worker.leads)
    kinds: set[str | None] = set()

    @runner.on_error
    def hear(error: Exception) -> None:
        kinds.add(getattr(error, "kind", None))

    proxy.refuse()
    proxy.cut()
    # long enough that all who ask now and then have noticed
    await until(lambda: {"fetch", "election"} <= kinds, timeout=20)
    proxy.heal()
    await until(lambda: runner.worker is not None and runner.worker.healthy, timeout=30)
