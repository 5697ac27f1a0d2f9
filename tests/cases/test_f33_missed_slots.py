"""F33: all workers are down over three ticks; 0, 1 or 3 runs follow, and each sees the time it is for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

import pytest

from firetime import current_task
from firetime.testing import VirtualClock
from tests.kit.waiting import until
from tests.story.stage import server_ms

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")

MINUTE_MS = 60_000
Misfire = Literal["skip", "once", "all"]


@pytest.mark.parametrize(("misfire", "missed"), [("skip", []), ("once", [3]), ("all", [1, 2, 3])])
async def test_three_minutes_without_anyone(new_runner: NewRunner, misfire: Misfire, missed: list[int]) -> None:
    runner = new_runner()
    clock = VirtualClock(runner)
    seen: list[int] = []

    @runner.cron("* * * * *", misfire=misfire)
    async def minutely() -> None:
        seen.append(current_task().nominal_ms or 0)

    # half a minute before a slot, and so half a minute after one
    await clock.advance_to((clock.now() + timedelta(hours=1)).replace(second=30, microsecond=0))
    last = seen[-1]
    seen.clear()
    await clock.skip(minutes=3)
    await clock.advance()
    assert [(slot - last) // MINUTE_MS for slot in seen] == missed
    await clock.advance(minutes=1)
    assert [(slot - last) // MINUTE_MS for slot in seen] == [*missed, 4]


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
async def test_a_worker_that_was_really_stopped(new_runner: NewRunner, raw: Redis, misfire: Misfire) -> None:
    seen: list[int] = []
    runner = new_runner()

    @runner.every(0.5, misfire=misfire, grace=0)
    async def twice_a_second() -> None:
        seen.append(current_task().nominal_ms or 0)

    await runner.start()
    await until(lambda: seen)
    await runner.stop()
    stopped_ms, last_ms = await server_ms(raw), seen[-1]

    async def three_slots_are_past() -> bool:
        return await server_ms(raw) > stopped_ms + 3 * 500 + 100

    await until(three_slots_are_past)
    back_ms = await server_ms(raw)
    await runner.start()
    await until(lambda: seen[-1] > back_ms)
    missed = [slot for slot in range(last_ms + 500, back_ms, 500) if slot > stopped_ms]
    ran = [slot for slot in seen if slot in missed]
    # nothing where the next slot was due as well when it came back
    expected: dict[str, list[list[int]]] = {"skip": [[]], "once": [missed[-1:], []], "all": [missed]}
    assert ran in expected[misfire]
    assert len(set(seen)) == len(seen)
