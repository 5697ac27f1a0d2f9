"""`replay` and `purge`: dead -> ready, dead -> none."""

from __future__ import annotations

import pytest

from firetime.store.replies import StaleCall
from tests.edges import states
from tests.edges.driver import HOUR_MS, RECORD, Answer, Driver, Sent

NOT_DEAD = [arrange for arrange in states.NOT_HELD if arrange is not states.dead] + [states.running]
not_dead = pytest.mark.parametrize("arrange", NOT_DEAD, ids=lambda arrange: arrange.__name__)


async def bury(q: Driver, *ids: str, state: bytes = b"3 4 {notes}", key: str = "") -> None:
    await q.dispatch(*(Sent(id=id, key=key) for id in ids))
    await q.bury(*(await q.claim(free=500)).given, state=state, key=key)


# --------------------------------------------------------------------------------------------------------------- replay


@not_dead
async def test_what_is_not_dead_is_not_replayed(q: Driver, arrange: states.Arrange) -> None:
    await arrange(q)
    before = await q.look()
    assert await q.replay("a", key="key") == [Answer(0, "not dead", "")]
    assert await q.look() == before.but(others=before.others | {"call:replayer"})


async def test_a_dead_letter_is_ready_again_with_its_key_and_fresh_counters(q: Driver) -> None:
    await bury(q, "a", key="key")
    await q.raw.delete(q.keys.bell)
    before = await q.look()
    assert await q.replay("a", letter="h", key="key") == []
    after = await q.look()
    (entry,) = after.lanes["h"]
    assert after == before.but(
        dead=frozenset(),
        state={"a": b"0 4 {}"},
        places={"a": f"h{entry}"},
        lanes={"h": {entry: {"i": "a"}}, "n": {}, "l": {}},
        unique={"key": "0 a"},
        bell=1,
        others=before.others | {"call:replayer"},
    )
    assert (await q.take("a")).record == RECORD


async def test_deliveries_go_on_counting_so_that_the_fence_user_code_sees_grows(q: Driver) -> None:
    await bury(q, "a", state=b'2 7 {"failures":4}')
    await q.replay("a")
    again = await q.take("a")
    assert (again.deliveries, again.state) == (1, b"0 7 {}")


async def test_a_state_that_nobody_can_read_does_not_keep_a_letter_dead(q: Driver) -> None:
    await bury(q, "a", state=b"garbage")
    assert await q.replay("a") == []
    assert (await q.take("a")).state is None


async def test_a_second_call_with_a_new_number_finds_nothing_dead(q: Driver) -> None:
    await bury(q, "a")
    await q.replay("a")
    before = await q.look()
    assert await q.replay("a") == [Answer(0, "not dead", "")]
    assert await q.look() == before


async def test_a_repeated_call_is_answered_from_memory_also_when_the_task_died_again(q: Driver) -> None:
    await bury(q, "a")
    assert await q.replay("a", number=3) == []
    await q.bury(await q.take("a"))
    before = await q.look()
    assert await q.replay("a", number=3) == []
    assert await q.look() == before
    with pytest.raises(StaleCall):
        await q.replay("a", number=2)
    assert await q.replay("a", number=4) == []


async def test_a_letter_whose_key_is_held_by_another_stays_dead(q: Driver) -> None:
    await bury(q, "a", key="key")
    await q.dispatch(Sent(id="b", key="key"))
    before = await q.look()
    assert await q.replay("a", key="key") == [Answer(0, "held", "b")]
    after = await q.look()
    assert after == before.but(others=before.others | {"call:replayer"})


async def test_of_two_letters_with_one_key_one_is_replayed(q: Driver) -> None:
    await bury(q, "a", key="key")
    await bury(q, "b", key="key")
    assert await q.replay("a", "b", key="key") == [Answer(1, "held", "a")]
    after = await q.look()
    assert (after.dead, after.unique) == ({"b"}, {"key": "0 a"})


async def test_a_key_is_held_from_now_on(q: Driver) -> None:
    await bury(q, "a", key="key")
    from_ms = await q.now_ms()
    await q.replay("a", key="key", hold_ms=60_000)
    expiry, holder = (await q.look()).unique["key"].split(" ")
    assert holder == "a"
    assert from_ms + 60_000 <= int(expiry) <= await q.now_ms() + 60_000


async def test_one_id_twice_in_a_call_is_replayed_once(q: Driver) -> None:
    await bury(q, "a")
    assert await q.replay("a", "a") == [Answer(1, "not dead", "")]
    assert (await q.look()).entries() == ["a"]


async def test_a_letter_without_a_record_cannot_be_replayed(q: Driver) -> None:
    await bury(q, "a")
    await q.raw.hdel(q.keys.tasks, "a")
    assert await q.replay("a") == [Answer(0, "not dead", "")]
    assert await q.purge("a") == 1


async def test_a_replay_of_nothing_does_not_ring_and_one_into_a_paused_queue_neither(q: Driver) -> None:
    await bury(q, "a")
    await q.raw.delete(q.keys.bell)
    await q.replay("b")
    assert (await q.look()).bell == 0
    await q.pause()
    assert await q.replay("a") == []
    assert (await q.look()).bell == 0


async def test_five_hundred_are_replayed_in_one_call_in_the_order_given(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(500)]
    await bury(q, *ids)
    assert await q.replay(*reversed(ids)) == []
    assert (await q.look()).entries() == ids[::-1]


# ---------------------------------------------------------------------------------------------------------------- purge


@not_dead
async def test_what_is_not_dead_is_not_purged(q: Driver, arrange: states.Arrange) -> None:
    await arrange(q)
    before = await q.look()
    assert await q.purge("a") == 0
    assert await q.look() == before


async def test_nothing_is_left_of_a_purged_letter(q: Driver) -> None:
    before = await q.look()
    await bury(q, "a", key="key")
    assert await q.purge("a") == 1
    after = await q.look()
    assert after == before.but(consumers=after.consumers, bell=after.bell, others=after.others)
    assert after.others == {"call:client"}


async def test_a_second_purge_finds_nothing(q: Driver) -> None:
    await bury(q, "a", "b")
    assert await q.purge("a", "nobody") == 1
    before = await q.look()
    assert await q.purge("a", "a") == 0
    assert await q.look() == before
    assert before.dead == {"b"}


async def test_a_purged_id_may_be_used_again(q: Driver) -> None:
    await bury(q, "a", key="key")
    await q.purge("a")
    assert await q.dispatch(Sent(id="a", key="key", explicit=True, in_us=HOUR_MS * 1000)) == []


async def test_five_hundred_are_purged_in_one_call(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(500)]
    await bury(q, *ids)
    assert await q.purge(*ids) == 500
    assert (await q.look()).tasks == {}
