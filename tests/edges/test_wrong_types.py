"""A key that is not what it should be: an error that says so, and no message is lost by it once the key is mended."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from firetime.values.errors import BrokerRefused
from tests.edges.driver import HOUR_MS, Ended

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.edges.driver import Driver, Given


@asynccontextmanager
async def spoiled(q: Driver, key: str) -> AsyncIterator[None]:
    """Somebody wrote over a key; what it held is back at the end."""
    kept = f"{key}:kept"
    had = await q.raw.exists(key)
    if had:
        await q.raw.rename(key, kept)
    await q.raw.set(key, "foreign")
    yield
    await q.raw.delete(key)
    if had:
        await q.raw.rename(kept, key)


SETTLE: dict[str, Callable[[Driver, Given], Awaitable[object]]] = {
    "complete": lambda q, held: q.complete(held),
    "complete with a result": lambda q, held: q.complete(others=[Ended(held=held, remember_ms=HOUR_MS)]),
    "retry": lambda q, held: q.retry(held),
    "retry later": lambda q, held: q.retry(held, delay_us=1_000_000),
    "bury": lambda q, held: q.bury(held),
    "release": lambda q, held: q.release(held),
    "renew": lambda q, held: q.renew(held),
}


@pytest.mark.parametrize("way", list(SETTLE))
async def test_nothing_is_settled_in_a_lane_that_is_no_stream(q: Driver, way: str) -> None:
    await q.send("a")
    held = await q.take("a")
    before = await q.look()
    async with spoiled(q, q.keys.normal):
        with pytest.raises(BrokerRefused, match="WRONGTYPE"):
            await SETTLE[way](q, held)
    assert await q.look() == before
    await SETTLE[way](q, held)


@pytest.mark.parametrize("name", ["state", "places"])
@pytest.mark.parametrize("way", ["retry", "retry later", "bury", "release"])
async def test_nothing_is_taken_out_of_a_lane_that_could_not_be_put_elsewhere(q: Driver, way: str, name: str) -> None:
    await q.send("a")
    held = await q.take("a")
    before = await q.look()
    async with spoiled(q, getattr(q.keys, name)):
        with pytest.raises(BrokerRefused, match="WRONGTYPE"):
            await SETTLE[way](q, held)
    assert await q.look() == before
    await SETTLE[way](q, held)


@pytest.mark.parametrize("name", ["normal", "places"])
@pytest.mark.parametrize("way", ["promote", "reschedule"])
async def test_what_is_delayed_stays_so_where_it_cannot_become_ready(q: Driver, way: str, name: str) -> None:
    await q.send("a", at_ms=await q.now_ms() + HOUR_MS)
    await q.travel_to(await q.now_ms() + 2 * HOUR_MS)
    before = await q.look()
    async with spoiled(q, getattr(q.keys, name)):
        with pytest.raises(BrokerRefused, match="WRONGTYPE"):
            await (q.promote() if way == "promote" else q.reschedule("a", in_us=0))
    assert await q.look() == before
    await q.promote()
    assert (await q.claim()).ids == ["a"]


@pytest.mark.parametrize("name", ["normal", "state", "places", "unique"])
async def test_a_dead_letter_stays_one_where_it_cannot_be_replayed(q: Driver, name: str) -> None:
    await q.send("a")
    await q.bury(await q.take("a"))
    before = await q.look()
    async with spoiled(q, getattr(q.keys, name)):
        with pytest.raises(BrokerRefused, match="WRONGTYPE"):
            await q.replay("a")
    assert await q.look() == before
    assert await q.replay("a") == []


@pytest.mark.parametrize("name", ["tasks", "places", "state", "cancelling"])
async def test_what_a_failing_claim_took_comes_back_when_the_key_is_mended(q: Driver, name: str) -> None:
    await q.send("a", "b")
    await q.claim(free=1)
    await q.retry(*(await q.sweep("me")).given, state=b"0 1 {a}")
    await q.claim("other", free=1)
    async with spoiled(q, getattr(q.keys, name)):
        with pytest.raises(BrokerRefused, match="WRONGTYPE"):
            await q.claim("other")
    assert sorted((await q.sweep("me")).ids) == ["a", "b"]


@pytest.mark.parametrize("name", ["bell", "metrics", "wake"])
@pytest.mark.parametrize("way", [way for way in SETTLE if way != "renew"])
async def test_a_bell_a_wake_or_a_counter_that_does_not_work_stops_nobody(q: Driver, way: str, name: str) -> None:
    await q.send("a")
    held = await q.take("a")
    async with spoiled(q, getattr(q.keys, name)):
        assert await SETTLE[way](q, held) in ([], ([], []))


@pytest.mark.parametrize("name", ["swept", "bell"])
async def test_a_sweep_mark_of_a_wrong_type_does_not_stop_a_claim(q: Driver, name: str) -> None:
    await q.send("a")
    async with spoiled(q, getattr(q.keys, name)):
        assert (await q.claim(sweep=True, lease_ms=0, free=1)).ids == ["a"]


@pytest.mark.parametrize("name", ["delayed", "places", "dead"])
async def test_a_question_about_a_spoiled_queue_is_an_error(q: Driver, name: str) -> None:
    async with spoiled(q, getattr(q.keys, name)):
        with pytest.raises(BrokerRefused, match="WRONGTYPE"):
            await q.status("a")
        with pytest.raises(BrokerRefused, match="WRONGTYPE"):
            await q.cancel("a")
