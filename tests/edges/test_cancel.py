"""`cancel`: delayed or ready -> cancelled; a running one is asked to stop."""

from __future__ import annotations

import pytest

from tests.edges import states
from tests.edges.driver import HOUR_MS, ME, OTHER, Driver, Sent

HOUR_US = HOUR_MS * 1000


@pytest.mark.parametrize(
    ("arrange", "answer"),
    [
        (states.none, "not found"),
        (states.no_lanes, "not found"),
        (states.delayed, "cancelled"),
        (states.ready, "cancelled"),
        (states.running, "requested"),
        (states.given_to_another, "requested"),
        (states.swept_by_another, "requested"),
        (states.swept_here, "requested"),
        (states.done, "finished"),
        (states.dead, "finished"),
        (states.cancelled, "finished"),
        (states.done_and_sent_again, "cancelled"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_it_tells_truthfully_what_it_found(q: Driver, arrange: states.Arrange, answer: str) -> None:
    await arrange(q)
    before = await q.look()
    assert await q.cancel("a", key="key") == answer
    after = await q.look()
    if answer == "cancelled":
        assert (after.tasks, after.state, after.places, after.delayed, after.unique) == ({}, {}, {}, {}, {})
        assert (after.lanes, after.pending, after.ended) == ({"h": {}, "n": {}, "l": {}}, {}, {"a": "cancelled"})
    elif answer == "requested":
        assert after == before.but(cancelling=frozenset({"a"}))
    else:
        assert after == before


@pytest.mark.parametrize(
    ("arrange", "second"),
    [(states.delayed, "finished"), (states.ready, "finished"), (states.running, "requested")],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_second_call_changes_nothing(q: Driver, arrange: states.Arrange, second: str) -> None:
    await arrange(q)
    await q.cancel("a", key="key")
    before = await q.look()
    assert await q.cancel("a", key="key") == second
    assert await q.look() == before


@pytest.mark.parametrize("letter", ["h", "n", "l"])
@pytest.mark.parametrize("in_us", [None, HOUR_US], ids=["ready", "delayed"])
async def test_it_finds_a_message_in_every_lane(q: Driver, letter: str, in_us: int | None) -> None:
    await q.send("a", "other", letter=letter, in_us=in_us)
    assert await q.cancel("a") == "cancelled"
    after = await q.look()
    assert after.tasks.keys() == {"other"}
    assert after.ended == {"a": "cancelled"}


async def test_one_that_was_sent_before_any_worker_was_there_can_be_cancelled(q: Driver) -> None:
    await q.send("a")
    assert await q.cancel("a") == "cancelled"
    assert (await q.claim()).given == ()


async def test_what_was_cancelled_is_remembered_so_long_and_announced(q: Driver) -> None:
    await q.send("a")
    async with q.listening(q.keys.ended_channel) as heard:
        await q.cancel("a", remember_ms=60_000)
    assert heard == ["a"]
    assert 0 < await q.raw.pttl(q.keys.ended("a")) <= 60_000


async def test_what_need_not_be_remembered_is_not(q: Driver) -> None:
    await q.send("a")
    assert await q.cancel("a", remember_ms=0) == "cancelled"
    after = await q.look()
    assert (after.ended, after.tasks) == ({}, {})
    assert await q.cancel("a") == "not found"


async def test_a_running_one_is_told_at_once_and_when_was_asked_is_kept(q: Driver) -> None:
    await q.send("a")
    await q.take("a")
    from_ms = await q.now_ms()
    async with q.listening(q.keys.control_channel) as heard:
        await q.cancel("a")
    assert heard == ["a"]
    assert from_ms <= int(await q.raw.hget(q.keys.cancelling, "a")) <= await q.now_ms()


async def test_a_wish_outlives_the_worker_that_did_not_hear_it(q: Driver) -> None:
    await q.send("a")
    await q.take("a")
    await q.cancel("a")
    (swept,) = (await q.sweep()).given
    assert swept.cancel_asked
    assert await q.retry(swept, consumer=OTHER) == ([], ["a"])


async def test_one_asked_to_stop_that_was_given_back_and_then_cancelled_leaves_nothing(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    assert await q.cancel("a") == "requested"
    await q.release(held)
    assert await q.cancel("a") == "cancelled"
    after = await q.look()
    assert (after.cancelling, after.tasks) == (frozenset(), {})


async def test_the_key_of_another_is_not_freed(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key"))
    await q.raw.hset(q.keys.unique, "key", "0 b")
    await q.send("b")
    await q.cancel("a", key="key")
    assert (await q.look()).unique == {"key": "0 b"}


async def test_a_key_is_free_at_once(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", in_us=HOUR_US))
    await q.cancel("a", key="key")
    assert await q.dispatch(Sent(id="b", key="key")) == []


async def test_a_task_that_failed_before_takes_its_notes_along(q: Driver) -> None:
    await q.send("a")
    await q.retry(await q.take("a"), delay_us=HOUR_US, state=b"1 2 {notes}")
    assert await q.cancel("a") == "cancelled"
    assert (await q.look()).state == {}


async def test_an_id_that_is_the_beginning_of_another_is_another(q: Driver) -> None:
    await q.send("ab", in_us=HOUR_US)
    assert await q.cancel("a") == "not found"
    assert (await q.look()).delayed_ids() == ["ab"]


async def test_one_whose_record_was_lost_can_be_cancelled(q: Driver) -> None:
    await q.send("a")
    await q.raw.hdel(q.keys.tasks, "a")
    assert await q.cancel("a") == "cancelled"
    assert (await q.look()).entries() == []


async def test_a_late_claim_finds_it_no_more_and_others_are_untouched(q: Driver) -> None:
    await q.send("a", "b")
    await q.cancel("a")
    (b,) = (await q.claim()).given
    assert (b.id, (await q.look()).pending) == ("b", {b.place: (ME, 1)})
