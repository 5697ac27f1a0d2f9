"""`complete`: running -> done or cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.edges import states
from tests.edges.driver import FRESH, HOUR_MS, ME, OTHER, RECORD, Ended, Given, Sent

if TYPE_CHECKING:
    from tests.edges.driver import Driver

not_held = pytest.mark.parametrize("arrange", states.NOT_HELD, ids=lambda arrange: arrange.__name__)


@not_held
async def test_a_late_completion_is_refused_and_changes_nothing(q: Driver, arrange: states.Arrange) -> None:
    held = await arrange(q)
    before = await q.look()
    assert await q.complete(held, metrics=[("task_count", 1)]) == (["a"], [])
    loud = Ended(held=held, key="key", remember_ms=HOUR_MS, result_ms=HOUR_MS, value=b"1", history=True)
    assert await q.complete(others=[loud]) == (["a"], [])
    assert await q.look() == before


async def test_nothing_but_the_lane_is_left_of_a_task_that_is_done(q: Driver) -> None:
    await q.send("a")
    before = await q.look()
    held = await q.take("a")
    assert await q.complete(held) == ([], [])
    assert await q.look() == before.but(
        tasks={}, places={}, lanes={"h": {}, "n": {}, "l": {}}, consumers=frozenset({ME})
    )


async def test_a_second_completion_is_refused_and_changes_nothing(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.complete(held, metrics=[("task_count", 1)])
    before = await q.look()
    assert await q.complete(held, metrics=[("task_count", 1)]) == (["a"], [])
    assert await q.look() == before


async def test_the_key_the_state_and_a_wish_to_cancel_go_with_the_task(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key"))
    await q.retry(await q.take("a"), state=b"0 1 {}", key="key")
    held = await q.take("a")
    assert await q.cancel("a", key="key") == "requested"
    assert await q.complete(others=[Ended(held=held, key="key")]) == ([], [])
    after = await q.look()
    assert (after.tasks, after.state, after.places, after.unique, after.cancelling) == ({}, {}, {}, {}, frozenset())
    assert (after.ended, after.results) == ({}, {})


async def test_a_plain_one_too_takes_its_state_and_the_wish_to_cancel_along(q: Driver) -> None:
    await q.send("a")
    await q.retry(await q.take("a"))
    held = await q.take("a")
    await q.cancel("a")
    await q.complete(held)
    after = await q.look()
    assert (after.state, after.cancelling) == ({}, frozenset())


async def test_the_state_of_others_stays(q: Driver) -> None:
    await q.send("a", "b")
    await q.retry(*(await q.claim()).given, state=b"0 1 {}")
    first, second = (await q.claim()).given
    await q.complete(first)
    after = await q.look()
    assert after.state == {"b": b"0 1 {}"}
    assert after.pending == {second.place: (ME, 1)}


async def test_an_outcome_is_remembered_and_announced_where_that_is_asked(q: Driver) -> None:
    await q.send("a", "b")
    a, b = (await q.claim()).given
    async with q.listening(q.keys.ended_channel) as heard:
        await q.complete(others=[Ended(held=a, outcome="done", remember_ms=HOUR_MS), Ended(held=b, outcome="done")])
    assert heard == ["a"]
    assert (await q.look()).ended == {"a": "done"}
    assert 0 < await q.raw.pttl(q.keys.ended("a")) <= HOUR_MS


async def test_an_outcome_says_when(q: Driver) -> None:
    await q.send("a")
    before_ms = await q.now_ms()
    await q.complete(others=[Ended(held=await q.take("a"), outcome="cancelled", remember_ms=HOUR_MS)])
    outcome, at_ms = (await q.raw.get(q.keys.ended("a"))).split(b" ")
    assert outcome == b"cancelled"
    assert before_ms <= int(at_ms) <= await q.now_ms() + 1


async def test_a_value_is_kept_as_long_as_asked_whatever_bytes_it_has(q: Driver) -> None:
    value = bytes(range(256))
    await q.send("a", "b")
    a, b = (await q.claim()).given
    await q.complete(
        others=[
            Ended(held=a, remember_ms=HOUR_MS, result_ms=HOUR_MS // 2, value=value),
            Ended(held=b, remember_ms=HOUR_MS, value=b"not kept"),
        ]
    )
    assert (await q.look()).results == {"a": value}
    assert HOUR_MS // 4 < await q.raw.pttl(q.keys.result("a")) <= HOUR_MS // 2


async def test_each_outcome_and_value_goes_to_its_own_task_in_a_mixed_batch(q: Driver) -> None:
    await q.send("a", "b", "c", "d")
    a, b, c, d = (await q.claim()).given

    def kept(held: Given, value: bytes, outcome: str = "done") -> Ended:
        return Ended(held=held, value=value, outcome=outcome, remember_ms=HOUR_MS, result_ms=HOUR_MS)

    others = [kept(b.with_count(7), b"lost"), kept(c, b"c"), kept(d, b"d", "cancelled")]
    reply = await q.complete(a, others=others)
    after = await q.look()
    assert reply == (["b"], [])
    assert after.ended == {"c": "done", "d": "cancelled"}
    assert after.results == {"c": b"c", "d": b"d"}
    assert after.tasks == {"b": RECORD}


async def test_a_key_that_another_took_over_is_not_freed_and_that_is_told(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", hold_ms=1))
    held = await q.take("a")
    await q.raw.hset(q.keys.unique, "key", "0 b")
    await q.send("b")
    assert await q.complete(others=[Ended(held=held, key="key")]) == ([], ["a"])
    assert (await q.look()).unique == {"key": "0 b"}


async def test_history_keeps_what_was_completed_with_its_record(q: Driver) -> None:
    await q.send("a", "b", record=b"\x00\xffrecord")
    a, b = (await q.claim()).given
    await q.complete(others=[Ended(held=a, history=True, task="email"), Ended(held=b, history=False)])
    assert (await q.look()).history == ({"i": b"a", "t": b"email", "o": b"done", "m": b"\x00\xffrecord"},)


async def test_history_is_bounded(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(400)]
    await q.send(*ids)
    for _ in range(4):
        given = (await q.claim(free=100)).given
        await q.complete(others=[Ended(held=one, history=True) for one in given], history_length=100)
    assert 100 <= len((await q.look()).history) < 400


async def test_metrics_are_counted_once_and_only_with_something_settled(q: Driver) -> None:
    await q.send("a", "b")
    a, b = (await q.claim()).given
    counters = [("task_count", 1), ("task_sum", 1500)]
    await q.complete(a, metrics=counters)
    await q.complete(a, metrics=counters)
    await q.complete(b, metrics=counters)
    assert (await q.look()).metrics == {"task_count": 2, "task_sum": 3000}


async def test_a_counter_that_cannot_count_does_not_stop_a_completion(q: Driver) -> None:
    await q.send("a")
    await q.raw.hset(q.keys.metrics, mapping={"task_count": 2**63 - 1})
    assert await q.complete(await q.take("a"), metrics=[("task_count", 1), ("task_sum", 2)]) == ([], [])
    after = await q.look()
    assert after.tasks == {}
    assert after.metrics == {"task_count": 2**63 - 1, "task_sum": 2}


async def test_a_wrong_consumer_count_or_entry_is_refused(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    before = await q.look()
    assert await q.complete(held, consumer=OTHER) == (["a"], [])
    assert await q.complete(held.with_count(2)) == (["a"], [])
    assert await q.complete(held.with_count(0)) == (["a"], [])
    assert await q.complete(Given("n", held.entry.replace("-", "0-"), 1, "a")) == (["a"], [])
    assert await q.complete(held, letter="h") == (["a"], [])
    assert await q.look() == before


async def test_five_hundred_end_in_one_call(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(500)]
    await q.send(*ids)
    given = (await q.claim(free=500)).given
    assert [one.id for one in given] == ids
    await q.retry(given[7], delay_us=0, state=FRESH)
    assert await q.complete(*given) == (["007"], [])
    after = await q.look()
    assert list(after.tasks) == ["007"]


async def test_five_hundred_with_results_end_in_one_call(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(500)]
    await q.send(*ids)
    given = (await q.claim(free=500)).given
    ended = [Ended(held=one, remember_ms=HOUR_MS, result_ms=HOUR_MS, value=one.id.encode()) for one in given]
    assert await q.complete(others=ended) == ([], [])
    after = await q.look()
    assert after.tasks == after.places == after.pending == {}
    assert after.results == {id: id.encode() for id in ids}


async def test_one_entry_twice_in_a_batch_ends_once(q: Driver) -> None:
    await q.send("a", "b")
    a, b = (await q.claim()).given
    assert await q.complete(a, a) == ([], [])
    assert (await q.look()).pending == {b.place: (ME, 1)}


async def test_an_entry_deleted_behind_our_back_still_ends_well(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.raw.xdel(q.keys.normal, held.entry)
    assert await q.complete(held) == ([], [])
    after = await q.look()
    assert after.tasks == after.places == after.pending == {}


@pytest.mark.parametrize("name", ["unique", "history", "state", "cancelling"])
async def test_what_is_done_is_gone_whatever_became_of_a_key_beside_it(q: Driver, name: str) -> None:
    await q.send("a", key="key")
    held = await q.take("a")
    key = getattr(q.keys, name)
    await q.raw.delete(key)
    await q.raw.set(key, "foreign")
    answered = await q.complete(others=[Ended(held=held, key="key", history=True)])
    assert answered is not None
    await q.raw.delete(key)
    after = await q.look()
    assert (after.tasks, after.places, after.entries(), after.pending) == ({}, {}, [], {})
