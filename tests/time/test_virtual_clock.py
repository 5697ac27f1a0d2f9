"""A test that would take a day takes no time: the clock that every script sees is moved, and all that is due takes place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from firetime import Fixed, InvalidOption, Status, WrongContext, current_task
from firetime.testing import VirtualClock, drain

if TYPE_CHECKING:
    from firetime import TaskRunner
    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")


async def test_a_day_of_delays_retries_and_schedules(runner: TaskRunner, clock: VirtualClock) -> None:
    seen: list[tuple[str, int]] = []
    begin = clock.now()

    def note(what: str) -> None:
        seen.append((what, round((clock.now() - begin).total_seconds() / 3600)))

    @runner.task(max_retry=2, backoff=Fixed(timedelta(hours=5)))
    async def flaky() -> None:
        note("flaky")
        raise ValueError

    @runner.task
    async def remind() -> None:
        note("remind")

    @runner.every(timedelta(hours=8))
    async def tidy() -> None:
        note("tidy")

    await remind.dispatch_delayed(timedelta(hours=7))
    await flaky.dispatch_delayed(timedelta(hours=1))
    await remind.dispatch_delayed(timedelta(hours=25))
    await clock.advance(hours=24)
    assert seen == [
        ("flaky", 1),
        ("flaky", 6),
        ("remind", 7),
        ("tidy", 8),
        ("flaky", 11),
        ("tidy", 16),
        ("tidy", 24),
    ]
    assert (clock.now() - begin) // timedelta(hours=1) == 24
    await clock.advance(hours=1)
    assert seen[-1] == ("remind", 25)


async def test_what_a_task_sends_for_later_takes_place_as_well(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []

    @runner.task
    async def chain(left: int) -> None:
        seen.append(left)
        if left:
            await chain.dispatch_delayed(timedelta(hours=1), left - 1)

    await chain.dispatch(50)
    await clock.advance(hours=24)
    assert seen == list(range(50, 25, -1))
    await clock.advance(days=2)
    assert seen == list(range(50, -1, -1))


async def test_several_queues_keep_one_order_of_time(new_runner: NewRunner) -> None:
    runner = new_runner()
    seen = []

    @runner.task(queue="one")
    async def one(number: int) -> None:
        seen.append(number)

    @runner.task(queue="other")
    async def other(number: int) -> None:
        seen.append(number)

    for number in range(20):
        await (one, other)[number % 3 == 0].options(delay=3600 - 60 * number).dispatch(number)
    await VirtualClock(runner).advance(hours=1)
    assert seen == list(range(19, -1, -1))


async def test_a_task_sees_its_own_fire_time_and_the_moved_clock(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []
    when = datetime(2035, 5, 4, 3, 2, 1, tzinfo=UTC)

    @runner.task
    async def remind() -> None:
        fire_ms = current_task().fire_ms or 0
        seen.append((datetime.fromtimestamp(fire_ms / 1000, UTC), clock.now()))

    await remind.schedule_for(when)
    await clock.advance_to(when - timedelta(seconds=30))
    assert seen == []
    await clock.advance_to(when)
    ((fired, now),) = seen
    assert fired == when
    assert when <= now < when + timedelta(seconds=30)


async def test_results_and_remembered_ids_live_on_in_real_time(runner: TaskRunner, clock: VirtualClock) -> None:
    @runner.task(result_ttl=3600)
    async def double(number: int) -> int:
        return 2 * number

    handle = await double.options(task_id="mine", delay=60).dispatch(21)
    await clock.advance(days=30)
    assert await handle.status() == Status.DONE
    assert await handle.result(timeout=5) == 42


async def test_unique_keys_run_out_in_virtual_time(runner: TaskRunner, clock: VirtualClock) -> None:
    @runner.task(unique_for=60, max_retry=1, backoff=Fixed(86_400))
    async def once() -> None:
        raise ValueError

    await once.dispatch()
    await clock.advance(seconds=1)
    await clock.advance(hours=25)
    await once.dispatch()


async def test_time_that_nobody_worked_in_can_be_skipped(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []

    @runner.cron("0 * * * *", misfire="skip")
    async def hourly() -> None:
        seen.append("hourly")

    @runner.task
    async def remind() -> None:
        seen.append("remind")

    await remind.dispatch_delayed(60)
    await clock.skip(hours=4, minutes=1)
    assert seen == []
    await clock.advance()
    assert seen == ["remind"]
    await clock.advance(hours=1)
    assert seen == ["remind", "hourly"]


async def test_time_never_goes_back(runner: TaskRunner, clock: VirtualClock) -> None:
    with pytest.raises(InvalidOption, match="forward"):
        await clock.advance(hours=-1)
    with pytest.raises(InvalidOption, match="never goes back"):
        await clock.advance_to(clock.now() - timedelta(seconds=10))
    with pytest.raises(InvalidOption, match="aware"):
        await clock.advance_to(datetime(2035, 1, 1))  # noqa: DTZ001 - naive is the mistake
    with pytest.raises(InvalidOption, match="2200"):
        await clock.advance(days=365 * 400)
    with pytest.raises(InvalidOption, match="forward"):
        await clock.skip(seconds=-1)


async def test_a_runner_that_is_started_goes_by_real_time_only(runner: TaskRunner, clock: VirtualClock) -> None:
    @runner.task
    async def nothing() -> None: ...

    await runner.start()
    for attempt in (clock.advance(hours=1), clock.skip(hours=1), drain(runner)):
        with pytest.raises(WrongContext, match="started already"):
            await attempt


async def test_draining_runs_what_is_ready_and_waits_for_the_rest_only_if_asked(runner: TaskRunner) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)
        if number == 1:
            await see.dispatch(2)

    await see.dispatch(1)
    await see.dispatch_delayed(0.2, 3)
    await drain(runner)
    assert seen == [1, 2]
    await drain(runner, delayed=True)
    assert seen == [1, 2, 3]
