"""`group`: none -> ready or delayed, waited for; and what `complete` does with the members."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firetime.store.replies import StaleCall
from firetime.values.errors import BrokerRefused
from tests.edges import states
from tests.edges.driver import HOUR_MS, ME, OTHER, RECORD, Answer, Driver, Ended, Given, Sent
from tests.edges.test_wrong_types import spoiled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

THEN = b'["report",[["\x00",1],{}]]\n\xff'
"""The callback's record: any bytes."""


async def grouped(q: Driver, *ids: str) -> list[Given]:
    """Members that run here."""
    assert await q.group(*(Sent(id=id) for id in ids), record=THEN) == []
    return list((await q.claim()).given)


async def join(q: Driver, *done: Given, group: str = "g", consumer: str = ME) -> list[str]:
    """Completes them as members; gives those refused."""
    refused, _ = await q.complete(others=[Ended(held=one, group=group) for one in done], consumer=consumer)
    return refused


async def followed(q: Driver) -> bool:
    """Whether the callback has entered its lane."""
    return (await q.look()).tasks.get("then") == THEN


# ------------------------------------------------------------------------------------------------------------- group


async def test_the_members_are_ready_and_waited_for(q: Driver) -> None:
    assert await q.group(Sent(id="a"), Sent(id="b", letter="h"), Sent(id="c", in_us=HOUR_MS * 1000)) == []
    after = await q.look()
    assert (after.entries(), after.entries("h"), after.delayed_ids(), after.bell) == (["a"], ["b"], ["c"], 1)
    assert after.tasks == dict.fromkeys("abc", RECORD)
    assert await q.waits_for() == {"a", "b", "c"}
    assert 0 < await q.raw.pttl(q.keys.group("g")) <= HOUR_MS


async def test_a_group_without_members_is_followed_at_once(q: Driver) -> None:
    assert await q.group(letter="h", record=THEN) == []
    after = await q.look()
    assert (after.tasks, after.entries("h"), after.bell) == ({"then": THEN}, ["then"], 1)
    assert not await q.raw.exists(q.keys.group("g"))


async def test_a_member_whose_time_has_come_is_ready(q: Driver) -> None:
    assert await q.group(Sent(id="a", at_ms=1)) == []
    assert (await q.look()).entries() == ["a"]


async def test_an_earlier_head_wakes_the_promoters(q: Driver) -> None:
    await q.group(Sent(id="a", in_us=HOUR_MS * 1000))
    await q.group(Sent(id="b", in_us=1000_000), group="other")
    after = await q.look()
    assert after.wake == (after.fire_ms("bn"),)


async def test_a_repeat_is_answered_from_memory_and_a_straggler_refused(q: Driver) -> None:
    assert await q.group(Sent(id="a", explicit=True), number=7) == []
    before = await q.look()
    assert await q.group(Sent(id="a", explicit=True), number=7) == []
    with pytest.raises(StaleCall):
        await q.group(Sent(id="b"), number=6)
    assert await q.look() == before


async def existing(q: Driver) -> None:
    await q.send("b")


async def remembered(q: Driver) -> None:
    await q.send("b")
    await q.complete(others=[Ended(held=await q.take("b"), remember_ms=HOUR_MS)])


@pytest.mark.parametrize("arrange", [existing, remembered], ids=lambda arrange: arrange.__name__)
async def test_with_one_member_that_exists_the_whole_call_is_refused(
    q: Driver, arrange: Callable[[Driver], Awaitable[None]]
) -> None:
    await arrange(q)
    before = await q.look()
    sent = [Sent(id=id, explicit=id != "a") for id in "abc"]
    assert await q.group(*sent, number=7) == [Answer(1, "exists", "b")]
    assert await q.group(*sent, number=7) == [Answer(1, "exists", "b")]
    assert await q.look() == before.but(others=before.others | {"call:grouper"})


async def test_what_does_not_fit_into_the_queue_is_refused_as_a_whole(q: Driver) -> None:
    await q.send("a")
    await q.dispatch(Sent(id="b", in_us=HOUR_MS * 1000))
    before = await q.look()
    assert await q.group(Sent(id="c"), Sent(id="d"), max_length=3) == [Answer(0, "full", "")]
    assert await q.look() == before.but(others=before.others | {"call:grouper"})
    assert await q.group(Sent(id="c"), max_length=3) == []


async def test_a_group_of_several_calls_is_not_followed_before_the_last(q: Driver) -> None:
    assert await q.group(Sent(id="a"), ends=False) == []
    assert await join(q, await q.take("a")) == []
    assert not await followed(q)
    assert await q.waits_for() == set()
    assert await q.group(Sent(id="b"), begins=False, record=THEN) == []
    assert not await followed(q)
    assert await join(q, await q.take("b")) == []
    assert await followed(q)


async def test_a_call_that_finds_its_group_no_more_is_refused(q: Driver) -> None:
    before = await q.look()
    assert await q.group(Sent(id="a"), begins=False) == [Answer(0, "gone", "")]
    assert await q.look() == before.but(others=before.others | {"call:grouper"})


async def test_five_hundred_go_and_end_in_one_call(q: Driver) -> None:
    given = await grouped(q, *(f"{number:03}" for number in range(500)))
    while more := (await q.claim(free=500)).given:
        given += more
    assert await join(q, *given) == []
    after = await q.look()
    assert (after.tasks, after.entries()) == ({"then": THEN}, ["then"])


# ---------------------------------------------------------------------------------------------------------- complete


