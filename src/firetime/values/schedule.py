"""Recurring schedules: when the next slot is, and which slots of the past still want a run. Pure; the clock comes in."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from datetime import datetime
from itertools import count, islice, takewhile
from typing import Annotated, Literal, get_args

import msgspec

from firetime.values.cron import check_readable, checked_cron, checked_zone, cron_slots
from firetime.values.durations import LATEST_MS, Duration, epoch_ms, seconds
from firetime.values.errors import InvalidOption
from firetime.values.ids import as_text, checked_name
from firetime.values.message import UNREADABLE

Misfire = Literal["skip", "once", "all"]
"""What happens to slots that nobody was there to tick: none is run, only the latest is, or each of them."""

Overlap = Literal["run", "skip"]
"""Whether a slot is run while the run of the last one still lives."""

NOMINAL = "firetime-nominal"
"""The header that carries a run's slot, in ms since 1970."""

MOST_RUNS = 500
MOST_BYTES = 1024 * 1024
"""One tick sends at most so many runs, and about so many bytes of them; the next one goes on from there."""

_MOST_MISSED = 1000
_STORED = re.compile(rb"(\S+) \d ")
_FIRST_LOOK_BACK_MS = 60_000


_Count = Annotated[int, msgspec.Meta(ge=1)]
_Span = Annotated[int, msgspec.Meta(ge=0)]
_Instant = Annotated[int, msgspec.Meta(ge=0, le=LATEST_MS)]


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The definition of a recurring task, as Redis keeps it: everything that a tick needs, whoever ticks."""

    name: str
    record: bytes
    """The message of a run, as the codec wrote it."""
    cron: str | None = None
    every_ms: _Count | None = None
    tz: str = "UTC"
    start_ms: _Instant | None = None
    until_ms: _Instant | None = None
    misfire: Misfire = "once"
    misfire_limit: _Count = 100
    grace_ms: _Span = 1000
    """How late a slot may be without being missed, even where nobody was there at its time."""
    jitter_ms: _Span = 0
    overlap: Overlap = "run"


class Kept(msgspec.Struct, frozen=True):
    """A schedule as Redis keeps it."""

    fingerprint: str
    paused: bool
    schedule: Schedule


class Plan(msgspec.Struct, frozen=True):
    """What one tick does."""

    slots_ms: list[int]
    """The slots that get a run, oldest first."""
    next_ms: int | None
    """The next slot, which may be due as well; None when the schedule is over."""


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
    if not isinstance(misfire_limit, int) or not 1 <= misfire_limit <= _MOST_MISSED:
        raise InvalidOption("misfire_limit", misfire_limit, f"a whole number from 1 to {_MOST_MISSED}")
    start_ms = None if start is None else epoch_ms("start", start)
    until_ms = None if until is None else epoch_ms("until", until)
    if start_ms is not None and until_ms is not None and until_ms < start_ms:
        raise InvalidOption("until", until, f"an instant that is not before start={start}")
    return Schedule(
        name=checked_name("schedule", name),
        record=record,
        cron=None if cron is None else checked_cron(cron),
        every_ms=None if every is None else round(seconds("every", every, least=0.001) * 1000),
        tz=checked_zone(tz),
        start_ms=start_ms,
        until_ms=until_ms,
        misfire=misfire,
        misfire_limit=misfire_limit,
        grace_ms=round(seconds("grace", grace) * 1000),
        jitter_ms=round(seconds("jitter", jitter) * 1000),
        overlap=overlap,
    )


def fingerprint(made: Schedule) -> str:
    """Tells one definition from another: a tick that carries another's is refused."""
    return hashlib.sha256(msgspec.json.encode(made)).hexdigest()[:16]


def same_slots(one: Schedule, other: Schedule) -> bool:
    """Whether both name the same times, whatever else tells them apart."""
    return _timing(one) == _timing(other)


def kept_fingerprint(stored: bytes | None) -> str:
    """The fingerprint of a stored definition, also of one that this release cannot read; empty for none."""
    found = _STORED.match(stored or b"")
    return as_text(found[1]) if found else ""


