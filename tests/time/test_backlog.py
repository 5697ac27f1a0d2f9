"""Many messages, due at one instant or waiting far ahead: each is promoted once, and none makes another dearer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.edges.driver import HOUR_MS, Sent

if TYPE_CHECKING:
    from tests.edges.driver import Driver

LATER_MS = 4_000_000_000_000


async def script_us(q: Driver) -> int:
    stats = (await q.raw.info("commandstats")).get("cmdstat_evalsha", {})
    return int(stats.get("usec", 0))


async def send(q: Driver, count: int, *, at_ms: int, apart_ms: int = 0, prefix: str = "") -> list[str]:
    ids = [f"{prefix}{number:06}" for number in range(count)]
    for first in range(0, count, 500):
        batch = [Sent(id=ids[i], at_ms=at_ms + i * apart_ms) for i in range(first, min(count, first + 500))]
        assert await q.dispatch(*batch) == []
    return ids


async def promote_all(q: Driver, most: int = 250) -> tuple[int, float]:
    """How many were promoted, and the server's time for each, in us."""
    moved, before = 0, await script_us(q)
    while (promoted := await q.promote(most=most)).moved:
        assert promoted.moved <= most
        moved += promoted.moved
    return moved, (await script_us(q) - before) / max(moved, 1)


async def test_twenty_thousand_for_one_instant_are_each_promoted_once_in_order(q: Driver) -> None:
    ids = await send(q, 20_000, at_ms=LATER_MS)
    await q.lead()
    q.server.shift.stopped_us = LATER_MS * 1000 - 1
    assert (await q.promote()).moved == 0
    q.server.shift.stopped_us = LATER_MS * 1000
    moved, cost_us = await promote_all(q)
    assert moved == 20_000
    lane = [fields[b"i"].decode() for _, fields in await q.raw.xrange(q.keys.normal)]
    assert lane[:4096] == ids[:4096]  # first in, first out; those beyond by id, which here is the same
    assert sorted(lane) == ids
    assert cost_us < 200  # 6 to 13 where nothing else runs


async def test_what_waits_far_ahead_does_not_make_a_promotion_dearer(q: Driver) -> None:
    costs = []
    await q.lead()
    for number, waiting in enumerate((1_000, 100_000)):
        await fill(q, waiting)
        due_ms = LATER_MS + number * HOUR_MS
        await send(q, 2_500, at_ms=due_ms, prefix=f"due{number}-")
        await q.travel_to(due_ms)
        moved, cost_us = await promote_all(q)
        assert moved == 2_500
        costs.append(cost_us)
    assert costs[1] < 20 * costs[0]  # the same, but for noise; were each looked at, a hundred times as much


async def fill(q: Driver, count: int) -> None:
    """Members far ahead, without records: promotion does not look at either."""
    script = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], ARGV[2] + i, 'waiting' .. i .. 'n') end"
    await q.raw.eval(script, 1, q.keys.delayed, count, 2 * LATER_MS * 4096)