async def test_the_last_member_that_is_done_sends_the_callback(q: Driver) -> None:
    a, b = await grouped(q, "a", "b")
    await q.raw.delete(q.keys.bell)
    assert await join(q, a) == []
    assert await q.waits_for() == {"b"}
    assert (await q.look()).bell == 0
    assert await join(q, b) == []
    after = await q.look()
    assert (after.tasks, after.entries(), after.bell, after.pending) == ({"then": THEN}, ["then"], 1, {})
    assert not await q.raw.exists(q.keys.group("g"))
    assert (await q.take("then")).record == THEN


async def test_the_callback_keeps_its_own_lane(q: Driver) -> None:
    await q.group(Sent(id="a"), letter="l")
    await join(q, await q.take("a"))
    assert (await q.look()).entries("l") == ["then"]


async def test_members_of_one_batch_join_one_after_the_other(q: Driver) -> None:
    assert await join(q, *await grouped(q, "a", "b", "c")) == []
    assert (await q.look()).entries() == ["then"]


async def test_each_member_joins_its_own_group_in_a_mixed_batch(q: Driver) -> None:
    await q.group(Sent(id="a"), Sent(id="b"), then="then-1", group="g1")
    await q.group(Sent(id="c"), then="then-2", group="g2")
    await q.send("d", "e")
    a, b, c, d, e = (await q.claim()).given
    others = [
        Ended(held=a, group="g1", remember_ms=HOUR_MS, result_ms=HOUR_MS, value=b"a"),
        Ended(held=b.with_count(2), group="g1"),
        Ended(held=c, group="g2"),
        Ended(held=d, remember_ms=HOUR_MS),
    ]
    assert await q.complete(e, others=others) == (["b"], [])
    after = await q.look()
    assert (after.entries(), after.results, after.ended) == (["b", "then-2"], {"a": b"a"}, {"a": "done", "d": "done"})
    assert (await q.waits_for("g1"), await q.waits_for("g2")) == ({"b"}, set())


async def test_a_second_completion_joins_nothing(q: Driver) -> None:
    a, b = await grouped(q, "a", "b")
    assert await join(q, a) == []
    before = await q.look()
    assert await join(q, a) == ["a"]
    assert await q.look() == before
    assert await join(q, b, b) == []
    assert (await q.look()).entries() == ["then"]
    assert await join(q, b) == ["b"]
    assert (await q.look()).entries() == ["then"]


async def test_of_two_workers_that_ran_a_member_one_joins(q: Driver) -> None:
    (mine,) = await grouped(q, "a")
    (theirs,) = (await q.sweep()).given
    assert await join(q, mine) == ["a"]
    assert not await followed(q)
    assert await join(q, theirs, consumer=OTHER) == []
    assert (await q.look()).entries() == ["then"]
    assert await join(q, mine) == ["a"]
    assert (await q.look()).entries() == ["then"]


@pytest.mark.parametrize("arrange", states.NOT_HELD, ids=lambda arrange: arrange.__name__)
async def test_a_late_completion_of_a_member_changes_nothing(q: Driver, arrange: states.Arrange) -> None:
    held = await arrange(q)
    await q.raw.hset(q.keys.group("g"), mapping={"a": "", "": b"nthen " + THEN})
    before = await q.look()
    assert await join(q, held) == ["a"]
    assert await q.look() == before
    assert await q.waits_for() == {"a"}


async def test_a_member_whose_group_is_over_just_ends(q: Driver) -> None:
    (a,) = await grouped(q, "a")
    await q.raw.delete(q.keys.group("g"))
    assert await join(q, a) == []
    assert (await q.look()).tasks == {}


async def test_a_cancelled_member_gives_the_group_up(q: Driver) -> None:
    a, b = await grouped(q, "a", "b")
    await q.complete(others=[Ended(held=a, group="g", outcome="cancelled", remember_ms=HOUR_MS)])
    assert not await q.raw.exists(q.keys.group("g"))
    assert await join(q, b) == []
    assert (await q.look()).tasks == {}


async def retried(q: Driver, held: Given) -> None:
    await q.retry(held)


async def retried_later(q: Driver, held: Given) -> None:
    await q.retry(held, delay_us=HOUR_MS * 1000)


async def released(q: Driver, held: Given) -> None:
    await q.release(held)


async def buried(q: Driver, held: Given) -> None:
    await q.bury(held)


@pytest.mark.parametrize("edge", [retried, retried_later, released, buried], ids=lambda edge: edge.__name__)
async def test_a_member_that_is_not_done_is_waited_for(
    q: Driver, edge: Callable[[Driver, Given], Awaitable[None]]
) -> None:
    (a,) = await grouped(q, "a")
    await edge(q, a)
    assert await q.waits_for() == {"a"}
    if edge is buried:
        await q.replay("a")
    elif edge is retried_later:
        await q.travel_to(await q.now_ms() + 2 * HOUR_MS)
        await q.promote()
    assert await join(q, await q.take("a")) == []
    assert (await q.look()).entries() == ["then"]


async def test_the_bell_of_a_paused_queue_stays_silent(q: Driver) -> None:
    (a,) = await grouped(q, "a")
    await q.raw.delete(q.keys.bell)
    await q.raw.set(q.keys.paused, "1")
    assert await join(q, a) == []
    after = await q.look()
    assert (after.entries(), after.bell) == (["then"], 0)


async def test_a_group_that_is_no_hash_stops_a_completion_before_it_begins(q: Driver) -> None:
    (a,) = await grouped(q, "a")
    before = await q.look()
    async with spoiled(q, q.keys.group("g")):
        with pytest.raises(BrokerRefused, match="WRONGTYPE"):
            await join(q, a)
    assert await q.look() == before
    assert await join(q, a) == []
    assert await followed(q)
