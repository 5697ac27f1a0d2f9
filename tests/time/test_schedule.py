"""Which slots a schedule has, which of them get a run when they are ticked late, and which not."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firetime.values.errors import InvalidOption
from firetime.values.schedule import (
    MOST_RUNS,
    Schedule,
    fingerprint,
    first_slot,
    jittered,
    kept_fingerprint,
    plan,
    read_kept,
    same_slots,
    schedule,
)

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000
MINUTE_MS = 60_000


def made(**options: Any) -> Schedule:
    return schedule("s", b"record", **{"cron": "* * * * *", **options})


def every(interval: float, **options: Any) -> Schedule:
    return schedule("s", b"record", every=interval, **options)


def runs(one: Schedule, *, slot: int = 0, now: float, attended: float | None = None) -> list[int]:
    """The minutes after noon whose slots get a run; nobody was there before now, unless it is said."""
    now_ms = NOON_MS + round(now * MINUTE_MS)
    attended_ms = now_ms if attended is None else NOON_MS + round(attended * MINUTE_MS)
    planned = plan(one, NOON_MS + slot * MINUTE_MS, now_ms, attended_ms=attended_ms)
    assert planned.next_ms is not None
    assert planned.next_ms > now_ms
    return [(each - NOON_MS) // MINUTE_MS for each in planned.slots_ms]


# ----------------------------------------------------------------------------------------------------- the first slot


def test_the_first_slot_of_an_interval_is_one_interval_away() -> None:
    assert first_slot(every(30), NOON_MS) == NOON_MS + 30_000


def test_with_a_start_it_is_that_and_whole_intervals_after_it() -> None:
    one = every(60, start=NOON)
    assert first_slot(one, NOON_MS - 86_400_000) == NOON_MS
    assert first_slot(one, NOON_MS - 1) == NOON_MS
    assert first_slot(one, NOON_MS) == NOON_MS + 60_000
    assert first_slot(one, NOON_MS + 60_001) == NOON_MS + 120_000


def test_the_first_slot_of_an_expression_comes_after_now_and_not_before_the_start() -> None:
    assert first_slot(made(), NOON_MS) == NOON_MS + MINUTE_MS
    assert first_slot(made(), NOON_MS - 1) == NOON_MS
    assert first_slot(made(start=NOON), NOON_MS - 86_400_000) == NOON_MS
    assert first_slot(made(start=NOON + timedelta(seconds=1)), 0) == NOON_MS + MINUTE_MS


def test_a_schedule_has_no_slot_after_its_end() -> None:
    one = made(until=NOON)
    assert first_slot(one, NOON_MS - 1) == NOON_MS
    assert first_slot(one, NOON_MS) is None
    assert plan(one, NOON_MS, NOON_MS, attended_ms=0).next_ms is None
    assert first_slot(every(60, until=NOON), NOON_MS - 59_000) is None
    assert first_slot(made(cron="0 0 1 1 *"), int(datetime(2199, 6, 1, tzinfo=UTC).timestamp() * 1000)) is not None
    assert first_slot(made(cron="0 0 2 1 *"), int(datetime(2199, 6, 1, tzinfo=UTC).timestamp() * 1000)) is None


# ------------------------------------------------------------------------------------------------------------ a tick


def test_a_slot_in_time_gets_its_run() -> None:
    for misfire in ("skip", "once", "all"):
        assert runs(made(misfire=misfire), now=0) == [0]
        assert runs(made(misfire=misfire), now=0.01) == [0]


@pytest.mark.parametrize(("misfire", "expected"), [("skip", []), ("once", [2]), ("all", [0, 1, 2])])
def test_slots_of_a_time_when_nobody_was_there(misfire: str, expected: list[int]) -> None:
    assert runs(made(misfire=misfire), now=2.5) == expected
    assert runs(every(60, misfire=misfire), now=2.5) == expected


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_a_slot_ticked_late_by_one_who_was_there_is_not_missed(misfire: str) -> None:
    assert runs(made(misfire=misfire), now=2.5, attended=-1) == [0, 1, 2]


def test_what_was_missed_before_somebody_came_is_told_from_what_was_only_late() -> None:
    assert runs(made(misfire="skip"), now=3.5, attended=1.5) == [2, 3]
    assert runs(made(misfire="once"), now=3.5, attended=1.5) == [2, 3]
    assert runs(made(misfire="all"), now=3.5, attended=1.5) == [0, 1, 2, 3]


def test_a_slot_within_the_grace_is_in_time_even_where_nobody_was_there() -> None:
    assert runs(made(misfire="skip", grace=40), now=2.5) == [2]
    assert runs(made(misfire="once", grace=40), now=2.5) == [2]
    assert runs(made(misfire="skip", grace=0), now=0) == [0]


def test_of_many_missed_ones_the_latest_are_run() -> None:
    assert runs(made(misfire="all", misfire_limit=3), now=5000.5) == [4998, 4999, 5000]
    assert runs(every(60, misfire="all", misfire_limit=3), now=5000.5) == [4998, 4999, 5000]
    assert runs(made(misfire="once"), now=500_000.5) == [500_000]


def test_a_tick_sends_a_batch_at_most_and_the_next_one_goes_on() -> None:
    one = every(0.001, misfire="all", misfire_limit=1000)
    now_ms = NOON_MS + 10_000
    first = plan(one, NOON_MS, now_ms, attended_ms=NOON_MS)
    assert first.slots_ms == list(range(NOON_MS, NOON_MS + MOST_RUNS))
    assert first.next_ms == NOON_MS + MOST_RUNS
    missed = plan(one, NOON_MS, now_ms, attended_ms=now_ms)
    assert missed.slots_ms[0] == now_ms - one.grace_ms - 1000
    assert missed.next_ms == missed.slots_ms[-1] + 1


def test_a_slot_that_the_time_zones_rules_have_moved_is_not_run_at_the_old_time() -> None:
    one = made(cron="0 * * * *")
    planned = plan(one, NOON_MS + 1, NOON_MS + 1, attended_ms=0)
    assert planned.slots_ms == []
    assert planned.next_ms == NOON_MS + 60 * MINUTE_MS


@given(
    st.sampled_from([made(), made(cron="*/10 * * * * *"), every(45), every(0.7)]),
    st.lists(st.integers(1, 300_000), min_size=1, max_size=30),
)
def test_however_late_the_ticks_come_each_slot_gets_one_run(one: Schedule, waits: list[int]) -> None:
    now_ms = NOON_MS
    slot_ms = first_slot(one, now_ms)
    found: list[int] = []
    for wait in waits:
        now_ms += wait
        while slot_ms is not None and slot_ms <= now_ms:
            planned = plan(one, slot_ms, now_ms, attended_ms=NOON_MS)
            found += planned.slots_ms
            slot_ms = planned.next_ms
    expected: list[int] = []
    slot_ms = first_slot(one, NOON_MS)
    while slot_ms is not None and slot_ms <= now_ms:
        expected.append(slot_ms)
        slot_ms = plan(one, slot_ms, slot_ms, attended_ms=NOON_MS).next_ms
    assert found == expected


def test_jitter_is_only_ever_added() -> None:
    one = made(jitter=2)
    random.seed(7)
    found = {jittered(one, NOON_MS) - NOON_MS for _ in range(300)}
    assert 0 <= min(found) < 200
    assert 1800 < max(found) <= 2000
    assert jittered(made(), NOON_MS) == NOON_MS


# ----------------------------------------------------------------------------------------------------- the definition


def test_every_part_of_a_definition_tells_it_from_another() -> None:
    others = [
        made(),
        schedule("s", b"another record", cron="* * * * *"),
        made(cron="*/2 * * * *"),
        made(tz="Europe/Berlin"),
        made(start=NOON),
        made(until=NOON),
        made(misfire="all"),
        made(misfire="all", misfire_limit=7),
        made(grace=2),
        made(jitter=1),
        made(overlap="skip"),
    ]
    assert len({fingerprint(one) for one in others}) == len(others)
    assert fingerprint(made()) == fingerprint(made())
    assert [same_slots(made(), one) for one in others] == [True, True, *[False] * 4, *[True] * 5]


def test_what_is_kept_comes_back_and_what_cannot_be_read_is_told_by_its_name() -> None:
    import msgspec

    one = made(tz="Europe/Berlin", until=NOON)
    kept = read_kept("s", f"{fingerprint(one)} 1 ".encode() + msgspec.json.encode(one))
    assert (kept.fingerprint, kept.paused, kept.schedule) == (fingerprint(one), True, one)
    newer = msgspec.json.encode(one).replace(b'"tz"', b'"added_later":7,"tz"')
    assert read_kept("s", b"abc 0 " + newer).schedule == one
    spoiled = [
        newer.replace(b"Berlin", b"Atlantis"),
        newer.replace(b"* * * * *", b"every minute"),
        newer.replace(b'"cron":"* * * * *"', b'"every_ms":0'),
        newer.replace(b'"cron"', b'"moon"'),
        newer.replace(b'"added_later":7', b'"every_ms":5'),
        newer.replace(b'"added_later":7', b'"start_ms":1e30'),
    ]
    assert newer not in spoiled
    for stored in (b"", b"abc", b"abc 0 {", b'abc 0 {"name":"s"}', *(b"abc 0 " + each for each in spoiled)):
        with pytest.raises(InvalidOption, match="schedule='s'"):
            read_kept("s", stored)
    assert [kept_fingerprint(stored) for stored in (None, b"", b"garbage", b"abc 1 {")] == ["", "", "", "abc"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"every": 5}, "cron"),
        ({"cron": None}, "cron"),
        ({"misfire": "never"}, "misfire"),
        ({"overlap": "queue"}, "overlap"),
        ({"misfire_limit": 0}, "misfire_limit"),
        ({"misfire_limit": 1001}, "misfire_limit"),
        ({"misfire_limit": "5"}, "misfire_limit"),
        ({"start": datetime(2026, 1, 1)}, "start"),  # noqa: DTZ001 - naive is the mistake
        ({"start": NOON, "until": NOON - timedelta(seconds=1)}, "until"),
        ({"grace": -1}, "grace"),
        ({"jitter": -1}, "jitter"),
        ({"cron": None, "every": 0}, "every"),
        ({"cron": None, "every": -1}, "every"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        made(**options)
    assert refused.value.name == named
