"""A task can wait for its fire-time, which only the server's clock decides; it never starts early."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from firetime import DelayTooShort, Status, current_task
from tests.kit.waiting import until
from tests.story.stage import server_ms

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")


async def test_a_delayed_task_runs_when_its_delay_is_over_and_not_before(
    runner: TaskRunner, drain: Drain, raw: Redis
) -> None:
    started = []

    @runner.task
    async def remind(text: str) -> None:
        started.append((text, await server_ms(raw)))

    sent_ms = await server_ms(raw)
    handle = await remind.dispatch_delayed(0.2, "tea")
    assert await handle.status() == Status.DELAYED
    await drain()
    assert started == []
    await until(lambda: started)
    assert started[0][0] == "tea"
    assert sent_ms + 200 <= started[0][1]


async def test_a_delay_may_be_a_timedelta(runner: TaskRunner, raw: Redis) -> None:
    @runner.task
    async def remind() -> None: ...

    handle = await remind.dispatch_delayed(timedelta(hours=24))
    fire_ms = (await handle.look()).fire_ms
    assert fire_ms is not None
    assert 0 <= await server_ms(raw) + 86_400_000 - fire_ms < 5000


async def test_a_task_can_be_scheduled_for_an_instant(runner: TaskRunner) -> None:
    @runner.task
    async def remind() -> None: ...

    summer = timezone(timedelta(hours=2))
    handle = await remind.schedule_for(datetime(2099, 7, 1, 11, 30, 0, 1500, tzinfo=summer))
    expected = datetime(2099, 7, 1, 9, 30, tzinfo=UTC).timestamp() * 1000 + 2  # 1.5 ms past: never early
    assert (await handle.look()).fire_ms == expected


async def test_an_instant_that_is_past_means_now(runner: TaskRunner, drain: Drain) -> None:
    ran = []

    @runner.task
    async def remind() -> None:
        ran.append(1)

    handle = await remind.schedule_for(datetime(1815, 12, 10, tzinfo=UTC))
    assert await handle.status() == Status.READY
    await drain()
    assert ran == [1]


async def test_delay_and_instant_are_options_too(runner: TaskRunner) -> None:
    @runner.task
    async def remind() -> None: ...

    delayed = await remind.options(delay=60).dispatch()
    scheduled = await remind.options(at=datetime(2099, 1, 1, tzinfo=UTC)).dispatch()
    assert [await each.status() for each in (delayed, scheduled)] == [Status.DELAYED, Status.DELAYED]


async def test_no_delay_means_now(runner: TaskRunner) -> None:
    @runner.task
    async def remind() -> None: ...

    assert await (await remind.dispatch_delayed(0)).status() == Status.READY


async def test_tasks_due_at_the_same_millisecond_run_in_the_order_they_were_sent(
    runner: TaskRunner, drain: Drain
) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    when = datetime.now(UTC) + timedelta(seconds=0.3)
    for number in range(20):
        await see.schedule_for(when, number)
    await drain()
    await until(lambda: len(seen) == 20)
    assert seen == list(range(20))


async def test_what_is_due_sooner_runs_sooner_whenever_it_was_sent(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task
    async def see(delay: float) -> None:
        seen.append(delay)

    await drain()
    for delay in (0.3, 0.1, 0.2):
        await see.dispatch_delayed(delay, delay)
    await until(lambda: len(seen) == 3)
    assert seen == [0.1, 0.2, 0.3]


async def test_a_task_knows_when_it_was_due(runner: TaskRunner, drain: Drain) -> None:
    due: list[int | None] = []

    @runner.task
    async def see() -> None:
        due.append(current_task().fire_ms)

    when = datetime.now(UTC) + timedelta(seconds=0.1)
    await see.dispatch()
    await see.schedule_for(when)
    await drain()
    await until(lambda: len(due) == 2)
    assert due[0] is None
    assert due[1] is not None
    assert 0 <= due[1] - when.timestamp() * 1000 < 1


async def test_a_runner_may_insist_on_a_shortest_delay(new_runner: NewRunner) -> None:
    patient = new_runner(min_delay=5)

    @patient.task
    async def remind() -> None: ...

    with pytest.raises(DelayTooShort) as refused:
        await remind.dispatch_delayed(4.9)
    assert (refused.value.delay_s, refused.value.min_delay_s) == (4.9, 5.0)
    await remind.dispatch_delayed(5)
    await remind.dispatch()


async def test_the_far_future_keeps_its_millisecond(runner: TaskRunner, look_at: LookAt) -> None:
    @runner.task
    async def remind() -> None: ...

    for when in (datetime(2045, 1, 1, tzinfo=UTC), datetime(2199, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)):
        handle = await remind.schedule_for(when)
        assert (await handle.look()).fire_ms == round(when.timestamp() * 1000)
    assert len((await look_at()).delayed) == 2
