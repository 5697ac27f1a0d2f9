"""Recurring schedules: when the next slot is, and which slots of the past still want a run. Pure; the clock comes in."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from firetime.values.durations import LATEST_MS, Duration, epoch_ms, seconds
from firetime.values.errors import InvalidOption
from firetime.values.ids import checked_name

Misfire = Literal["skip", "once", "all"]
"""What happens to slots that nobody could tick in time: none is run, only the latest is, or each of them."""

Overlap = Literal["run", "skip"]
"""Whether a slot is run while the run of the last one still lives."""

NOMINAL = "firetime-nominal"
"""The header that carries a run's slot, in ms since 1970."""

_MOST_STEPS = 10_000
"""Slots walked one by one; a longer gap is looked at from its end."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The definition of a recurring task, as Redis keeps it: everything that a tick needs, whoever ticks."""

    name: str
    record: bytes
    """The message of a run, as the codec wrote it."""
    cron: str | None = None
    every_ms: int | None = None
    tz: str = "UTC"
    start_ms: int | None = None
    until_ms: int | None = None
    misfire: Misfire = "once"
    misfire_limit: int = 100
    grace_ms: int = 1000
    """How late a slot may be before it counts as missed."""
    jitter_ms: int = 0
    overlap: Overlap = "run"


class Plan(msgspec.Struct, frozen=True):
    """What one tick does."""

    slots_ms: list[int]
    """The slots that get a run, oldest first."""
    next_ms: int | None
    """The next slot; None when the schedule is over."""


def schedule(
    name: str,
    record: bytes,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    tz: str = "UTC",
    start: datetime | None = None,
    until: datetime | None = None,
    misfire: Misfire = "once",
    misfire_limit: int = 100,
    grace: Duration = 1.0,
    jitter: Duration = 0.0,
    overlap: Overlap = "run",
) -> Schedule:
    """A checked definition. Raises ``InvalidOption`` naming what cannot be meant."""
    if (cron is None) == (every is None):
        raise InvalidOption("cron", cron, "either a cron expression or every=, not both")
    if misfire not in get_args(Misfire):
        raise InvalidOption("misfire", misfire, "one of 'skip', 'once', 'all'")
    if overlap not in get_args(Overlap):
        raise InvalidOption("overlap", overlap, "'run' or 'skip'")
    if misfire_limit < 1:
        raise InvalidOption("misfire_limit", misfire_limit, "a whole number of at least 1")
    return Schedule(
        name=checked_name("schedule", name),
        record=record,
        cron=None if cron is None else _checked_cron(cron),
        every_ms=None if every is None else round(seconds("every", every, least=0.001) * 1000),
        tz=_checked_zone(tz),
        start_ms=None if start is None else epoch_ms("start", start),
        until_ms=None if until is None else epoch_ms("until", until),
        misfire=misfire,
        misfire_limit=misfire_limit,
        grace_ms=round(seconds("grace", grace) * 1000),
        jitter_ms=round(seconds("jitter", jitter) * 1000),
        overlap=overlap,
    )


def fingerprint(made: Schedule) -> str:
    """Tells one definition from another: a tick that carries another's is refused."""
    return hashlib.sha256(msgspec.json.encode(made)).hexdigest()[:16]


def first_slot(made: Schedule, now_ms: int) -> int | None:
    """The first slot of a schedule that begins now."""
    start_ms = made.start_ms
    if made.every_ms is not None:
        if start_ms is None:
            return _within(made, now_ms + made.every_ms)
        steps = max(0, -(-(now_ms - start_ms) // made.every_ms))
        return _within(made, start_ms + steps * made.every_ms)
    # a start is a slot itself when the expression says so
    return _next_cron(made, now_ms if start_ms is None else max(now_ms, start_ms - 1))


def plan(made: Schedule, slot_ms: int, now_ms: int) -> Plan:
    """What to do about the slot that is due, and those after it that are due as well."""
    due, next_ms = _due_slots(made, slot_ms, now_ms)
    on_time = [each for each in due if now_ms - each <= made.grace_ms]
    missed = [each for each in due if now_ms - each > made.grace_ms]
    if made.misfire == "all":
        return Plan([*missed, *on_time][-made.misfire_limit :], next_ms)
    if made.misfire == "once" and missed and not on_time:
        return Plan(missed[-1:], next_ms)
    return Plan(on_time, next_ms)


def jittered(made: Schedule, slot_ms: int) -> int:
    """When a slot's run is due: the slot, and up to the jitter later."""
    return slot_ms + (random.randint(0, made.jitter_ms) if made.jitter_ms else 0)


def _due_slots(made: Schedule, slot_ms: int, now_ms: int) -> tuple[list[int], int | None]:
    keep = made.misfire_limit + 1
    if made.every_ms is not None:
        count = (now_ms - slot_ms) // made.every_ms + 1
        first = max(0, count - max(keep, made.grace_ms // made.every_ms + 1))
        due = [slot_ms + number * made.every_ms for number in range(first, count)]
        return [each for each in due if _within(made, each)], _within(made, slot_ms + count * made.every_ms)
    due = [slot_ms]
    for each in islice(_cron_slots(made, slot_ms), _MOST_STEPS):
        if each > now_ms:
            return due, _within(made, each)
        due.append(each)
    if len(due) <= _MOST_STEPS:
        return due, None
    late = islice(_cron_slots(made, now_ms, reverse=True), keep)
    return sorted(each for each in late if each >= slot_ms), _next_cron(made, now_ms)


def _next_cron(made: Schedule, after_ms: int) -> int | None:
    for each in islice(_cron_slots(made, after_ms), _MOST_STEPS):
        if each > after_ms:
            return _within(made, each)
    return None


def _cron_slots(made: Schedule, from_ms: int, *, reverse: bool = False) -> Iterator[int]:
    begin = datetime.fromtimestamp(from_ms / 1000, ZoneInfo(made.tz))
    for moment in CronSim(made.cron or "", begin, reverse=reverse):
        slot_ms = round(moment.timestamp() * 1000)
        if made.until_ms is not None and slot_ms > made.until_ms and not reverse:
            return
        yield slot_ms


def _within(made: Schedule, slot_ms: int) -> int | None:
    last_ms = LATEST_MS if made.until_ms is None else made.until_ms
    return slot_ms if slot_ms <= last_ms else None


def _checked_cron(expression: str) -> str:
    try:
        next(CronSim(expression, datetime.now(UTC)), None)
    except (CronSimError, AttributeError) as error:
        expected = f"a cron expression of five fields, or six with seconds first ({error})"
        raise InvalidOption("cron", expression, expected) from None
    return expression


def _checked_zone(tz: str) -> str:
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidOption("tz", tz, "a time zone of the IANA database, such as 'Europe/Berlin'") from None
    return tz
