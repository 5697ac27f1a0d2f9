"""A task can be called back; the answer tells what was found, and is never a guess."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from firetime import CancelAnswer, Fixed, Status, TaskAlreadyDispatched
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis.asyncio import Redis

    from firetime import Handle, TaskRunner
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Threads of a test wait for it; it is open at the end."""
    event = threading.Event()
    yield event
    event.set()


async def ends_as(handle: Handle[object], status: Status) -> None:
    async def reached() -> bool:
        return await handle.status() == status

    await until(reached)


async def test_a_delayed_task_is_taken_back(runner: TaskRunner, look_at: LookAt) -> None:
    @runner.task
    async def never() -> None: ...

    handle = await never.dispatch_delayed(60)
    assert await handle.cancel() == CancelAnswer.CANCELLED
    assert await handle.status() == Status.CANCELLED
    left = await look_at()
    assert (left.tasks, left.delayed) == ({}, {})


async def test_a_ready_task_is_taken_back(runner: TaskRunner, drain: Drain) -> None:
    ran = []

    @runner.task
    async def see(what: str) -> None:
        ran.append(what)

    handle = await see.dispatch("cancelled")
    await see.dispatch("kept")
    assert await handle.cancel() == CancelAnswer.CANCELLED
    await drain()
    assert ran == ["kept"]


async def test_a_task_that_waits_for_its_retry_is_taken_back(runner: TaskRunner, drain: Drain, look_at: LookAt) -> None:
    @runner.task(backoff=Fixed(60))
    async def flaky() -> None:
        raise ValueError

    handle = await flaky.dispatch()
    await drain()
    assert await handle.cancel() == CancelAnswer.CANCELLED
    left = await look_at()
    assert (left.tasks, left.state, left.delayed) == ({}, {}, {})


async def test_a_running_coroutine_is_asked_to_stop_and_does_at_once(runner: TaskRunner, look_at: LookAt) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @runner.task
    async def long() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    handle = await long.dispatch()
    await runner.start()
    await asyncio.wait_for(started.wait(), 10)
    assert await handle.cancel() == CancelAnswer.REQUESTED
    await asyncio.wait_for(stopped.wait(), 1)  # by message: the next renewal is 5 s away
    await ends_as(handle, Status.CANCELLED)
    assert (await look_at()).cancelling == {}


async def test_a_cancel_that_the_worker_did_not_hear_of_is_told_by_its_next_renewal(
    new_runner: NewRunner, raw: Redis
) -> None:
    runner = new_runner(lease=0.6)
    started = asyncio.Event()

    @runner.task
    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await long.dispatch()
    await runner.start()
    await asyncio.wait_for(started.wait(), 10)
    await raw.hset(runner.desk.keys("default").cancelling, handle.task_id, "1")  # as a script does, without its message
    await ends_as(handle, Status.CANCELLED)


async def test_a_running_thread_runs_to_its_end_and_counts_as_done(runner: TaskRunner, gate: threading.Event) -> None:
    started = threading.Event()

    @runner.task(result_ttl=60)
    def long() -> str:
        started.set()
        gate.wait(10)
        return "all of it"

    handle = await long.dispatch()
    await runner.start()
    await until(started.is_set)
    assert await handle.cancel() == CancelAnswer.REQUESTED
    gate.set()
    assert await handle.result(timeout=10) == "all of it"


async def test_a_cancelled_thread_that_fails_is_not_tried_again(runner: TaskRunner, gate: threading.Event) -> None:
    started, runs = threading.Event(), []

    @runner.task(backoff=Fixed(0))
    def long() -> None:
        runs.append(1)
        started.set()
        gate.wait(10)
        raise ValueError

    handle = await long.dispatch()
    await runner.start()
    await until(started.is_set)
    assert await handle.cancel() == CancelAnswer.REQUESTED
    gate.set()
    await ends_as(handle, Status.CANCELLED)
    assert runs == [1]


async def test_a_task_that_waits_for_a_thread_is_cancelled_before_it_starts(
    new_runner: NewRunner, gate: threading.Event
) -> None:
    runner = new_runner(threads=1)
    started, runs = threading.Event(), []

    @runner.task
    async def lets_more_in_than_there_are_threads() -> None: ...

    @runner.task
    def long(what: str) -> None:
        runs.append(what)
        started.set()
        gate.wait(10)

    await long.dispatch("first")
    waiting = await long.dispatch("second")
    await runner.start()
    await until(started.is_set)
    await ends_as(waiting, Status.RUNNING)
    assert await waiting.cancel() == CancelAnswer.REQUESTED
    await ends_as(waiting, Status.CANCELLED)
    gate.set()
    assert runs == ["first"]


async def test_a_coroutine_that_will_not_stop_counts_as_cancelled_when_it_ends(runner: TaskRunner) -> None:
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
    assert await handle.cancel() == CancelAnswer.REQUESTED
    assert await handle.status() == Status.RUNNING
    finish.set()
    await ends_as(handle, Status.CANCELLED)


async def test_what_has_ended_cannot_be_cancelled(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(max_retry=0)
    async def work(*, fail: bool) -> None:
        if fail:
            raise ValueError

    remembered = await work.options(task_id="mine").dispatch(fail=False)
    kept = await work.options(result_ttl=60).dispatch(fail=False)
    dead = await work.dispatch(fail=True)
    cancelled = await work.dispatch_delayed(60, fail=False)
    await cancelled.cancel()
    await drain()
    for handle in (remembered, kept, dead, cancelled):
        assert await handle.cancel() == CancelAnswer.FINISHED
    assert await dead.status() == Status.DEAD
    assert await remembered.status() == Status.DONE


async def test_what_nobody_knows_is_not_found(runner: TaskRunner, drain: Drain) -> None:
    @runner.task
    async def forgotten() -> None: ...

    handle = await forgotten.dispatch()
    await drain()
    assert await handle.cancel() == CancelAnswer.NOT_FOUND
    assert await runner.handle("nobody-knows").cancel() == CancelAnswer.NOT_FOUND


async def test_cancelling_twice_is_cancelling_once(runner: TaskRunner) -> None:
    @runner.task
    async def never() -> None: ...

    handle = await never.dispatch()
    answers = await asyncio.gather(handle.cancel(), handle.cancel())
    assert sorted(answers) == [CancelAnswer.CANCELLED, CancelAnswer.FINISHED]


async def test_a_cancelled_id_of_ones_own_is_remembered(runner: TaskRunner) -> None:
    @runner.task
    async def pay() -> None: ...

    await (await pay.options(task_id="invoice-7").dispatch()).cancel()
    with pytest.raises(TaskAlreadyDispatched):
        await pay.options(task_id="invoice-7").dispatch()
