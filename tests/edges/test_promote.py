"""`promote`: delayed -> ready, when its fire-time comes and never before."""

from __future__ import annotations

import pytest

from firetime.values.errors import BrokerRefused
from tests.edges import states
from tests.edges.driver import HOUR_MS, ME, OTHER, RECORD, Driver, Sent

LATER_MS = 4_000_000_000_000
"""A fire-time in the year 2096."""


@pytest.mark.parametrize(
    ("arrange", "moved"),
    [
        (states.none, 0),
        (states.no_lanes, 0),
        (states.delayed, 1),
        (states.ready, 0),
        (states.running, 0),
        (states.given_to_another, 0),
        (states.swept_by_another, 0),
        (states.done, 0),
        (states.dead, 0),
        (states.cancelled, 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_only_what_is_delayed_is_moved(q: Driver, arrange: states.Arrange, moved: int) -> None:
    await arrange(q)
    await q.travel_to(LATER_MS)
    before = await q.look()
    assert (await q.promote()).moved == moved
    if not moved:
        assert await q.look() == before


async def test_a_due_one_enters_its_lane_with_its_fire_time_and_rings(q: Driver) -> None:
    await q.lead()
    await q.send("a", letter="l", at_ms=LATER_MS)
    await q.travel_to(LATER_MS)
    before = await q.look()
    promoted = await q.promote()
    assert (promoted.moved, promoted.next_ms) == (1, -1)
    after = await q.look()
    (entry,) = after.lanes["l"]
    assert after == before.but(
        delayed={},
        places={"a": f"l{entry}"},
        lanes={"h": {}, "n": {}, "l": {entry: {"i": "a", "f": f"{LATER_MS}"}}},
        bell=1,
        metrics=after.metrics,
    )
    (one,) = (await q.claim()).given
    assert (one.id, one.record, one.fire_ms) == ("a", RECORD, LATER_MS)


async def test_a_second_call_moves_nothing(q: Driver) -> None:
    await q.send("a", at_ms=LATER_MS)
    await q.travel_to(LATER_MS + HOUR_MS)
    await q.promote()
    before = await q.look()
    assert (await q.promote()).moved == 0
    assert await q.look() == before


async def test_the_leader_is_never_early_by_a_millisecond(q: Driver) -> None:
    await q.lead()
    assert await q.dispatch(*(Sent(id=f"{ms:03}", at_ms=LATER_MS + ms) for ms in range(400))) == []
    await q.travel_to(LATER_MS - 1)
    moved = 0
    while moved < 400:
        promoted = await q.promote()
        moved += promoted.moved
        now_ms = promoted.now_us // 1000
        last_ms = LATER_MS + moved - 1
        assert last_ms <= now_ms
        if moved < 400:
            assert promoted.next_ms == last_ms + 1


async def test_the_leader_moves_what_is_due_to_the_millisecond(q: Driver) -> None:
    await q.lead()
    await q.send("a", at_ms=LATER_MS)
    await q.travel_to(LATER_MS)
    promoted = await q.promote()
    assert promoted.moved == 1
    assert promoted.late_ms <= promoted.now_us // 1000 - LATER_MS + 1


async def test_anyone_else_moves_only_what_is_a_second_overdue(q: Driver) -> None:
    await q.lead(OTHER)
    await q.send("a", at_ms=LATER_MS)
    await q.travel_to(LATER_MS)
    assert (await q.promote(ME, grace_ms=60_000)).moved == 0
    await q.travel_to(LATER_MS + 60_000)
    assert (await q.promote(ME, grace_ms=60_000)).moved == 1


async def test_without_a_leader_everyone_waits_for_the_grace(q: Driver) -> None:
    await q.send("a", at_ms=LATER_MS)
    await q.travel_to(LATER_MS)
    assert (await q.promote(grace_ms=60_000)).moved == 0
    await q.travel_to(LATER_MS + 60_000)
    assert (await q.promote(grace_ms=60_000)).moved == 1


async def test_a_leader_whose_lease_ran_out_is_anyone(q: Driver) -> None:
    await q.lead()
    await q.raw.delete(q.keys.leader)
    await q.send("a", at_ms=LATER_MS)
    await q.travel_to(LATER_MS)
    assert (await q.promote(grace_ms=60_000)).moved == 0


async def test_one_whose_name_begins_like_the_leaders_is_not_the_leader(q: Driver) -> None:
    await q.lead("leader")
    await q.send("a", at_ms=LATER_MS)
    await q.travel_to(LATER_MS)
    for token in ("lead", "leader2", "", "leader 1"):
        assert (await q.promote(token, grace_ms=60_000)).moved == 0


async def test_at_most_so_many_are_moved_from_the_head(q: Driver) -> None:
    await q.lead()
    await q.dispatch(*(Sent(id=f"{i}", at_ms=LATER_MS + i) for i in range(10)))
    await q.travel_to(LATER_MS + 60_000)
    first = await q.promote(most=3)
    assert (first.moved, first.next_ms) == (3, LATER_MS + 3)
    assert (await q.look()).entries() == ["0", "1", "2"]
    assert (await q.promote(most=500)).moved == 7
    assert (await q.look()).entries() == [f"{i}" for i in range(10)]


async def test_five_hundred_are_moved_in_one_call_in_order_of_arrival(q: Driver) -> None:
    await q.lead()
    ids = [f"{999 - i}" for i in range(500)]
    await q.dispatch(*(Sent(id=id, at_ms=LATER_MS) for id in ids))
    await q.travel_to(LATER_MS)
    assert (await q.promote()).moved == 500
    assert (await q.claim(free=500)).ids == ids


async def test_each_goes_to_its_own_lane(q: Driver) -> None:
    await q.lead()
    await q.dispatch(*(Sent(id=f"{letter}{i}", letter=letter, at_ms=LATER_MS) for i in range(2) for letter in "lnh"))
    await q.travel_to(LATER_MS)
    await q.promote()
    after = await q.look()
    assert [after.entries(letter) for letter in "hnl"] == [["h0", "h1"], ["n0", "n1"], ["l0", "l1"]]


async def test_it_tells_the_next_fire_time_the_time_and_the_newest_wake(q: Driver) -> None:
    nothing = await q.promote()
    assert (nothing.moved, nothing.next_ms, nothing.wake_id, nothing.late_ms) == (0, -1, "0-0", 0)
    await q.send("a", at_ms=LATER_MS)
    ((wake_id, _),) = await q.raw.xrange(q.keys.wake)
    told = await q.promote()
    assert (told.next_ms, told.wake_id) == (LATER_MS, wake_id.decode())
    assert abs(told.now_us // 1000 - await q.now_ms()) < 5_000


async def test_the_bell_is_silent_where_nothing_was_due_or_the_queue_is_paused(q: Driver) -> None:
    await q.lead()
    await q.send("a", at_ms=LATER_MS)
    await q.promote()
    assert (await q.look()).bell == 0
    await q.pause()
    await q.travel_to(LATER_MS)
    assert (await q.promote()).moved == 1
    assert (await q.look()).bell == 0


async def test_how_many_and_how_late_is_counted(q: Driver) -> None:
    await q.dispatch(Sent(id="a", at_ms=LATER_MS), Sent(id="b", at_ms=LATER_MS + 1_000))
    await q.travel_to(LATER_MS + 60_000)
    promoted = await q.promote()
    assert 119_000 <= promoted.late_ms <= 119_000 + 10_000
    metrics = (await q.look()).metrics
    assert metrics["delayed_tasks_schedule_count"] == 2
    assert metrics["delayed_tasks_late_ms"] == promoted.late_ms
    assert 0 <= metrics["delayed_tasks_schedule_sum"] < 1_000_000


async def test_a_counter_that_cannot_count_does_not_stop_a_promotion(q: Driver) -> None:
    await q.send("a", at_ms=LATER_MS)
    await q.raw.set(q.keys.metrics, "foreign")
    await q.travel_to(LATER_MS + 60_000)
    assert (await q.promote()).moved == 1
    await q.raw.delete(q.keys.metrics)


async def test_a_member_that_somebody_else_wrote_becomes_a_dead_letter_and_the_others_go_on(q: Driver) -> None:
    q.expected_unsound = True
    await q.send("a", at_ms=LATER_MS)
    await q.raw.zadd(q.keys.delayed, {"gibberisx": 1, "x": 2, "nobodyn": 3})
    await q.travel_to(LATER_MS + 60_000)
    assert (await q.promote()).moved == 4
    given = (await q.claim()).given
    assert [(one.id, one.record) for one in given] == [
        ("gibberisx", None),
        ("x", None),
        ("nobody", None),
        ("a", RECORD),
    ]
    assert await q.bury(*given[:3]) == []
    assert (await q.look()).dead == {"gibberisx", "x", "nobody"}


async def test_one_that_was_cancelled_while_delayed_never_comes(q: Driver) -> None:
    await q.send("a", "b", at_ms=LATER_MS)
    await q.cancel("a")
    await q.travel_to(LATER_MS + 60_000)
    assert (await q.promote()).moved == 1
    assert (await q.claim()).ids == ["b"]


async def test_a_delayed_set_of_a_wrong_type_is_an_error_that_changes_nothing(q: Driver) -> None:
    await q.raw.set(q.keys.delayed, "foreign")
    with pytest.raises(BrokerRefused, match="WRONGTYPE"):
        await q.promote()
    await q.raw.delete(q.keys.delayed)
