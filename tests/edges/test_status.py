"""`status`: where a message is, all in one look that changes nothing."""

from __future__ import annotations

import pytest

from tests.edges import states
from tests.edges.driver import HOUR_MS, ME, OTHER, RECORD, Driver, Ended, Sent, Told

LATER_MS = 4_000_000_000_000


@pytest.mark.parametrize(
    ("arrange", "status", "deliveries", "outcome"),
    [
        (states.none, "unknown", 0, ""),
        (states.no_lanes, "unknown", 0, ""),
        (states.delayed, "delayed", 0, "n"),
        (states.ready, "ready", 0, "n"),
        (states.running, "running", 1, "n"),
        (states.given_to_another, "running", 1, "n"),
        (states.swept_by_another, "running", 2, "n"),
        (states.swept_and_run_elsewhere, "running", 1, "n"),
        (states.swept_here, "running", 2, "n"),
        (states.done, "ended", 0, "done"),
        (states.dead, "dead", 0, ""),
        (states.cancelled, "ended", 0, "cancelled"),
        (states.done_and_sent_again, "ready", 0, "n"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_each_state_has_its_own_answer_and_asking_changes_nothing(
    q: Driver, arrange: states.Arrange, status: str, deliveries: int, outcome: str
) -> None:
    await arrange(q)
    before = await q.look()
    told = await q.status("a")
    assert (told.status, told.deliveries, told.outcome.split(" ")[0]) == (status, deliveries, outcome)
    assert told.record == (RECORD if status in {"delayed", "ready", "running", "dead"} else None)
    assert await q.look() == before


async def test_a_delayed_one_tells_its_fire_time_and_its_lane(q: Driver) -> None:
    await q.send("a", at_ms=LATER_MS, letter="l")
    assert await q.status("a") == Told("delayed", LATER_MS, RECORD, None, 0, "l", None)


async def test_a_ready_one_tells_since_when_and_its_lane_before_any_worker_is_there(q: Driver) -> None:
    from_ms = await q.now_ms()
    await q.send("a", letter="h")
    told = await q.status("a")
    assert (told.status, told.outcome) == ("ready", "h")
    assert told.fire_ms is not None
    assert from_ms <= told.fire_ms <= await q.now_ms()


async def test_one_that_failed_tells_what_was_noted(q: Driver) -> None:
    await q.send("a")
    await q.retry(await q.take("a"), state=b"1 2 {notes}")
    assert (await q.status("a")).state == b"1 2 {notes}"


async def test_a_dead_letter_tells_when_it_died_its_record_and_its_notes(q: Driver) -> None:
    await q.send("a")
    from_ms = await q.now_ms()
    await q.bury(await q.take("a"), state=b"1 2 {notes}")
    told = await q.status("a")
    assert (told.record, told.state) == (RECORD, b"1 2 {notes}")
    assert told.fire_ms is not None
    assert from_ms <= told.fire_ms <= await q.now_ms()


async def test_a_result_is_told_with_the_outcome_as_long_as_it_is_kept(q: Driver) -> None:
    value = b"\x00\xff"
    await q.send("a")
    held = await q.take("a")
    await q.complete(others=[Ended(held=held, remember_ms=HOUR_MS, result_ms=HOUR_MS, value=value)])
    told = await q.status("a")
    assert (told.status, told.outcome.split(" ")[0], told.value) == ("ended", "done", value)
    await q.raw.delete(q.keys.result("a"))
    told = await q.status("a")
    assert (told.status, told.value) == ("ended", None)
    await q.raw.delete(q.keys.ended("a"))
    assert (await q.status("a")).status == "unknown"


async def test_an_empty_value_is_not_none(q: Driver) -> None:
    await q.send("a")
    await q.complete(others=[Ended(held=await q.take("a"), remember_ms=HOUR_MS, result_ms=HOUR_MS, value=b"")])
    assert (await q.status("a")).value == b""


async def test_one_sent_again_tells_its_present_life(q: Driver) -> None:
    await q.send("a")
    await q.complete(others=[Ended(held=await q.take("a"), remember_ms=HOUR_MS)])
    await q.dispatch(Sent(id="a"))
    assert (await q.status("a")).status == "ready"


async def test_one_whose_record_was_lost_still_tells_where_it_stands(q: Driver) -> None:
    q.expected_unsound = True
    await q.send("a")
    await q.raw.hdel(q.keys.tasks, "a")
    told = await q.status("a")
    assert (told.status, told.record) == ("ready", None)
    await q.take("a", OTHER)
    assert (await q.status("a")).status == "running"


async def test_a_lane_that_was_deleted_does_not_stop_the_question(q: Driver) -> None:
    q.expected_unsound = True
    await q.send("a")
    await q.take("a", ME)
    await q.raw.delete(q.keys.normal)
    assert (await q.status("a")).status == "ready"
