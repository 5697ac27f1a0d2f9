"""F32: a cron of each second, six workers, a task that takes a millisecond: each scheduled time is run once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from firetime import current_task
from firetime.store.clock import ServerClock
from firetime.testing import VirtualClock
from firetime.upkeep.beat import Beat
from tests.kit.waiting import until

if TYPE_CHECKING:
    from firetime import TaskRunner
    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")


def six(new_runner: NewRunner, seen: list[int]) -> list[TaskRunner]:
    runners = [new_runner() for _ in range(6)]
    for runner in runners:

        @runner.cron("* * * * * *")
        async def tick() -> None:
            seen.append(current_task().nominal_ms or 0)
            await asyncio.sleep(0.001)

    return runners


async def test_six_workers_in_real_time(new_runner: NewRunner) -> None:
    seen: list[int] = []
    runners = six(new_runner, seen)
    await asyncio.gather(*(runner.start() for runner in runners))
    await until(lambda: len(seen) >= 5, timeout=20)
    await asyncio.gather(*(runner.stop() for runner in runners))
    assert seen == list(range(seen[0], seen[0] + 1000 * len(seen), 1000))


async def test_a_minute_of_which_six_schedulers_tick_each_second_at_once(new_runner: NewRunner) -> None:
    seen: list[int] = []
    runners = six(new_runner, seen)
    await VirtualClock(runners[0]).advance(seconds=1)
    for runner in runners[1:]:
        runner.clock_shift.us = runners[0].clock_shift.us
    beats = [
        Beat(await runner.desk.server(), runner.desk.keys("default"), runner.desk.house.codec, ServerClock())
        for runner in runners
    ]
    for _ in range(60):
        for runner in runners:
            runner.clock_shift.us += 1_000_000
        await asyncio.gather(*(beat.tick(attended_ms=0) for beat in beats))
    await VirtualClock(runners[0]).advance()
    minute = seen[:61]
    assert minute == list(range(seen[0], seen[0] + 61_000, 1000))
