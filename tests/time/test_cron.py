"""What a cron expression means where the clock changes: these tables stand in docs/time.md as well."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firetime.values.cron import checked_cron, checked_zone, cron_slots
from firetime.values.errors import InvalidOption

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 29, tzinfo=BERLIN)
"""02:00 CET is 03:00 CEST."""
AUTUMN = datetime(2026, 10, 25, tzinfo=BERLIN)
"""03:00 CEST is 02:00 CET."""


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def slots(expression: str, begin: datetime, count: int, tz: str = "Europe/Berlin") -> list[str]:
    zone = ZoneInfo(tz)
    found = islice(cron_slots(expression, tz, ms(begin)), count)
    return [datetime.fromtimestamp(slot / 1000, zone).strftime("%d. %H:%M %Z") for slot in found]


@pytest.mark.parametrize(
    ("expression", "spring", "autumn"),
    [
        (
            "0 * * * *",
            ["29. 01:00 CET", "29. 03:00 CEST", "29. 04:00 CEST"],
            ["25. 01:00 CEST", "25. 02:00 CEST", "25. 02:00 CET", "25. 03:00 CET"],
        ),
        (
            "*/15 * * * *",
            ["29. 01:00 CET", "29. 01:15 CET", "29. 01:30 CET", "29. 01:45 CET", "29. 03:00 CEST", "29. 03:15 CEST"],
            ["25. 01:00 CEST", "25. 01:15 CEST", "25. 01:30 CEST", "25. 01:45 CEST"]
            + [f"25. 02:{minute:02} {zone}" for zone in ("CEST", "CET") for minute in (0, 15, 30, 45)]
            + ["25. 03:00 CET"],
        ),
        ("30 2 * * *", ["29. 03:00 CEST", "30. 02:30 CEST"], ["25. 02:30 CEST", "26. 02:30 CET"]),
        ("0 30 2 * * *", ["29. 03:00 CEST", "30. 02:30 CEST"], ["25. 02:30 CEST", "26. 02:30 CET"]),
        (
            "30 1-3 * * *",
            ["29. 01:30 CET", "29. 03:00 CEST", "29. 03:30 CEST", "30. 01:30 CEST"],
            ["25. 01:30 CEST", "25. 02:30 CEST", "25. 03:30 CET", "26. 01:30 CET"],
        ),
        (
            "0,30 2 * * *",
            ["29. 03:00 CEST", "30. 02:00 CEST", "30. 02:30 CEST"],
            ["25. 02:00 CEST", "25. 02:30 CEST", "26. 02:00 CET"],
        ),
        (
            "*/30 2 * * *",
            ["30. 02:00 CEST", "30. 02:30 CEST", "31. 02:00 CEST"],
            ["25. 02:00 CEST", "25. 02:30 CEST", "25. 02:00 CET", "25. 02:30 CET", "26. 02:00 CET"],
        ),
    ],
)
def test_where_the_clock_changes(expression: str, spring: list[str], autumn: list[str]) -> None:
    hour = timedelta(hours=1)
    assert slots(expression, SPRING + hour, len(spring)) == spring
    assert slots(expression, AUTUMN + hour, len(autumn)) == autumn


def test_a_slot_is_its_own_first_and_the_millisecond_after_it_has_the_next() -> None:
    noon = ms(datetime(2026, 7, 1, 12, tzinfo=BERLIN))
    assert next(cron_slots("0 12 * * *", "Europe/Berlin", noon)) == noon
    assert next(cron_slots("0 12 * * *", "Europe/Berlin", noon - 1)) == noon
    assert next(cron_slots("0 12 * * *", "Europe/Berlin", noon + 1)) == noon + 86_400_000


def test_what_begins_in_the_repeated_hour_does_not_see_its_first_time_again() -> None:
    second_time = ms(AUTUMN.replace(hour=2, minute=15, fold=1))
    assert slots("30 2 * * *", datetime.fromtimestamp(second_time / 1000, BERLIN), 1) == ["26. 02:30 CET"]


def test_where_midnight_is_skipped_the_day_begins_at_one() -> None:
    begin = datetime(2018, 11, 3, 1, tzinfo=ZoneInfo("America/Sao_Paulo"))
    assert slots("0 0 * * *", begin, 2, "America/Sao_Paulo") == ["04. 01:00 -02", "05. 00:00 -02"]


def test_days_and_names_are_those_of_cron() -> None:
    begin = datetime(2026, 1, 1, tzinfo=BERLIN)
    assert slots("0 9 * * mon-fri", begin, 3) == ["01. 09:00 CET", "02. 09:00 CET", "05. 09:00 CET"]
    assert slots("0 0 L * *", begin, 2) == ["31. 00:00 CET", "28. 00:00 CET"]
    assert slots("0 0 29 2 *", begin, 1) == ["29. 00:00 CET"]


EXPRESSIONS = ["* * * * *", "*/7 3 * * *", "30 2 * * *", "0 0 1 * *", "5 4 * * sun", "*/10 * * * * *", "0 30 2 * * *"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]


@given(st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES), st.integers(ms(datetime(2026, 1, 1, tzinfo=UTC)), 2**42))
@example("30 2 * * *", "Europe/Berlin", ms(SPRING.replace(hour=1, minute=59)))
@example("30 2 * * *", "Europe/Berlin", ms(AUTUMN.replace(hour=2, minute=45, fold=1)))
def test_slots_ascend_and_do_not_depend_on_where_one_begins_to_count(expression: str, tz: str, from_ms: int) -> None:
    found = list(islice(cron_slots(expression, tz, from_ms), 5))
    assert all(from_ms <= one < other for one, other in pairwise(found))
    for one, other in pairwise(found):
        assert next(cron_slots(expression, tz, one)) == one
        assert next(cron_slots(expression, tz, one + 1)) == other


@pytest.mark.parametrize(
    "expression", ["", "* * * *", "* * * * * * *", "61 * * * *", "0 0 30 2 *", "a b c d e", "@daily", None, 5]
)
def test_an_expression_that_cannot_be_meant_is_refused(expression: str) -> None:
    with pytest.raises(InvalidOption, match="cron="):
        checked_cron(expression)


@pytest.mark.parametrize("tz", ["Mars/Olympus", "", "../etc/passwd", "CEST", None])
def test_a_zone_that_does_not_exist_is_refused(tz: str) -> None:
    with pytest.raises(InvalidOption, match="tz="):
        checked_zone(tz)
