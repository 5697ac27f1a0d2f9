"""`reschedule`: delayed -> delayed at another time, or ready."""

from __future__ import annotations

import pytest

from tests.edges import states
from tests.edges.driver import HOUR_MS, RECORD, Driver, Sent
from tests.edges.look import SLOTS

HOUR_US = HOUR_MS * 1000
LATER_MS = 4_000_000_000_000


@pytest.mark.parametrize(
    ("arrange", "answer"),
    [
        (states.none, "not found"),
        (states.no_lanes, "not found"),
        (states.delayed, "rescheduled"),
        (states.ready, "ready"),
        (states.running, "running"),
        (states.given_to_another, "running"),
        (states.swept_by_another, "running"),
        (states.done, "finished"),
        (states.dead, "finished"),
        (states.cancelled, "finished"),
        (states.done_and_sent_again, "ready"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_only_what_is_delayed_moves_and_the_answer_is_true(
    q: Driver, arrange: states.Arrange, answer: str
) -> None:
    await arrange(q)
    before = await q.look()
    moved = answer == "rescheduled"
    assert await q.reschedule("a", at_ms=LATER_MS) == (answer, LATER_MS if moved else None)
    after = await q.look()
    assert after == (before.but(delayed={"an": LATER_MS * SLOTS}) if moved else before)


@pytest.mark.parametrize("letter", ["h", "n", "l"])
async def test_a_message_keeps_its_lane_its_record_and_its_notes(q: Driver, letter: str) -> None:
    await q.send("a", letter=letter)
    await q.retry(await q.take("a"), delay_us=HOUR_US, state=b"1 2 {notes}", letter=letter)
    await q.reschedule("a", at_ms=LATER_MS)
    after = await q.look()
    assert (after.delayed, after.tasks) == ({f"a{letter}": LATER_MS * SLOTS}, {"a": RECORD})
    assert after.state == {"a": b"1 2 {notes}"}
    await q.reschedule("a", at_ms=1)
    after = await q.look()
    assert (after.entries(letter), after.delayed, after.state) == (["a"], {}, {"a": b"1 2 {notes}"})


async def test_one_moved_to_now_is_ready_and_rings(q: Driver) -> None:
    await q.send("a", "b", at_ms=LATER_MS)
    from_ms = await q.now_ms()
    answer, fire_ms = await q.reschedule("a", in_us=0)
    assert answer == "rescheduled"
    assert fire_ms is not None
    assert from_ms <= fire_ms <= await q.now_ms()
    after = await q.look()
    assert (after.entries(), after.bell, after.delayed_ids()) == (["a"], 1, ["b"])
    assert (await q.take("a")).fire_ms == fire_ms


async def test_a_second_call_moves_it_again_and_leaves_one_entry(q: Driver) -> None:
    await q.send("a", at_ms=LATER_MS)
    await q.reschedule("a", at_ms=LATER_MS + 5)
    await q.reschedule("a", at_ms=LATER_MS + 9)
    assert (await q.look()).delayed == {"an": (LATER_MS + 9) * SLOTS}
    await q.reschedule("a", in_us=0)
    assert await q.reschedule("a", at_ms=LATER_MS) == ("ready", None)


async def test_promoters_are_woken_only_for_an_earlier_head(q: Driver) -> None:
    await q.send("a", "b", at_ms=LATER_MS)
    await q.reschedule("b", at_ms=LATER_MS + 5)
    assert (await q.look()).wake == (LATER_MS,)
    await q.reschedule("b", at_ms=LATER_MS - 5)
    assert (await q.look()).wake == (LATER_MS - 5,)


async def test_a_delay_is_never_early_by_a_millisecond(q: Driver) -> None:
    await q.send("a", at_ms=LATER_MS)
    for delay_us in range(60_000_000, 60_005_000, 777):
        seconds, us = await q.raw.time()
        _, fire_ms = await q.reschedule("a", in_us=delay_us)
        assert (fire_ms or 0) * 1000 >= int(seconds) * 1_000_000 + int(us) + delay_us
        assert (await q.look()).fire_ms("an") == fire_ms


async def test_a_unique_key_counts_from_the_new_fire_time_and_another_holder_keeps_it(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", hold_ms=5, at_ms=LATER_MS))
    await q.reschedule("a", at_ms=LATER_MS + 100, key="key", hold_ms=5)
    assert (await q.look()).unique == {"key": f"{LATER_MS + 105} a"}
    await q.send("b")
    await q.raw.hset(q.keys.unique, "key", "0 b")
    await q.reschedule("a", at_ms=LATER_MS, key="key", hold_ms=5)
    assert (await q.look()).unique == {"key": "0 b"}


async def test_a_unique_key_without_end_stays_so(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", at_ms=LATER_MS))
    await q.reschedule("a", at_ms=LATER_MS + 100, key="key")
    assert (await q.look()).unique == {"key": "0 a"}


async def test_a_paused_queue_stays_silent(q: Driver) -> None:
    await q.send("a", at_ms=LATER_MS)
    await q.pause()
    await q.reschedule("a", in_us=0)
    assert (await q.look()).bell == 0
    await q.ring()
    assert (await q.look()).bell == 0
    await q.resume()
    await q.ring()
    assert (await q.look()).bell == 1
