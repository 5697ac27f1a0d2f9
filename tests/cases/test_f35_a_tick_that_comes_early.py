"""F35: the tick handler wakes 5 ms early; its slot is neither run then nor skipped, and the next one is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firetime import current_task
from firetime.store.clock import ServerClock
from firetime.testing import VirtualClock
from firetime.upkeep.beat import Beat

if TYPE_CHECKING:
    from firetime import TaskRunner
    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")


def stop_clock(runner: TaskRunner, at_ms: int) -> None:
    runner.clock_shift.stopped_us = at_ms * 1000


async def test_neither_skipped_nor_run_twice(new_runner: NewRunner) -> None:
    runner = new_runner()
    seen: list[int] = []

    @runner.cron("* * * * *")
    async def minutely() -> None:
        seen.append(current_task().nominal_ms or 0)

    await runner.write_schedules()
    (info,) = await runner.schedules.list()
    first = info.next_ms
    assert first is not None
    beat = Beat(await runner.desk.server(), runner.desk.keys("default"), runner.desk.house.codec, ServerClock())
    for number in range(10):
        slot = first + number * 60_000
        for wakes_ms, sent in ((-5, 0), (-1, 0), (0, 1), (1, 0)):
            stop_clock(runner, slot + wakes_ms)
            beaten = await beat.tick(attended_ms=0)
            assert beaten.sent == sent
            assert beaten.next_ms == (slot if wakes_ms < 0 else slot + 60_000)
    await VirtualClock(runner).advance()
    assert seen == [first + number * 60_000 for number in range(10)]


async def test_a_tick_that_was_planned_on_an_early_clock_is_refused(new_runner: NewRunner) -> None:
    """Its handler thought that the slot was due; the script looks at the server's clock itself."""
    runner = new_runner()

    @runner.cron("* * * * *")
    async def minutely() -> None: ...

    await runner.write_schedules()
    (info,) = await runner.schedules.list()
    slot = info.next_ms
    assert slot is not None
    server, keys = await runner.desk.server(), runner.desk.keys("default")
    kept = await server.ask("HGET", keys.schedules, "minutely")
    arguments = {
        "name": "minutely",
        "fingerprint": kept.split(b" ")[0],
        "slot_ms": slot,
        "next_ms": slot + 60_000,
        "overlap": "run",
        "unique_key": "",
        "hold_ms": 0,
    }
    run: list[str | bytes | int] = [f"minutely@{slot}", b"{}", "n", slot]
    stop_clock(runner, slot - 5)
    assert await server.run("tick", keys, arguments, run) == [b"early", 0, slot]
    (info,) = await runner.schedules.list()
    assert (info.next_ms, info.last_id) == (slot, None)
