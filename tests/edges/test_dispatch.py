"""`dispatch`: none -> ready or delayed."""

from __future__ import annotations

import pytest

from firetime.store.replies import StaleCall
from firetime.values.errors import BrokerRefused
from tests.edges import states
from tests.edges.driver import HOUR_MS, ME, OTHER, RECORD, Answer, Driver, Ended, Sent
from tests.edges.look import SLOTS

HOUR_US = HOUR_MS * 1000
LATER_MS = 4_000_000_000_000
"""A fire-time in the year 2096."""


# ------------------------------------------------------------------------------------------------------- out of a state


@pytest.mark.parametrize(
    ("arrange", "accepted"),
    [
        (states.none, True),
        (states.no_lanes, True),
        (states.delayed, False),
        (states.ready, False),
        (states.running, False),
        (states.given_to_another, False),
        (states.swept_by_another, False),
        (states.done, False),
        (states.dead, False),
        (states.cancelled, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("in_us", [None, HOUR_US], ids=["now", "later"])
async def test_an_explicit_id_is_accepted_only_where_there_is_none(
    q: Driver, arrange: states.Arrange, accepted: bool, in_us: int | None
) -> None:
    await arrange(q)
    before = await q.look()
    sent = Sent(id="a", record=b"another", in_us=in_us, explicit=True)
    assert await q.dispatch(sent) == ([] if accepted else [Answer(0, "exists", "a")])
    if not accepted:
        assert await q.look() == before.but(others=before.others | {"call:client"})


async def test_an_explicit_id_is_free_again_when_its_end_is_forgotten(q: Driver) -> None:
    await states.done(q)
    await q.raw.delete(q.keys.ended("a"))
    assert await q.dispatch(Sent(id="a", explicit=True)) == []


async def test_an_explicit_id_is_remembered_after_it_was_cancelled(q: Driver) -> None:
    await q.dispatch(Sent(id="a", explicit=True))
    await q.cancel("a")
    assert await q.dispatch(Sent(id="a", explicit=True)) == [Answer(0, "exists", "a")]


async def test_an_explicit_id_twice_in_one_batch_is_accepted_once(q: Driver) -> None:
    await q.claim()
    sent = [Sent(id="a", record=b"1", explicit=True), Sent(id="b"), Sent(id="a", record=b"2", explicit=True)]
    assert await q.dispatch(*sent) == [Answer(2, "exists", "a")]
    assert [(one.id, one.record) for one in (await q.claim()).given] == [("a", b"1"), ("b", RECORD)]


async def test_each_explicit_id_is_looked_up_under_its_own_name(q: Driver) -> None:
    await states.done(q)
    sent = [Sent(id=id, explicit=id != "x") for id in ("b", "x", "a", "c")]
    assert await q.dispatch(*sent) == [Answer(2, "exists", "a")]
    assert (await q.claim()).ids == ["b", "x", "c"]


# ------------------------------------------------------------------------------------------------------------- to where


async def test_a_message_has_a_record_a_place_and_an_entry_and_the_bell_rings(q: Driver) -> None:
    before = await q.look()
    assert await q.dispatch(Sent(id="a", record=b"\x00\xff", letter="h")) == []
    after = await q.look()
    (entry,) = after.lanes["h"]
    assert after == before.but(
        tasks={"a": b"\x00\xff"},
        places={"a": f"h{entry}"},
        lanes={"h": {entry: {"i": "a"}}, "n": {}, "l": {}},
        bell=1,
        others=frozenset({"call:client"}),
    )


async def test_a_delayed_message_has_a_record_and_a_score_and_wakes_the_promoters(q: Driver) -> None:
    before = await q.look()
    assert await q.dispatch(Sent(id="a", letter="l", at_ms=LATER_MS)) == []
    assert await q.look() == before.but(
        tasks={"a": RECORD},
        delayed={"al": LATER_MS * SLOTS},
        wake=(LATER_MS,),
        others=frozenset({"call:client"}),
    )


async def test_a_fire_time_in_the_past_is_now(q: Driver) -> None:
    await q.send("a", at_ms=1)
    await q.send("b", at_ms=await q.now_ms())
    after = await q.look()
    assert (after.entries(), after.delayed, after.wake) == (["a", "b"], {}, ())


async def test_no_delay_is_early_by_a_millisecond(q: Driver) -> None:
    for i in range(20):
        delay_us = 50_000 + 333 * i
        seconds, us = await q.raw.time()
        before_us = int(seconds) * 1_000_000 + int(us)
        await q.send(f"{i}", in_us=delay_us)
        seconds, us = await q.raw.time()
        fire_us = (await q.look()).fire_ms(f"{i}n") * 1000
        assert before_us + delay_us <= fire_us <= int(seconds) * 1_000_000 + int(us) + delay_us + 999


async def test_one_token_is_in_the_bell_however_much_comes(q: Driver) -> None:
    await q.send("a", "b")
    await q.send("c")
    assert (await q.look()).bell == 1


async def test_delayed_messages_do_not_ring(q: Driver) -> None:
    await q.send("a", in_us=HOUR_US)
    assert (await q.look()).bell == 0


async def test_a_paused_queue_accepts_and_is_silent(q: Driver) -> None:
    await q.pause()
    await q.send("a")
    after = await q.look()
    assert (after.entries(), after.bell) == (["a"], 0)


async def test_promoters_are_woken_only_for_a_new_head(q: Driver) -> None:
    await q.send("a", at_ms=LATER_MS)
    first = await q.raw.xrange(q.keys.wake)
    await q.send("b", at_ms=LATER_MS)
    await q.send("c", at_ms=LATER_MS + 1)
    assert await q.raw.xrange(q.keys.wake) == first
    await q.dispatch(Sent(id="d", at_ms=LATER_MS - 1), Sent(id="e", at_ms=LATER_MS - 2), Sent(id="f", at_ms=LATER_MS))
    assert (await q.look()).wake == (LATER_MS - 2,)


async def test_a_batch_on_an_empty_delayed_set_wakes_for_its_earliest(q: Driver) -> None:
    await q.dispatch(*(Sent(id=f"{i}", at_ms=LATER_MS + ms) for i, ms in enumerate([5, 3, 9, 4])))
    assert (await q.look()).wake == (LATER_MS + 3,)


async def test_a_mixed_batch_goes_where_each_belongs_and_is_answered_by_position(q: Driver) -> None:
    await q.send("held", key="key", in_us=HOUR_US)
    answers = await q.dispatch(
        Sent(id="a", letter="h"),
        Sent(id="b", at_ms=LATER_MS),
        Sent(id="c", key="key"),
        Sent(id="held", explicit=True),
        Sent(id="e", letter="l"),
        Sent(id="f", letter="h"),
    )
    assert answers == [Answer(2, "held", "held"), Answer(3, "exists", "held")]
    after = await q.look()
    assert [after.entries(letter) for letter in "hnl"] == [["a", "f"], [], ["e"]]
    assert after.delayed_ids() == ["held", "b"]
    assert after.tasks.keys() == {"held", "a", "b", "e", "f"}


async def test_five_hundred_plain_ones_are_sent_in_one_call(q: Driver) -> None:
    ids = [f"{999 - i}" for i in range(500)]
    assert await q.dispatch(*(Sent(id=id) for id in ids)) == []
    assert (await q.look()).entries() == ids


async def test_five_hundred_with_all_there_is_to_say_are_sent_in_one_call(q: Driver) -> None:
    ids = [f"{999 - i}" for i in range(500)]
    sent = [Sent(id=id, key=id, hold_ms=5, explicit=True, at_ms=LATER_MS) for id in ids]
    assert await q.dispatch(*sent) == []
    after = await q.look()
    assert after.delayed_ids() == ids
    assert after.unique == {id: f"{LATER_MS + 5} {id}" for id in ids}
    again = [Sent(id=f"x{id}", key=id) for id in ids]
    assert await q.dispatch(*again) == [Answer(i, "held", id) for i, id in enumerate(ids)]


# ------------------------------------------------------------------------------------------------------- numbered calls


async def test_a_repeated_call_is_answered_from_memory_and_adds_nothing(q: Driver) -> None:
    await q.send("first", key="key")
    batch = [Sent(id="a"), Sent(id="b", key="key"), Sent(id="c", at_ms=LATER_MS)]
    answers = await q.dispatch(*batch, number=7)
    before = await q.look()
    assert await q.dispatch(*batch, number=7) == answers == [Answer(1, "held", "first")]
    assert await q.look() == before


async def test_a_repeat_is_answered_from_memory_even_when_the_task_has_run_and_is_gone(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key"), number=3)
    held = await q.take("a")
    await q.complete(others=[Ended(held=held, key="key")])
    before = await q.look()
    assert await q.dispatch(Sent(id="a", key="key"), number=3) == []
    assert await q.look() == before
    assert before.tasks == {}


async def test_a_call_with_a_lower_number_is_refused_as_stale(q: Driver) -> None:
    await q.dispatch(Sent(id="a"), number=5)
    before = await q.look()
    with pytest.raises(StaleCall):
        await q.dispatch(Sent(id="b"), number=4)
    assert await q.look() == before


async def test_numbers_need_not_follow_each_other_and_are_compared_as_numbers(q: Driver) -> None:
    for number in (9, 10, 100, 2**53):
        assert await q.dispatch(Sent(id=f"{number}"), number=number) == []
    assert len((await q.look()).tasks) == 4


async def test_another_clients_numbers_are_its_own(q: Driver) -> None:
    await q.dispatch(Sent(id="a"), number=5, client="one")
    assert await q.dispatch(Sent(id="b"), number=5, client="two") == []
    assert await q.dispatch(Sent(id="c"), number=1, client="three") == []
    after = await q.look()
    assert after.tasks.keys() == {"a", "b", "c"}
    assert after.others == {"call:one", "call:two", "call:three"}


async def test_a_call_is_remembered_for_ten_minutes(q: Driver) -> None:
    await q.send("a")
    assert 590_000 < await q.raw.pttl(q.keys.call("client")) <= 600_000


async def test_a_long_answer_is_remembered_word_for_word(q: Driver) -> None:
    await q.dispatch(*(Sent(id=f"{i}", key=f"{i}") for i in range(250)))
    batch = [Sent(id=f"x{i}", key=f"{i // 2}") for i in range(500)]
    answers = await q.dispatch(*batch, number=999)
    assert answers == [Answer(i, "held", f"{i // 2}") for i in range(500)]
    assert await q.dispatch(*batch, number=999) == answers


# -------------------------------------------------------------------------- plain: told beforehand, or found out


@pytest.mark.parametrize("plain", [True, False])
async def test_plain_messages_end_where_they_do_when_nobody_says_that_they_are(q: Driver, plain: bool) -> None:
    batch = [Sent(id=f"{letter}{i}", letter=letter) for i in range(3) for letter in "nhl"]
    assert await q.dispatch(*batch, number=7, plain=plain) == []
    before = await q.look()
    assert {id: place[0] for id, place in before.places.items()} == {one.id: one.letter for one in batch}
    assert {letter: [entry["i"] for entry in lane.values()] for letter, lane in before.lanes.items()} == {
        letter: [f"{letter}{i}" for i in range(3)] for letter in "nhl"
    }
    assert (before.tasks.keys(), before.bell) == (before.places.keys(), 1)
    assert await q.dispatch(*batch, number=7, plain=plain) == []
    with pytest.raises(StaleCall):
        await q.dispatch(Sent(id="late"), number=6, plain=plain)
    assert await q.look() == before


@pytest.mark.parametrize("plain", [True, False])
async def test_plain_messages_are_refused_as_a_whole(q: Driver, plain: bool) -> None:
    await q.raw.rpush(q.keys.tasks, "foreign")
    with pytest.raises(BrokerRefused, match="WRONGTYPE"):
        await q.dispatch(Sent(id="a"), number=7, plain=plain)
    await q.raw.delete(q.keys.tasks)
    assert (await q.look()).others == frozenset()
    assert await q.dispatch(Sent(id="a"), number=7, plain=plain) == []
    assert (await q.look()).tasks.keys() == {"a"}


# ---------------------------------------------------------------------------------------------------------- unique keys


@pytest.mark.parametrize(
    "arrange",
    [states.delayed, states.ready, states.running, states.given_to_another, states.swept_by_another],
    ids=lambda arrange: arrange.__name__,
)
@pytest.mark.parametrize("on_conflict", ["raise", "return"])
async def test_a_key_is_held_until_the_terminal_state(q: Driver, arrange: states.Arrange, on_conflict: str) -> None:
    await arrange(q)
    before = await q.look()
    answers = await q.dispatch(Sent(id="b", key="key", on_conflict=on_conflict), client="another")
    assert answers == [Answer(0, "held", "a")]
    assert await q.look() == before.but(others=before.others | {"call:another"})


@pytest.mark.parametrize(
    "arrange", [states.none, states.done, states.dead, states.cancelled], ids=lambda arrange: arrange.__name__
)
async def test_a_key_is_free_after_the_terminal_state(q: Driver, arrange: states.Arrange) -> None:
    await arrange(q)
    assert await q.dispatch(Sent(id="b", key="key")) == []
    assert (await q.look()).unique == {"key": "0 b"}


async def test_a_key_counts_from_the_fire_time(q: Driver) -> None:
    from_ms = await q.now_ms()
    await q.dispatch(Sent(id="a", key="now", hold_ms=100), Sent(id="b", key="later", hold_ms=100, at_ms=LATER_MS))
    unique = (await q.look()).unique
    assert unique["later"] == f"{LATER_MS + 100} b"
    assert from_ms + 100 <= int(unique["now"].split(" ")[0]) <= await q.now_ms() + 100


async def test_a_key_is_taken_over_when_its_time_is_over(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", hold_ms=1))
    await q.raw.hset(q.keys.unique, "key", f"{await q.now_ms()} a")
    assert await q.dispatch(Sent(id="b", key="key")) == []
    assert (await q.look()).unique == {"key": "0 b"}
    a, _ = (await q.claim()).given
    assert await q.complete(others=[Ended(held=a, key="key")]) == ([], ["a"])


async def test_a_key_is_taken_over_when_its_holder_has_no_record(q: Driver) -> None:
    await q.claim()
    await q.raw.hset(q.keys.unique, "key", "0 gone")
    assert await q.dispatch(Sent(id="b", key="key")) == []
    assert (await q.look()).unique == {"key": "0 b"}


async def test_a_key_whose_holder_nobody_can_read_is_taken_over(q: Driver) -> None:
    await q.raw.hset(q.keys.unique, "key", "garbage")
    assert await q.dispatch(Sent(id="b", key="key")) == []


async def test_two_with_one_key_in_one_batch_are_one(q: Driver) -> None:
    answers = await q.dispatch(
        Sent(id="a", key="key", at_ms=LATER_MS), Sent(id="b", key="other"), Sent(id="c", key="key", at_ms=LATER_MS)
    )
    assert answers == [Answer(2, "held", "a")]
    after = await q.look()
    assert after.delayed_ids() == ["a"]
    assert after.tasks.keys() == {"a", "b"}


async def test_a_key_refused_for_lack_of_room_is_not_held(q: Driver) -> None:
    await q.send("a")
    assert await q.dispatch(Sent(id="b", key="key"), Sent(id="c", key="key"), max_length=1) == [
        Answer(0, "full", ""),
        Answer(1, "full", ""),
    ]
    assert (await q.look()).unique == {}


async def test_an_explicit_id_that_exists_does_not_take_the_key(q: Driver) -> None:
    await q.send("a")
    assert await q.dispatch(Sent(id="a", key="key", explicit=True)) == [Answer(0, "exists", "a")]
    assert (await q.look()).unique == {}


# --------------------------------------------------------------------------------------------------------------- replace


async def test_replace_moves_a_delayed_one_and_keeps_one_entry(q: Driver) -> None:
    await q.send("a", key="key", hold_ms=7, at_ms=LATER_MS, record=b"old")
    sent = Sent(id="b", key="key", hold_ms=9, at_ms=LATER_MS + 5, letter="h", record=b"new", on_conflict="replace")
    before = await q.look()
    assert await q.dispatch(sent) == [Answer(0, "moved", "a")]
    assert await q.look() == before.but(
        tasks={"a": b"new"}, delayed={"ah": (LATER_MS + 5) * SLOTS}, unique={"key": f"{LATER_MS + 14} a"}
    )


async def test_replace_with_an_earlier_time_wakes_the_promoters(q: Driver) -> None:
    await q.send("a", key="key", at_ms=LATER_MS)
    await q.dispatch(Sent(id="b", key="key", at_ms=LATER_MS - 9, on_conflict="replace"))
    after = await q.look()
    assert (after.delayed, after.wake) == ({"an": (LATER_MS - 9) * SLOTS}, (LATER_MS - 9,))


async def test_replace_without_a_delay_makes_the_delayed_one_ready(q: Driver) -> None:
    await q.send("a", key="key", at_ms=LATER_MS, record=b"old")
    assert await q.dispatch(Sent(id="b", key="key", record=b"new", on_conflict="replace")) == [Answer(0, "moved", "a")]
    after = await q.look()
    assert (after.delayed, after.tasks, after.entries(), after.bell) == ({}, {"a": b"new"}, ["a"], 1)


async def test_replace_keeps_what_a_failing_task_has_noted(q: Driver) -> None:
    await q.send("a", key="key")
    await q.retry(await q.take("a"), delay_us=HOUR_US, state=b"1 2 {notes}", key="key")
    await q.dispatch(Sent(id="b", key="key", on_conflict="replace"))
    assert (await q.take("a")).state == b"1 2 {notes}"


@pytest.mark.parametrize(
    "arrange",
    [states.ready, states.running, states.given_to_another, states.swept_by_another],
    ids=lambda arrange: arrange.__name__,
)
async def test_replace_of_one_that_is_ready_or_runs_is_refused(q: Driver, arrange: states.Arrange) -> None:
    await arrange(q)
    before = await q.look()
    sent = Sent(id="b", key="key", at_ms=LATER_MS, record=b"new", on_conflict="replace")
    assert await q.dispatch(sent) == [Answer(0, "held", "a")]
    assert await q.look() == before


async def test_replace_where_nobody_holds_the_key_is_a_plain_dispatch(q: Driver) -> None:
    assert await q.dispatch(Sent(id="a", key="key", at_ms=LATER_MS, on_conflict="replace")) == []
    assert (await q.look()).unique == {"key": "0 a"}


async def test_the_last_of_several_replacements_in_one_batch_wins(q: Driver) -> None:
    await q.send("a", key="key", at_ms=LATER_MS)
    later = [
        Sent(id=f"b{i}", key="key", at_ms=LATER_MS + i, record=b"%d" % i, on_conflict="replace") for i in (3, 1, 2)
    ]
    assert await q.dispatch(*later) == [Answer(i, "moved", "a") for i in range(3)]
    after = await q.look()
    assert (after.tasks, after.delayed) == ({"a": b"2"}, {"an": (LATER_MS + 2) * SLOTS})
    assert after.unique == {"key": "0 a"}


async def test_a_replacement_of_one_sent_in_the_same_batch_is_the_same_as_in_two_calls(q: Driver) -> None:
    first = Sent(id="a", key="key", at_ms=LATER_MS, record=b"1")
    second = Sent(id="b", key="key", at_ms=LATER_MS + 9, record=b"2", on_conflict="replace", hold_ms=3, letter="h")
    assert await q.dispatch(first, second) == [Answer(1, "moved", "a")]
    after = await q.look()
    assert (after.tasks, after.delayed) == ({"a": b"2"}, {"ah": (LATER_MS + 9) * SLOTS})
    assert (after.unique, after.wake) == ({"key": f"{LATER_MS + 12} a"}, (LATER_MS + 9,))


async def test_a_replacement_of_a_ready_one_sent_in_the_same_batch_is_refused(q: Driver) -> None:
    await q.claim()
    answers = await q.dispatch(Sent(id="a", key="key"), Sent(id="b", key="key", at_ms=LATER_MS, on_conflict="replace"))
    assert answers == [Answer(1, "held", "a")]
    assert (await q.look()).entries() == ["a"]


async def test_a_replacement_in_the_same_batch_that_is_due_makes_it_ready(q: Driver) -> None:
    sent = Sent(id="a", key="key", at_ms=LATER_MS)
    now = Sent(id="b", key="key", on_conflict="replace")
    late = Sent(id="c", key="key", at_ms=LATER_MS, on_conflict="replace")
    assert await q.dispatch(sent, now, late) == [Answer(1, "moved", "a"), Answer(2, "held", "a")]
    after = await q.look()
    assert (after.delayed, after.entries(), after.wake) == ({}, ["a"], ())


# --------------------------------------------------------------------------------------------------------- length limit


async def test_a_length_limit_counts_what_is_ready_runs_and_is_delayed(q: Driver) -> None:
    await q.send("ready", letter="h")
    await q.send("running")
    await q.claim(order="n")
    await q.send("delayed", at_ms=LATER_MS)
    sent = [Sent(id="a"), Sent(id="b", at_ms=LATER_MS), Sent(id="c", letter="l")]
    assert await q.dispatch(*sent, max_length=5) == [Answer(2, "full", "")]
    assert await q.dispatch(Sent(id="d"), max_length=5) == [Answer(0, "full", "")]
    assert (await q.look()).tasks.keys() == {"ready", "running", "delayed", "a", "b"}


async def test_a_queue_over_its_limit_accepts_nothing_until_there_is_room(q: Driver) -> None:
    await q.send("a", "b", "c")
    assert await q.dispatch(Sent(id="d"), max_length=2) == [Answer(0, "full", "")]
    given = (await q.claim()).given
    await q.complete(*given)
    assert await q.dispatch(Sent(id="d"), Sent(id="e"), max_length=2) == []


async def test_a_replacement_needs_no_room(q: Driver) -> None:
    await q.send("a", key="key", at_ms=LATER_MS)
    sent = Sent(id="b", key="key", at_ms=LATER_MS + 1, on_conflict="replace")
    assert await q.dispatch(sent, max_length=1) == [Answer(0, "moved", "a")]


async def test_what_is_refused_for_another_reason_takes_no_room(q: Driver) -> None:
    await q.send("a", key="key")
    sent = [Sent(id="b", key="key"), Sent(id="c")]
    assert await q.dispatch(*sent, max_length=2) == [Answer(0, "held", "a")]


async def test_a_full_queue_is_told_again_to_a_repeated_call(q: Driver) -> None:
    await q.send("a")
    assert await q.dispatch(Sent(id="b"), number=9, max_length=1) == [Answer(0, "full", "")]
    await q.complete(await q.take("a"))
    assert await q.dispatch(Sent(id="b"), number=9, max_length=1) == [Answer(0, "full", "")]
    assert await q.dispatch(Sent(id="b"), number=10, max_length=1) == []


# ----------------------------------------------------------------------------------------------------------- wrong types


@pytest.mark.parametrize("name", ["tasks", "unique", "call"])
async def test_a_key_of_a_wrong_type_refuses_the_call_as_a_whole(q: Driver, name: str) -> None:
    key = q.keys.call("client") if name == "call" else getattr(q.keys, name)
    await q.raw.rpush(key, "foreign")
    with pytest.raises(BrokerRefused, match="WRONGTYPE"):
        await q.dispatch(Sent(id="b"), Sent(id="a", key="key"))
    await q.raw.delete(key)
    after = await q.look()
    assert (after.tasks, after.places, after.entries(), after.unique, after.others) == ({}, {}, [], {}, frozenset())


@pytest.mark.parametrize("name", ["bell", "wake"])
async def test_a_bell_that_cannot_ring_does_not_stop_a_dispatch(q: Driver, name: str) -> None:
    await q.raw.set(getattr(q.keys, name), "foreign")
    assert await q.dispatch(Sent(id="a"), Sent(id="b", at_ms=LATER_MS)) == []
    assert (await q.claim(free=1)).ids == ["a"]
    await q.raw.delete(getattr(q.keys, name))


async def test_a_ready_one_is_seen_by_every_worker_but_given_to_one(q: Driver) -> None:
    await q.send("a")
    assert [(await q.claim(worker)).ids for worker in (ME, OTHER)] == [["a"], []]
