"""`bury`: running -> dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firetime.values.errors import BrokerRefused
from tests.edges import states
from tests.edges.driver import ME, OTHER, Sent

if TYPE_CHECKING:
    from tests.edges.driver import Driver

not_held = pytest.mark.parametrize("arrange", states.NOT_HELD, ids=lambda arrange: arrange.__name__)
NOTES = b'3 4 {"failures":4,"reason":"exhausted"}'


@not_held
async def test_a_late_burial_is_refused_and_changes_nothing(q: Driver, arrange: states.Arrange) -> None:
    held = await arrange(q)
    before = await q.look()
    assert await q.bury(held, state=NOTES, key="key", metrics=[("task_failed", 1)]) == ["a"]
    assert await q.look() == before


async def test_a_dead_letter_keeps_its_record_and_its_state_and_stands_in_no_lane(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", record=b"\x00\xff"))
    held = await q.take("a")
    before = await q.look()
    assert await q.bury(held, state=NOTES, key="key") == []
    assert await q.look() == before.but(
        state={"a": NOTES},
        places={},
        lanes={"h": {}, "n": {}, "l": {}},
        pending={},
        unique={},
        dead=frozenset({"a"}),
    )
    assert before.tasks == {"a": b"\x00\xff"}


async def test_a_second_burial_is_refused_and_changes_nothing(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.bury(held, state=NOTES, metrics=[("task_failed", 1)])
    before = await q.look()
    assert await q.bury(held, state=b"0 0 {}", metrics=[("task_failed", 1)]) == ["a"]
    assert await q.look() == before
    assert before.metrics == {"task_failed": 1}


async def test_a_dead_letter_knows_when_it_died_on_the_servers_clock(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    from_ms = await q.now_ms()
    await q.bury(held)
    assert from_ms <= await q.raw.zscore(q.keys.dead, "a") <= await q.now_ms()


async def test_a_death_is_announced(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    async with q.listening(q.keys.ended_channel) as heard:
        await q.bury(held)
        await q.bury(held)
    assert heard == ["a"]


async def test_a_wish_to_cancel_dies_with_the_task(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.cancel("a")
    await q.bury(held)
    after = await q.look()
    assert (after.cancelling, after.dead) == (frozenset(), {"a"})


async def test_a_key_that_another_took_over_is_not_freed(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key"))
    held = await q.take("a")
    await q.send("b")
    await q.raw.hset(q.keys.unique, "key", "0 b")
    await q.bury(held, key="key")
    assert (await q.look()).unique == {"key": "0 b"}


async def test_a_mixed_batch_buries_what_is_held_and_names_the_rest(q: Driver) -> None:
    await q.send("a", "b", "c")
    a, b, c = (await q.claim()).given
    assert await q.bury(c, a.with_count(2), b) == ["a"]
    after = await q.look()
    assert (after.dead, after.pending) == ({"b", "c"}, {a.place: (ME, 1)})


async def test_the_wrong_worker_cannot_bury(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    before = await q.look()
    assert await q.bury(held, consumer=OTHER) == ["a"]
    assert await q.look() == before


async def test_five_hundred_are_buried_in_one_call(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(500)]
    await q.send(*ids)
    assert await q.bury(*(await q.claim(free=500)).given) == []
    after = await q.look()
    assert (after.dead, after.places, after.pending) == (set(ids), {}, {})


async def test_a_dead_set_that_is_none_refuses_before_anything_is_written(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.raw.set(q.keys.dead, "foreign")
    with pytest.raises(BrokerRefused):
        await q.bury(held)
    await q.raw.delete(q.keys.dead)
    assert (await q.look()).pending == {held.place: (ME, 1)}
    assert await q.bury(held) == []
