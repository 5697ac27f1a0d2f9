"""Schedules: each slot once, whoever ticks; what is declared, changed, paused, missed, and what must not overlap."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from firetime import (
    Fixed,
    InvalidOption,
    MessageNotFound,
    Status,
    TaskAlreadyDispatched,
    current_task,
)
from firetime.store.keys import QueueKeys
from firetime.testing import VirtualClock
from tests.kit.waiting import until
from tests.story.stage import server_ms

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.story.stage import Drain, NewRunner

pytestmark = pytest.mark.usefixtures("valkey")

MINUTE_MS = 60_000


def nominal() -> int:
    slot_ms = current_task().nominal_ms
    assert slot_ms is not None
    return slot_ms


# ------------------------------------------------------------------------------------------------------------ declared


async def test_every_slot_is_run_and_the_task_sees_which_it_is_for(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []

    @runner.cron("*/5 * * * *")
    async def fetch() -> None:
        seen.append((nominal(), current_task().id, current_task().fire_ms))

    await clock.advance(minutes=30)
    slots = [slot for slot, _, _ in seen]
    assert slots == list(range(slots[0], slots[0] + 30 * MINUTE_MS, 5 * MINUTE_MS))
    assert slots[0] % (5 * MINUTE_MS) == 0
    assert seen == [(slot, f"fetch@{slot}", slot) for slot in slots]


async def test_an_interval_begins_when_it_is_first_written_and_goes_on_over_restarts(
    new_runner: NewRunner, raw: Redis
) -> None:
    seen = []
    begin = datetime.now(UTC)

    def release() -> VirtualClock:
        runner = new_runner()

        @runner.every(timedelta(minutes=10))
        async def look() -> None:
            seen.append(nominal())

        return VirtualClock(runner)

    await release().advance(minutes=6)
    await release().advance_to(begin + timedelta(minutes=12))
    await release().advance_to(begin + timedelta(minutes=29))
    assert len(seen) == 2
    assert seen[1] - seen[0] == 10 * MINUTE_MS


async def test_a_schedule_stands_above_a_task_and_keeps_its_options(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []

    @runner.cron("0 12 * * *", name="lunch", args=["soup"], kwargs={"plates": 2})
    @runner.cron("0 18 * * *", name="dinner", args=["pie"])
    @runner.task(queue="kitchen", priority="high")
    async def cook(dish: str, plates: int = 4) -> None:
        seen.append((dish, plates, current_task().queue, current_task().id.split("@")[0]))

    await clock.advance(hours=24)
    assert sorted(seen) == [("pie", 4, "kitchen", "dinner"), ("soup", 2, "kitchen", "lunch")]
    assert [each.name for each in await runner.schedules.list(queue="kitchen")] == ["dinner", "lunch"]


async def test_a_plain_function_may_recur_too(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []

    @runner.every(60)
    def count() -> None:
        seen.append(1)

    await clock.advance(minutes=3)
    assert len(seen) == 3


async def test_two_schedules_of_one_name_are_refused_where_they_are_declared(runner: TaskRunner) -> None:
    @runner.task
    async def look() -> None: ...

    runner.every(60)(look)
    with pytest.raises(InvalidOption, match="name='look'"):
        runner.cron("* * * * *")(look)
    with pytest.raises(InvalidOption, match="cron='nonsense'"):
        runner.cron("nonsense")(look)


async def test_start_and_until_bound_it(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []
    begin = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)

    @runner.every(60, start=begin, until=begin + timedelta(minutes=3))
    async def between() -> None:
        seen.append(datetime.fromtimestamp(nominal() / 1000, UTC))

    await clock.advance(hours=5)
    assert seen == [begin + timedelta(minutes=number) for number in range(4)]
    (info,) = await runner.schedules.list()
    assert info.next_ms is None


async def test_jitter_delays_a_run_and_leaves_its_slot(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []

    @runner.cron("* * * * *", jitter=20)
    async def spread() -> None:
        seen.append((current_task().fire_ms or 0) - nominal())

    await clock.advance(minutes=30)
    assert all(0 <= late <= 20_000 for late in seen)
    assert len(set(seen)) > 10


# ------------------------------------------------------------------------------------------------------------ deployed


async def test_a_changed_definition_is_deployed_and_the_old_release_beside_it_ticks_the_new_one(
    new_runner: NewRunner,
) -> None:
    seen = []

    def release(version: str, expression: str) -> TaskRunner:
        runner = new_runner()

        @runner.task
        async def report(told: str) -> None:
            seen.append((told, nominal() // MINUTE_MS % 60))

        runner.cron(expression, args=[version])(report)
        return runner

    old = release("old", "*/10 * * * *")
    clock = VirtualClock(old)
    await clock.advance_to((clock.now() + timedelta(hours=2)).replace(minute=5))
    assert ("old", 0) in seen
    new = release("new", "*/15 * * * *")
    new.clock_shift.us = old.clock_shift.us
    await new.write_schedules()
    seen.clear()
    # the old release goes on working, without being started anew
    await asyncio.gather(*(keep_ticking(old, new) for _ in range(2)))
    await old.start(scheduler=False)
    assert old.worker is not None
    await old.worker.until_idle()
    assert seen == [("new", minute) for minute in (15, 30, 45, 0)]


async def keep_ticking(old: TaskRunner, new: TaskRunner) -> None:
    """Both releases tick for an hour, side by side."""
    from firetime.store.clock import ServerClock
    from firetime.upkeep.beat import Beat

    beats = [
        Beat(await one.desk.server(), one.desk.keys("default"), one.desk.house.codec, ServerClock())
        for one in (old, new)
    ]
    for _ in range(30):
        for one in (old, new):
            one.clock_shift.us += 60_000_000
        await asyncio.gather(*(beat.tick(attended_ms=0) for beat in beats))


async def test_a_deploy_that_leaves_the_times_alone_skips_no_slot_that_is_due(new_runner: NewRunner) -> None:
    seen = []

    def release(version: str) -> VirtualClock:
        runner = new_runner()

        @runner.every(timedelta(hours=1), args=[version])
        async def report(told: str) -> None:
            seen.append(told)

        return VirtualClock(runner)

    await release("old").advance(minutes=50)
    await release("new").advance(minutes=70)
    assert seen == ["new"]


async def test_a_definition_that_nobody_here_can_read_stops_no_other(
    runner: TaskRunner, clock: VirtualClock, raw: Redis, drain: Drain
) -> None:
    seen, told = [], []

    @runner.every(0.05)
    async def look() -> None:
        seen.append(1)

    @runner.on_error
    def note(error: BaseException) -> None:
        told.append(error)

    keys = QueueKeys(runner.settings.prefix, "default")
    future = [f"future{number:02}" for number in range(40)]
    for name in future:
        await raw.hset(keys.schedules, name, f'abc 0 {{"name":"{name}","misfire":"rarely"}}')
        await raw.zadd(keys.schedules_due, {name: 1})
    await runner.start()
    await until(lambda: len(seen) >= 5)
    await until(lambda: len(told) >= 40)
    assert sorted(str(error).split("'")[1] for error in told) == future  # each is told once
    first, *_ = await runner.schedules.list()
    assert "a definition that this release can read" in first.problem
    for name in future:
        await runner.schedules.remove(name)


async def test_without_a_leader_slots_are_ticked_a_second_late_and_none_is_missed_for_that(
    new_runner: NewRunner, raw: Redis
) -> None:
    runner = new_runner()
    seen: list[int] = []

    @runner.every(0.5, misfire="skip", grace=0)
    async def look() -> None:
        seen.append(nominal())

    await raw.set(f"{runner.settings.prefix}:{{default}}:leader", "dead 7 0", px=60_000)
    await runner.start()
    await until(lambda: len(seen) >= 4)
    assert seen == list(range(seen[0], seen[0] + 500 * len(seen), 500))


async def test_schedules_that_code_declares_come_back_after_the_server_has_lost_its_data(
    new_runner: NewRunner, raw: Redis
) -> None:
    runner = new_runner(leader_lease=0.3)
    seen: list[str] = []
    slots: list[tuple[int, str]] = []

    def note(name: str) -> None:
        seen.append(name)
        slots.append((current_task().nominal_ms or 0, name))

    @runner.every(0.05)
    async def declared() -> None:
        note("declared")

    @runner.task
    async def added() -> None:
        note("added")

    await runner.start()
    await runner.schedules.add("added", added, every=0.05)
    await until(lambda: {"declared", "added"} <= set(seen))
    await runner.schedules.remove("declared")
    await runner.stop()
    await runner.start()
    await until(lambda: seen[-1] == "declared")
    await raw.flushall()
    # what had been claimed before runs on: only later slots tell which schedules there are
    flushed_ms = await server_ms(raw)
    await until(lambda: sum(at > flushed_ms for at, _ in slots) > 2)
    assert {name for at, name in slots if at > flushed_ms} == {"declared"}


# ----------------------------------------------------------------------------------------------------------- at run time


async def test_a_schedule_is_added_listed_changed_and_removed(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []

    @runner.task
    async def greet(name: str) -> None:
        seen.append(name)

    schedules = runner.schedules
    assert await schedules.add("hello", greet, args=["Ada"], cron="0 * * * *", tz="Europe/Berlin") == "added"
    assert await schedules.add("hello", greet, args=["Ada"], cron="0 * * * *", tz="Europe/Berlin") == "same"
    assert await schedules.add("by.name", "elsewhere", every=7200) == "added"
    named, hello = await schedules.list()
    assert (hello.task, hello.cron, hello.tz, hello.paused) == ("greet", "0 * * * *", "Europe/Berlin", False)
    assert (named.task, named.every_s, named.cron) == ("elsewhere", 7200, None)
    assert hello.next_ms is not None
    assert 0 < hello.next_ms - clock.now().timestamp() * 1000 <= 3_600_000
    await schedules.remove("by.name")
    await clock.advance(hours=1)
    assert await schedules.add("hello", greet, args=["Grace"], every=3600) == "changed"
    await clock.advance(hours=1, minutes=1)
    assert seen == ["Ada", "Grace"]
    await schedules.remove("hello")
    await clock.advance(hours=2)
    assert (seen, await schedules.list()) == (["Ada", "Grace"], [])


async def test_a_paused_schedule_has_no_slots_and_goes_on_from_its_next_one(
    runner: TaskRunner, clock: VirtualClock
) -> None:
    seen = []

    @runner.cron("* * * * *", misfire="all")
    async def minutely() -> None:
        seen.append(1)

    await clock.advance(minutes=2)
    assert len(seen) == 2
    await runner.schedules.pause("minutely")
    await runner.schedules.pause("minutely")
    await clock.advance(minutes=10)
    (info,) = await runner.schedules.list()
    assert (len(seen), info.paused, info.next_ms) == (2, True, None)
    await runner.schedules.resume("minutely")
    await runner.schedules.resume("minutely")
    await clock.advance(minutes=3)
    assert len(seen) == 5


async def test_a_pause_outlives_a_deploy(new_runner: NewRunner) -> None:
    seen = []

    def release(interval: float) -> TaskRunner:
        runner = new_runner()

        @runner.every(interval)
        async def look() -> None:
            seen.append(1)

        return runner

    old, new = release(60), release(30)
    await old.write_schedules()
    await old.schedules.pause("look")
    await VirtualClock(new).advance(minutes=5)
    assert seen == []
    await new.schedules.resume("look")
    await VirtualClock(new).advance(seconds=61)
    assert len(seen) == 2


async def test_a_run_is_triggered_beside_the_slots_and_while_paused(runner: TaskRunner, clock: VirtualClock) -> None:
    seen = []

    @runner.cron("0 0 1 1 *", args=[7])
    @runner.task(result_ttl=60)
    async def yearly(number: int) -> int:
        seen.append(current_task().nominal_ms)
        return number

    await runner.write_schedules()
    await runner.schedules.pause("yearly")
    handle = await runner.schedules.trigger("yearly")
    await clock.advance()
    assert seen == [None]
    assert await handle.result(timeout=5) == 7
    assert handle.task_id.startswith("yearly@")


async def test_what_is_not_there_is_told(runner: TaskRunner) -> None:
    for attempt in ("pause", "resume", "remove", "trigger"):
        with pytest.raises(MessageNotFound, match="nobody"):
            await getattr(runner.schedules, attempt)("nobody")


async def test_one_that_is_added_while_everyone_sleeps_is_heard_of(new_runner: NewRunner) -> None:
    runner = new_runner(leader_lease=60)
    seen = []

    @runner.task
    async def look() -> None:
        seen.append(1)

    await runner.start()
    await until(lambda: runner.worker is not None and runner.worker.leads)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await runner.schedules.add("soon", look, every=0.05)
    await until(lambda: len(seen) >= 3)
    assert loop.time() - begun < 4  # nobody asks by itself before 5 s are over
    await runner.schedules.remove("soon")


async def test_pausing_and_deploying_at_the_same_time_loses_neither(runner: TaskRunner) -> None:
    @runner.task
    async def look(number: int) -> None: ...

    await runner.schedules.add("x", look, args=[-1], every=60)
    for number in range(10):
        change = runner.schedules.add("x", look, args=[number], every=60)
        flip = (runner.schedules.pause, runner.schedules.resume)[number % 2]("x")
        said, _ = await asyncio.gather(change, flip)
        (info,) = await runner.schedules.list()
        assert (said, info.paused, info.next_ms is None) == ("changed", number % 2 == 0, number % 2 == 0)


# ------------------------------------------------------------------------------------------------- overlapping, unique


async def test_a_run_that_waits_for_its_retry_lives_and_must_not_be_overlapped(
    runner: TaskRunner, clock: VirtualClock
) -> None:
    seen = []

    @runner.cron("* * * * *", overlap="skip")
    @runner.task(max_retry=1, backoff=Fixed(150))
    async def slow() -> None:
        seen.append((nominal(), current_task().attempt))
        if len(seen) == 1:
            raise ValueError

    await clock.advance(minutes=5)
    first = seen[0][0]
    # the retry comes half a minute after the second slot that it kept out
    assert [((slot - first) // MINUTE_MS, attempt) for slot, attempt in seen] == [(0, 1), (0, 2), (3, 1), (4, 1)]


async def test_a_unique_task_is_not_sent_again_by_a_slot_while_its_key_is_held(
    runner: TaskRunner, clock: VirtualClock
) -> None:
    seen, troubles = [], []

    @runner.on_error
    def note(error: BaseException) -> None:
        troubles.append(error)

    @runner.cron("* * * * *")
    @runner.task(unique_for="done", max_retry=1, backoff=Fixed(90))
    async def rebuild() -> None:
        seen.append(current_task().nominal_ms or 0)
        if len(seen) == 1:
            raise ValueError

    await clock.advance(minutes=1)
    with pytest.raises(TaskAlreadyDispatched):
        await rebuild.dispatch()
    with pytest.raises(TaskAlreadyDispatched):
        await runner.schedules.trigger("rebuild")
    await clock.advance(minutes=3)
    assert [(slot - seen[0]) // MINUTE_MS for slot in seen] == [0, 0, 2, 3]
    assert troubles == []
    handle = await rebuild.dispatch()
    await clock.advance()
    assert await handle.status() == Status.UNKNOWN