def read_kept(name: str, stored: bytes) -> Kept:
    """A schedule out of its stored form. Raises ``InvalidOption`` for one that this release cannot read."""
    try:
        print_, paused, definition = stored.split(b" ", 2)
        made = _decoder.decode(definition)
        if (made.cron is None) == (made.every_ms is None):
            raise ValueError("it has no times")
        check_readable(made.cron or "* * * * *", made.tz)
        return Kept(print_.decode(), paused == b"1", made)
    except (ValueError, *UNREADABLE) as error:
        raise InvalidOption("schedule", name, f"a definition that this release can read ({error})") from None


def first_slot(made: Schedule, now_ms: int) -> int | None:
    """The first slot of a schedule that begins now; an interval without a start has its first when it is over once."""
    if made.every_ms is not None and made.start_ms is None:
        return _within(made, now_ms + made.every_ms)
    from_ms = now_ms + 1 if made.start_ms is None else max(now_ms + 1, made.start_ms)
    return next(_slots(made, made.start_ms or 0, from_ms), None)


def plan(made: Schedule, slot_ms: int, now_ms: int, *, attended_ms: int) -> Plan:
    """What to do about the slot that is due, and those after it that are due as well.

    ``attended_ms``: since when whoever ticks has been there without a break. A slot from then on is not missed however
    late it is ticked: the misfire policy is for what fell into a time when nobody was there.
    """
    in_time_from = max(slot_ms, min(now_ms - made.grace_ms, attended_ms))
    due = takewhile(lambda each: each <= now_ms, _slots(made, slot_ms, in_time_from))
    most = max(1, min(MOST_RUNS, MOST_BYTES // max(1, len(made.record))))
    in_time = list(islice(due, most + 1))
    runs = [*_missed(made, slot_ms, in_time_from, superseded=bool(in_time)), *in_time]
    if len(runs) > most:
        return Plan(runs[:most], runs[most])
    return Plan(runs, next(_slots(made, slot_ms, max(slot_ms, now_ms) + 1), None))


def jittered(made: Schedule, slot_ms: int) -> int:
    """When a slot's run is due: the slot, and up to the jitter later."""
    return slot_ms + (random.randint(0, made.jitter_ms) if made.jitter_ms else 0)


_decoder = msgspec.json.Decoder(Schedule)


def _timing(made: Schedule) -> tuple[object, ...]:
    return made.cron, made.every_ms, made.tz, made.start_ms, made.until_ms


def _missed(made: Schedule, slot_ms: int, before_ms: int, *, superseded: bool) -> list[int]:
    """Those of the slots that nobody was there to tick which get a run all the same, oldest first."""
    if made.misfire == "skip" or (made.misfire == "once" and superseded):
        return []
    wanted = made.misfire_limit if made.misfire == "all" else 1
    look_back_ms = made.every_ms * wanted if made.every_ms is not None else _FIRST_LOOK_BACK_MS
    while True:
        begin_ms = max(slot_ms, before_ms - look_back_ms)
        found = list(takewhile(lambda each: each < before_ms, _slots(made, slot_ms, begin_ms)))
        if len(found) >= wanted or begin_ms == slot_ms:
            return found[-wanted:]
        look_back_ms *= 8


def _slots(made: Schedule, anchor_ms: int, from_ms: int) -> Iterator[int]:
    """The slots from an instant on, ascending; those of an interval lie whole intervals from the anchor."""
    if made.every_ms is not None:
        steps = max(0, -((anchor_ms - from_ms) // made.every_ms))
        endless: Iterator[int] = count(anchor_ms + steps * made.every_ms, made.every_ms)
    else:
        endless = cron_slots(made.cron or "", made.tz, from_ms)
    return takewhile(lambda each: _within(made, each) is not None, endless)


def _within(made: Schedule, slot_ms: int) -> int | None:
    last_ms = LATEST_MS if made.until_ms is None else made.until_ms
    return slot_ms if slot_ms <= last_ms else None
