"""`tick` and the schedules: a slot that is due becomes its runs, once, whoever comes and however many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.edges.driver import RECORD, Sent
from tests.edges.look import SLOTS

if TYPE_CHECKING:
    from tests.edges.driver import Driver

SLOT_MS, NEXT_MS = 1_700_000_000_000, 4_000_000_000_000
"""In the past, and in the year 2096."""


def run(slot_ms: int = SLOT_MS, *, letter: str = "n", at_ms: int | None = None) -> Sent:
    return Sent(id=f"s@{slot_ms}", letter=letter, at_ms=slot_ms if at_ms is None else at_ms)


# ----------------------------------------------------------------------------------------------------------------- tick


async def test_a_due_slot_is_sent_and_the_next_one_stands(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    before = await q.look()
    assert await q.tick("s", run(letter="h"), slot_ms=SLOT_MS, next_ms=NEXT_MS) == ("ticked", 1)
    after = await q.look()
    (entry,) = after.lanes["h"]
    assert after == before.but(
        tasks={f"s@{SLOT_MS}": RECORD},
        places={f"s@{SLOT_MS}": f"h{entry}"},
        lanes={"h": {entry: {"i": f"s@{SLOT_MS}", "f": f"{SLOT_MS}"}}, "n": {}, "l": {}},
        bell=1,
        others=before.others | {"schedules_last"},
    )
    assert await q.slots() == ([], NEXT_MS)


async def test_a_second_tick_of_a_slot_does_nothing(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    await q.tick("s", run(), slot_ms=SLOT_MS, next_ms=NEXT_MS)
    before = await q.look()
    assert await q.tick("s", run(), slot_ms=SLOT_MS, next_ms=NEXT_MS + 1) == ("moved", 0)
    assert await q.look() == before
    assert await q.slots() == ([], NEXT_MS)


async def test_a_run_that_was_sent_already_is_not_sent_again_while_it_lives(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    await q.tick("s", run(), slot_ms=SLOT_MS, next_ms=NEXT_MS)
    await q.raw.zadd(q.keys.schedules_due, {"s": SLOT_MS})
    assert await q.tick("s", run(), slot_ms=SLOT_MS, next_ms=NEXT_MS) == ("ticked", 0)
    assert (await q.look()).entries() == [f"s@{SLOT_MS}"]


async def test_a_slot_is_never_ticked_before_its_time(q: Driver) -> None:
    await q.put("s", next_ms=NEXT_MS)
    before = await q.look()
    assert await q.tick("s", run(NEXT_MS), slot_ms=NEXT_MS) == ("early", 0)
    assert await q.look() == before


async def test_a_caller_with_another_definition_is_refused(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS, fingerprint="new")
    before = await q.look()
    assert await q.tick("s", run(), slot_ms=SLOT_MS, fingerprint="old") == ("changed", 0)
    assert await q.tick("nobody", run(), slot_ms=SLOT_MS) == ("moved", 0)
    assert await q.look() == before


async def test_several_runs_of_one_tick_are_all_sent_and_the_later_ones_wait(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    runs = [run(SLOT_MS), run(SLOT_MS + 1), run(SLOT_MS + 2, at_ms=NEXT_MS - 7)]
    assert await q.tick("s", *runs, slot_ms=SLOT_MS, next_ms=NEXT_MS) == ("ticked", 3)
    after = await q.look()
    assert after.entries() == [f"s@{SLOT_MS}", f"s@{SLOT_MS + 1}"]
    assert after.delayed == {f"s@{SLOT_MS + 2}n": (NEXT_MS - 7) * SLOTS}
    assert after.wake == (NEXT_MS - 7,)


async def overlapping(q: Driver, slot_ms: int) -> int:
    """How many runs a tick sends that must not overlap with the one before."""
    await q.raw.zadd(q.keys.schedules_due, {"s": slot_ms})
    return (await q.tick("s", run(slot_ms), slot_ms=slot_ms, next_ms=NEXT_MS, overlap="skip"))[1]


async def test_a_run_is_skipped_while_the_one_before_lives(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    assert await overlapping(q, SLOT_MS) == 1
    assert await overlapping(q, SLOT_MS + 1) == 0
    held = await q.take(f"s@{SLOT_MS}")
    assert await overlapping(q, SLOT_MS + 2) == 0
    await q.retry(held, delay_us=60_000_000)
    assert await overlapping(q, SLOT_MS + 3) == 0


@pytest.mark.parametrize("end", ["complete", "bury", "cancel"])
async def test_a_run_is_sent_again_when_the_one_before_is_over(q: Driver, end: str) -> None:
    await q.put("s", next_ms=SLOT_MS)
    await overlapping(q, SLOT_MS)
    if end == "cancel":
        await q.cancel(f"s@{SLOT_MS}")
    else:
        held = await q.take(f"s@{SLOT_MS}")
        await (q.complete(held) if end == "complete" else q.bury(held))
    assert await overlapping(q, SLOT_MS + 1) == 1


async def test_of_several_runs_that_must_not_overlap_the_first_is_sent(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    ticked = await q.tick("s", run(SLOT_MS), run(SLOT_MS + 1), slot_ms=SLOT_MS, next_ms=NEXT_MS, overlap="skip")
    assert ticked == ("ticked", 1)


async def test_a_unique_key_is_taken_by_a_run_and_holds_back_the_next(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    await q.tick("s", run(), slot_ms=SLOT_MS, next_ms=SLOT_MS + 1, key="key")
    assert (await q.look()).unique == {"key": f"0 s@{SLOT_MS}"}
    assert await q.tick("s", run(SLOT_MS + 1), slot_ms=SLOT_MS + 1, next_ms=NEXT_MS, key="key") == ("ticked", 0)
    assert (await q.look()).entries() == [f"s@{SLOT_MS}"]


async def test_the_last_slot_ends_a_schedule(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    assert await q.tick("s", run(), slot_ms=SLOT_MS, next_ms=-1) == ("ticked", 1)
    assert await q.slots() == ([], -1)


async def test_a_paused_queue_is_ticked_silently(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    await q.pause()
    assert await q.tick("s", run(), slot_ms=SLOT_MS) == ("ticked", 1)
    assert (await q.look()).bell == 0


# ------------------------------------------------------------------------------------------------------------ schedules


async def test_slots_that_are_due_are_told_with_their_definitions_and_the_next_one(q: Driver) -> None:
    await q.put("later", next_ms=NEXT_MS)
    await q.put("b", next_ms=SLOT_MS + 1, definition="{b c}")
    await q.put("a", next_ms=SLOT_MS)
    due = [("a", SLOT_MS, "print 0 {}"), ("b", SLOT_MS + 1, "print 0 {b c}")]
    assert await q.slots() == (due, NEXT_MS)
    assert await q.slots(most=1) == (due[:1], SLOT_MS + 1)
    assert (await q.lead()).next_slot_ms == SLOT_MS


async def test_a_slot_without_a_definition_is_forgotten(q: Driver) -> None:
    await q.raw.zadd(q.keys.schedules_due, {"s": SLOT_MS})
    assert await q.slots() == ([], -1)
    assert (await q.look()).others == frozenset()


async def test_a_definition_is_written_once_and_changes_are_told(q: Driver) -> None:
    assert await q.put("s", next_ms=NEXT_MS) == "added"
    assert await q.put("s", next_ms=NEXT_MS + 1) == "same"
    assert await q.slots() == ([], NEXT_MS)
    assert await q.put("s", next_ms=NEXT_MS - 9, fingerprint="other", expected="print") == "changed"
    assert await q.slots() == ([], NEXT_MS - 9)


async def test_a_definition_that_another_changed_meanwhile_is_not_overwritten(q: Driver) -> None:
    await q.put("s", next_ms=NEXT_MS, fingerprint="theirs")
    before = await q.look()
    assert await q.put("s", next_ms=SLOT_MS, fingerprint="mine", expected="former") == "again"
    assert await q.look() == before
    assert await q.slots() == ([], NEXT_MS)


async def test_a_slot_that_waits_is_kept_where_only_something_else_has_changed(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    await q.put("s", next_ms=NEXT_MS, fingerprint="other", expected="print", keep=True)
    assert await q.slots() == ([("s", SLOT_MS, "other 0 {}")], -1)


async def test_a_slot_that_somebody_deleted_comes_back_with_the_next_declaration(q: Driver) -> None:
    await q.put("s", next_ms=NEXT_MS)
    await q.raw.delete(q.keys.schedules_due)
    assert await q.put("s", next_ms=NEXT_MS + 5) == "same"
    assert await q.slots() == ([], NEXT_MS + 5)


async def test_a_paused_schedule_has_no_slot_and_stays_paused_when_its_definition_changes(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    assert await q.pause_schedule("s", on=True)
    assert await q.slots() == ([], -1)
    assert await q.tick("s", run(), slot_ms=SLOT_MS) == ("moved", 0)
    assert await q.put("s", next_ms=SLOT_MS, fingerprint="other", expected="print") == "changed"
    assert await q.put("s", next_ms=SLOT_MS, fingerprint="other") == "same"
    assert await q.slots() == ([], -1)
    assert not await q.pause_schedule("s", on=False, next_ms=NEXT_MS)
    assert await q.pause_schedule("s", on=False, next_ms=NEXT_MS, fingerprint="other")
    assert await q.slots() == ([], NEXT_MS)
    assert await q.pause_schedule("s", on=False, next_ms=NEXT_MS + 5, fingerprint="other")
    assert await q.slots() == ([], NEXT_MS)


async def test_nothing_is_left_of_a_removed_schedule_but_the_runs_it_sent(q: Driver) -> None:
    await q.put("s", next_ms=SLOT_MS)
    await q.put("t", next_ms=NEXT_MS + 1)
    await q.tick("s", run(), slot_ms=SLOT_MS, next_ms=NEXT_MS)
    assert await q.remove_schedule("s")
    assert not await q.remove_schedule("s")
    assert await q.slots() == ([], NEXT_MS + 1)
    after = await q.look()
    assert (after.entries(), "schedules_last" in after.others) == ([f"s@{SLOT_MS}"], False)
