"""`retry`: running -> delayed or ready, or cancelled where that was asked meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firetime.values.errors import BrokerRefused
from tests.edges import states
from tests.edges.driver import FRESH, HOUR_MS, ME, OTHER, Sent
from tests.edges.look import SLOTS

if TYPE_CHECKING:
    from tests.edges.driver import Driver

not_held = pytest.mark.parametrize("arrange", states.NOT_HELD, ids=lambda arrange: arrange.__name__)
NOTES = b'3 4 {"failures":1,"first":[["ValueError","\xc3\xa9 \n\\u0000","",1]]}'


@not_held
@pytest.mark.parametrize("delay_us", [0, HOUR_MS * 1000])
async def test_a_late_retry_is_refused_and_changes_nothing(q: Driver, arrange: states.Arrange, delay_us: int) -> None:
    held = await arrange(q)
    before = await q.look()
    reply = await q.retry(held, delay_us=delay_us, state=b"9 9 {}", key="key", hold_ms=1, metrics=[("task_failed", 1)])
    assert reply == (["a"], [])
    assert await q.look() == before


async def test_a_failed_task_waits_for_its_next_fire_time_and_stands_nowhere_else(q: Driver) -> None:
    await q.send("a", letter="h")
    held = await q.take("a")
    before = await q.look()
    from_ms = await q.now_ms()
    assert await q.retry(held, delay_us=60_000_000, state=NOTES, letter="h") == ([], [])
    after = await q.look()
    fire_ms = after.fire_ms("ah")
    assert from_ms + 60_000 <= fire_ms <= await q.now_ms() + 60_001
    assert after == before.but(
        state={"a": NOTES},
        places={},
        lanes={"h": {}, "n": {}, "l": {}},
        pending={},
        delayed={"ah": fire_ms * SLOTS},
        wake=(fire_ms,),
    )


async def test_a_retry_without_delay_is_ready_at_once_and_rings(q: Driver) -> None:
    await q.send("a", letter="l")
    held = await q.take("a")
    await q.raw.delete(q.keys.bell)
    assert await q.retry(held, delay_us=0, state=NOTES, letter="l") == ([], [])
    after = await q.look()
    assert after.entries("l") == ["a"]
    assert (after.pending, after.delayed, after.bell, after.state) == ({}, {}, 1, {"a": NOTES})
    again = await q.take("a")
    assert (again.deliveries, again.state, again.entry != held.entry) == (1, NOTES, True)


@pytest.mark.parametrize("delay_us", [0, 1_000_000])
async def test_a_second_retry_is_refused_and_changes_nothing(q: Driver, delay_us: int) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.retry(held, delay_us=delay_us, metrics=[("task_failed", 1)])
    before = await q.look()
    assert await q.retry(held, delay_us=delay_us, metrics=[("task_failed", 1)]) == (["a"], [])
    assert await q.look() == before


async def test_a_retry_of_a_paused_queue_does_not_ring(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.raw.delete(q.keys.bell)
    await q.pause()
    await q.retry(held)
    assert (await q.look()).bell == 0


async def test_a_delayed_retry_does_not_ring(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.raw.delete(q.keys.bell)
    await q.retry(held, delay_us=1_000_000)
    assert (await q.look()).bell == 0


async def test_promoters_are_woken_only_by_a_retry_that_comes_before_the_head(q: Driver) -> None:
    await q.send("a", "b")
    a, b = (await q.claim()).given
    await q.send("head", in_us=60_000_000)
    woken = (await q.look()).wake
    await q.retry(a, delay_us=120_000_000)
    assert (await q.look()).wake == woken
    await q.retry(b, delay_us=30_000_000)
    after = await q.look()
    assert after.wake == (after.fire_ms("bn"),)


async def test_a_retry_never_fires_early_by_a_millisecond(q: Driver) -> None:
    ids = [f"{i:02}" for i in range(15)]
    await q.send(*ids)
    for i, held in enumerate((await q.claim(free=15)).given):
        seconds, us = await q.raw.time()
        delay_us = 777 * i + 1
        await q.retry(held, delay_us=delay_us)
        after = await q.look()
        assert after.fire_ms(f"{held.id}n") * 1000 >= int(seconds) * 1_000_000 + int(us) + delay_us


async def test_a_task_asked_to_cancel_ends_as_cancelled_instead(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key"), Sent(id="b"))
    await q.retry(*(await q.claim()).given, state=NOTES)
    a, b = (await q.claim()).given
    assert await q.cancel("b") == "requested"
    async with q.listening(q.keys.ended_channel) as heard:
        assert await q.retry(a, b, key="key") == ([], ["b"])
    assert heard == ["b"]
    after = await q.look()
    assert after.tasks.keys() == after.state.keys() == after.places.keys() == {"a"}
    assert (after.ended, after.cancelling) == ({"b": "cancelled"}, frozenset())
    assert 0 < await q.raw.pttl(q.keys.ended("b")) <= HOUR_MS


async def test_the_key_of_one_that_ends_as_cancelled_is_free(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key"))
    held = await q.take("a")
    await q.cancel("a", key="key")
    assert await q.retry(held, delay_us=1_000, key="key") == ([], ["a"])
    after = await q.look()
    assert (after.unique, after.delayed, after.tasks) == ({}, {}, {})


async def test_a_cancelled_one_that_need_not_be_remembered_is_not(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.cancel("a")
    assert await q.retry(held, remember_ms=0) == ([], ["a"])
    after = await q.look()
    assert (after.ended, after.tasks) == ({}, {})


async def test_each_cancelled_one_is_remembered_under_its_own_id(q: Driver) -> None:
    await q.send("a", "b", "c", "d")
    a, b, c, d = (await q.claim()).given
    for id in ("b", "c", "d"):
        await q.cancel(id)
    assert await q.retry(a, b, c.with_count(2), d) == (["c"], ["b", "d"])
    assert (await q.look()).ended == {"b": "cancelled", "d": "cancelled"}


async def test_a_unique_key_is_held_anew_from_the_next_fire_time(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", hold_ms=10))
    held = await q.take("a")
    await q.retry(held, delay_us=60_000_000, key="key", hold_ms=5_000)
    after = await q.look()
    assert after.unique == {"key": f"{after.fire_ms('an') + 5_000} a"}


async def test_a_unique_key_without_end_stays_so(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key"))
    await q.retry(await q.take("a"), delay_us=1_000, key="key")
    assert (await q.look()).unique == {"key": "0 a"}


async def test_a_unique_key_taken_over_is_not_taken_back(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", hold_ms=1))
    held = await q.take("a")
    await q.send("b")
    await q.raw.hset(q.keys.unique, "key", "0 b")
    await q.retry(held, delay_us=1_000, key="key", hold_ms=5_000)
    assert (await q.look()).unique == {"key": "0 b"}


async def test_many_that_fail_together_keep_their_order_within_the_millisecond(q: Driver) -> None:
    ids = [f"{999 - i}" for i in range(500)]
    await q.send(*ids)
    given = (await q.claim(free=500)).given
    assert await q.retry(*given, delay_us=60_000_000) == ([], [])
    after = await q.look()
    assert after.delayed_ids() == ids
    assert len({score // SLOTS for score in after.delayed.values()}) == 1
    assert after.places == after.pending == {}


async def test_the_wrong_worker_cannot_retry(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    before = await q.look()
    assert await q.retry(held, consumer=OTHER) == (["a"], [])
    assert await q.retry(held.with_count(2)) == (["a"], [])
    assert await q.look() == before


async def test_metrics_are_counted_once(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    for _ in range(2):
        await q.retry(held, metrics=[("task_failed", 1)])
    assert (await q.look()).metrics == {"task_failed": 1}


async def test_a_delayed_set_that_is_none_refuses_before_anything_is_written(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.raw.set(q.keys.delayed, "foreign")
    with pytest.raises(BrokerRefused):
        await q.retry(held, delay_us=1_000)
    await q.raw.delete(q.keys.delayed)
    after = await q.look()
    assert (after.pending, after.entries()) == ({held.place: (ME, 1)}, ["a"])
    assert await q.retry(held, state=FRESH) == ([], [])
