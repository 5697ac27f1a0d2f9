"""F36: an operator purges the delayed set and all queued runs of a cron; the next tick takes place all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firetime import Fixed, current_task
from firetime.testing import VirtualClock

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")


@pytest.mark.parametrize("overlap", ["run", "skip"])
async def test_the_next_tick_takes_place(new_runner: NewRunner, raw: Redis, overlap: str) -> None:
    runner = new_runner()
    clock = VirtualClock(runner)
    seen: list[int] = []

    @runner.cron("* * * * *", jitter=30, overlap="skip" if overlap == "skip" else "run")
    @runner.task(max_retry=9, backoff=Fixed(86_400), unique_for="done" if overlap == "skip" else None)
    async def minutely() -> None:
        seen.append((current_task().nominal_ms or 0) // 60_000)
        raise ValueError

    keys = runner.desk.keys("default")
    for number in range(1, 6):
        await clock.advance(minutes=1, seconds=0.5)
        await clock.advance(seconds=30)
        # its run failed, and waits for its retry among the delayed ones: all of that is purged
        assert await raw.zcard(keys.delayed) >= 1
        purged = keys.delayed, keys.tasks, keys.state, keys.places, keys.unique, *keys.lanes.values()
        await raw.delete(*purged)
        assert len(seen) >= number
    assert len(set(seen)) == len(seen)
