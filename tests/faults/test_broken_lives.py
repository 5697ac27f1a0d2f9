"""Runners are stopped, closed and left behind at the wrong moment or from the wrong place."""

from __future__ import annotations

import asyncio
import gc
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from firetime import BrokerUnavailable, Status, TaskRunner
from tests.kit.waiting import until

if TYPE_CHECKING:
    from firetime import Handle

pytestmark = pytest.mark.usefixtures("valkey")


@pytest.mark.parametrize("later_s", [0, 0.0005, 0.001, 0.002, 0.004])
async def test_a_stop_during_a_start_leaves_no_worker_behind(runner: TaskRunner, later_s: float) -> None:
    start = asyncio.create_task(runner.start())
    await asyncio.sleep(later_s)
    await runner.stop()
    await start
    assert runner.worker is None
    await runner.start()
    assert runner.worker is not None


async def test_a_task_that_stops_its_own_worker_fails_and_the_worker_works_on(runner: TaskRunner) -> None:
    @runner.task(max_retry=0)
    async def stop() -> None:
        await runner.stop()

    @runner.task(max_retry=0)
    def stop_in_a_thread() -> None:
        asyncio.run(runner.stop())

    @runner.task(result_ttl=60)
    async def work() -> str:
        return "done"

    await runner.start()
    for letter in (await stop.dispatch(), await stop_in_a_thread.dispatch()):
        await until(partial(_is_dead, letter), what="the dead letter")
        assert "WrongContext" in (await letter.look()).state.first[-1].type
    assert await (await work.dispatch()).result(10) == "done"


@pytest.mark.one_server
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # who forgets to stop is told so at times
def test_a_runner_left_started_in_a_loop_that_ended_starts_in_another_one(url: str, prefix: str) -> None:
    runner = TaskRunner(url, prefix=prefix, lease=1)

    @runner.task(result_ttl=60)
    async def work() -> str:
        return "done"

    async def forget_to_stop() -> None:
        await runner.start()

    async def use() -> str:
        await runner.start()
        value = await (await work.dispatch()).result(10)
        await runner.aclose()
        return value

    asyncio.run(forget_to_stop())
    assert asyncio.run(use()) == "done"
    gc.collect()  # here, and not in another test


async def test_a_worker_whose_loops_somebody_cancelled_does_not_count_as_healthy(runner: TaskRunner) -> None:
    await runner.start()
    worker = runner.worker
    assert worker is not None
    await until(lambda: worker.healthy)
    claims = [task for task in asyncio.all_tasks() if "when_heard" in repr(task.get_coro())]
    assert claims
    for task in claims:
        task.cancel()
    await until(lambda: not worker.healthy, what="ill health")


def test_a_call_that_waits_when_the_runner_is_closed_raises(url: str, prefix: str) -> None:
    runner = TaskRunner(url, prefix=prefix)

    @runner.task(result_ttl=60)
    async def work() -> None: ...

    handle, met = work.dispatch_sync(), list[BaseException]()

    def wait() -> None:
        try:
            handle.result_sync()
        except BrokerUnavailable as error:
            met.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(0.2)
    runner.close()
    waiting.join(10)
    assert [type(error) for error in met] == [BrokerUnavailable]
    handle.cancel_sync()
    runner.close()


def test_threads_that_dispatch_while_the_runner_is_closed_again_and_again_never_hang(url: str, prefix: str) -> None:
    runner = TaskRunner(url, prefix=prefix)

    @runner.task
    async def work() -> None: ...

    over = threading.Event()

    def dispatch() -> None:
        while not over.is_set():
            try:
                work.dispatch_sync()
            except BrokerUnavailable:
                continue

    threads = [threading.Thread(target=dispatch, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        runner.close()
    over.set()
    for thread in threads:
        thread.join(10)
    runner.close()
    assert not any(thread.is_alive() for thread in threads)


async def _is_dead(letter: Handle[Any]) -> bool:
    return await letter.status() is Status.DEAD
