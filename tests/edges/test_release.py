"""`release`: running -> ready, at no cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.edges import states
from tests.edges.driver import ME, OTHER

if TYPE_CHECKING:
    from tests.edges.driver import Driver

not_held = pytest.mark.parametrize("arrange", states.NOT_HELD, ids=lambda arrange: arrange.__name__)


@not_held
async def test_a_late_release_is_refused_and_changes_nothing(q: Driver, arrange: states.Arrange) -> None:
    held = await arrange(q)
    before = await q.look()
    assert await q.release(held, started=True) == ["a"]
    assert await q.look() == before


async def test_what_did_not_start_goes_back_as_if_it_had_never_been_claimed(q: Driver) -> None:
    await q.send("a", letter="h")
    held = await q.take("a")
    before = await q.look()
    assert await q.release(held, letter="h", fire_ms=1234) == []
    after = await q.look()
    (entry,) = after.lanes["h"]
    assert entry != held.entry
    assert after == before.but(
        lanes={"h": {entry: {"i": "a", "f": "1234"}}, "n": {}, "l": {}}, places={"a": f"h{entry}"}, pending={}, bell=1
    )
    again = await q.take("a", OTHER)
    assert (again.deliveries, again.state, again.fire_ms) == (1, None, 1234)


async def test_a_second_release_is_refused_and_changes_nothing(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.release(held, started=True)
    before = await q.look()
    assert await q.release(held, started=True) == ["a"]
    assert await q.look() == before


async def test_an_interrupted_run_counts_as_a_delivery_but_not_as_a_crash(q: Driver) -> None:
    await q.send("a")
    await q.release(await q.take("a"), started=True)
    assert (await q.look()).state == {"a": b"0 1 {}"}
    await q.release(await q.take("a"), started=True)
    assert (await q.look()).state == {"a": b"0 2 {}"}


async def test_crashes_before_this_delivery_are_carried_along(q: Driver) -> None:
    await q.send("a")
    await q.take("a")
    (second,) = (await q.sweep(ME)).given
    assert second.deliveries == 2
    await q.release(second)
    assert (await q.look()).state == {"a": b"1 2 {}"}
    third = await q.take("a")
    assert (third.deliveries, third.state) == (1, b"1 2 {}")


async def test_what_was_noted_before_is_carried_along_byte_for_byte(q: Driver) -> None:
    notes = b'{"failures":3,"first":[["E","\x00\xff\n 1 2 {}","",1]]}'
    await q.send("a")
    await q.retry(await q.take("a"), state=b"2 5 " + notes)
    await q.take("a")
    (second,) = (await q.sweep(ME)).given
    await q.release(second, started=True)
    assert (await q.look()).state == {"a": b"3 7 " + notes}


async def test_a_state_that_nobody_can_read_is_left_alone(q: Driver) -> None:
    await q.send("a")
    await q.raw.hset(q.keys.state, "a", "garbage")
    assert await q.release(await q.take("a"), started=True) == []
    assert (await q.look()).state == {"a": b"garbage"}


async def test_a_release_rings_at_once_with_one_token(q: Driver) -> None:
    await q.send("a", "b")
    a, b = (await q.claim()).given
    await q.raw.delete(q.keys.bell)
    await q.release(a)
    await q.release(b)
    assert (await q.look()).bell == 1


async def test_a_release_of_a_paused_queue_does_not_ring(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.raw.delete(q.keys.bell)
    await q.pause()
    await q.release(held)
    assert (await q.look()).bell == 0


async def test_a_wish_to_cancel_survives_a_release(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.cancel("a")
    await q.release(held)
    assert (await q.take("a")).cancel_asked


async def test_a_mixed_batch_goes_back_in_the_order_it_is_given(q: Driver) -> None:
    await q.send("a", "b", "c", "d")
    a, b, c, d = (await q.claim()).given
    assert await q.release(d, b.with_count(3), a) == ["b"]
    after = await q.look()
    assert after.pending == {b.place: (ME, 1), c.place: (ME, 1)}
    assert (await q.claim()).ids == ["d", "a"]


async def test_the_wrong_worker_cannot_release(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    before = await q.look()
    assert await q.release(held, consumer=OTHER) == ["a"]
    assert await q.release(held, letter="h") == ["a"]
    assert await q.look() == before


async def test_five_hundred_go_back_in_one_call(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(500)]
    await q.send(*ids)
    assert await q.release(*(await q.claim(free=500)).given, started=True) == []
    again = await q.claim(OTHER, free=500)
    assert again.ids == ids
    assert {one.state for one in again.given} == {b"0 1 {}"}
