"""Delays, and tasks that are due."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from firetime import CancelAnswer, Handle, MessageNotFound, Status, TaskAlreadyDispatched, current_task
from firetime.values.events import TaskEvent
from tests.kit.waiting import until
from tests.story.stage import let_pass, server_ms, ticking

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.story.stage import Drain, LookAt, Ticks

pytestmark = pytest.mark.usefixtures("server")


def in_time(late_ms: float, ticks: Ticks) -> bool:
    """Within a few milliseconds, as promised, but for what a busy machine adds at each of the hops there are."""
    return late_ms < 30 + 5 * ticks.longest_s * 1000


async def test_f12_of_500_delayed_tasks_none_is_early_and_hardly_one_late(
    runner: TaskRunner, drain: Drain, raw: Redis
) -> None:
    started: list[TaskEvent] = []
    runner.events.subscribe(lambda event: started.append(event) if isinstance(event, TaskEvent) else None)

    @runner.task
    async def see() -> None: ...

    await drain()
    async with ticking(raw) as ticks:
        await runner.dispatch_many(see.options(delay=0.05 + number * 0.9 / 499).message() for number in range(500))
        await until(lambda: sum(event.what == "settled" for event in started) == 500)
    deliveries = [event.delivery for event in started if event.what == "started"]
    late_ms = sorted(delivery.claimed_ms - delivery.fire_ms for delivery in deliveries)
    assert len(late_ms) == 500
    assert late_ms[0] >= 0
    assert in_time(late_ms[494], ticks)


async def test_f15_ten_thousand_tasks_of_one_millisecond_run_in_order_and_the_far_future_is_exact(
    runner: TaskRunner, drain: Drain, look_at: LookAt
) -> None:
    seen: list[int] = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    far = await see.schedule_for(datetime(2045, 6, 7, 8, 9, 10, 111_000, tzinfo=UTC), -1)
    soon = see.options(at=datetime.now(UTC) + timedelta(seconds=60))
    answers = await runner.dispatch_many(soon.message(number) for number in range(10_000))
    assert all(isinstance(answer, Handle) for answer in answers)
    waiting = (await look_at()).delayed
    assert len(waiting) == 10_001
    assert waiting[far.task_id] == 2_380_435_750_111 * 0x1000
    scores = [score for id, score in waiting.items() if id != far.task_id]
    assert max(scores) - min(scores) == 0xFFF
    runner.clock_shift.us = 62_000_000  # a minute later
    await drain()
    await until(lambda: len(seen) == 10_000, timeout=20)
    assert seen == list(range(10_000))


async def test_f16_a_task_that_becomes_due_wakes_an_idle_worker(runner: TaskRunner, drain: Drain, raw: Redis) -> None:
    late_ms: list[int] = []

    @runner.task
    async def see() -> None:
        late_ms.append(await server_ms(raw) - (current_task().fire_ms or 0))

    await drain()
    await let_pass(raw, 0.5)
    async with ticking(raw) as ticks:
        await see.dispatch_delayed(0.5)
        await until(lambda: late_ms)
    assert late_ms[0] >= 0
    assert in_time(late_ms[0], ticks)


async def test_f17_what_was_sent_to_an_empty_server_before_any_worker_existed_is_run(
    runner: TaskRunner, drain: Drain, raw: Redis
) -> None:
    seen: list[int] = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    await raw.flushall()
    for number in range(10):
        await see.dispatch(number)
    await drain()
    assert seen == list(range(10))


@pytest.mark.parametrize("how", ["cancelled", "deleted by hand"])
async def test_f26_the_key_of_a_delayed_task_that_is_gone_is_free_at_once(
    runner: TaskRunner, raw: Redis, look_at: LookAt, how: str
) -> None:
    @runner.task(unique_for="done")
    async def rebuild() -> None: ...

    handle = await rebuild.dispatch_delayed(60)
    if how == "cancelled":
        assert await handle.cancel() == CancelAnswer.CANCELLED
    else:
        keys = runner.desk.keys("default")
        await raw.zrem(keys.delayed, f"{handle.task_id}n")
        await raw.hdel(keys.tasks, handle.task_id)
    other = await rebuild.dispatch()
    assert other != handle
    assert list((await look_at()).unique.values()) == [f"0 {other.task_id}"]


async def test_f28_of_two_delayed_tasks_with_one_key_the_second_is_refused_when_it_is_sent(
    runner: TaskRunner, drain: Drain, look_at: LookAt, raw: Redis
) -> None:
    ran: list[int] = []

    @runner.task(unique_for=600)
    async def rebuild() -> None:
        ran.append(1)

    await rebuild.dispatch_delayed(0.1)
    with pytest.raises(TaskAlreadyDispatched):
        await rebuild.dispatch_delayed(0.2)
    assert len((await look_at()).delayed) == 1
    await drain()
    await until(lambda: ran)
    assert runner.worker is not None
    await runner.worker.until_idle()
    await let_pass(raw, 0.3)
    left = await look_at()
    assert (left.delayed, left.unique, len(ran)) == ({}, {}, 1)


async def test_f45_five_questions_have_five_answers_and_nobody_waits_for_ever(runner: TaskRunner, drain: Drain) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    @runner.task
    async def work(*, wait: bool = False) -> int:
        if wait:
            started.set()
            await finish.wait()
        return 1

    never = runner.handle("0" * 32)
    running = await work.options(result_ttl=60).dispatch(wait=True)
    queued = await work.dispatch_delayed(60)
    done = await work.options(result_ttl=60).dispatch()
    expired = await work.options(result_ttl=0.01).dispatch()
    await runner.start()
    await asyncio.wait_for(started.wait(), 10)
    assert await done.result(timeout=10) == 1

    async def answers() -> list[Status]:
        return [await handle.status() for handle in (never, queued, running, done, expired)]

    async def all_differ() -> bool:
        return len(set(await answers())) == 5

    await until(all_differ)
    assert await answers() == [Status.UNKNOWN, Status.DELAYED, Status.RUNNING, Status.DONE, Status.EXPIRED]
    with pytest.raises(MessageNotFound):
        await asyncio.wait_for(never.result(), 5)
    finish.set()
