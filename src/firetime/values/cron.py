"""A cron expression and a time zone become instants, in order, each once; here stands what a change of the clock does.

The rule, which is that of Debian's cron: a schedule whose minute and hour are both given (``30 2 * * *``) follows the
calendar. What falls into a skipped hour comes when that hour would have begun, and a repeated hour has it once, the
first time. Any other (``*/15 * * * *``, ``0 * * * *``) follows the clock: nothing in a skipped hour, and all of it in a
repeated one. That there is a field of seconds before them changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from firetime.values.errors import InvalidOption

_MINUTE = timedelta(minutes=1)


def cron_slots(expression: str, tz: str, from_ms: int) -> Iterator[int]:
    """The slots at or after an instant, in ms since 1970, ascending; it ends where none follows within 50 years."""
    zone = _zone(tz)
    # CronSim gives what comes after the second in which it begins
    begin = datetime.fromtimestamp((from_ms - 1) // 1000, zone)
    last_ms = from_ms - 1
    for moment in _moments(expression, begin, zone):
        slot_ms = round(moment.timestamp()) * 1000
        # two times of a skipped hour may have become one instant; and in a repeated hour, the first has passed already
        if slot_ms > last_ms:
            last_ms = slot_ms
            yield slot_ms


def check_readable(expression: str, tz: str) -> None:
    """Raises ``ValueError`` kinds for what an earlier check would have refused, or what only a later release knows."""
    checked_zone(tz)
    try:
        CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, AttributeError, TypeError) as error:
        raise ValueError(f"{expression!r}: {error}") from None


def checked_cron(expression: str) -> str:
    """The expression, when it can be meant. Raises ``InvalidOption``."""
    try:
        check_readable(expression, "UTC")
        if next(cron_slots(expression, "UTC", 0), None) is None:
            raise ValueError("no such day")
    except ValueError as error:
        expected = f"a cron expression of five fields, or six with seconds first ({error})"
        raise InvalidOption("cron", expression, expected) from None
    return expression


def checked_zone(tz: str) -> str:
    """The name of the time zone, when there is one. Raises ``InvalidOption``."""
    try:
        _zone(tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidOption("tz", tz, "a time zone of the IANA database, such as 'Europe/Berlin'") from None
    return tz


def _zone(tz: str) -> tzinfo:
    return UTC if tz == "UTC" else ZoneInfo(tz)


def _moments(expression: str, begin: datetime, zone: tzinfo) -> Iterator[datetime]:
    if not _follows_the_calendar(expression):
        return CronSim(expression, begin)
    # without a zone CronSim knows no changes of the clock: the rule for them is ours, with seconds and without
    return (_real(moment, zone) for moment in CronSim(expression, begin.replace(tzinfo=None)))


def _follows_the_calendar(expression: str) -> bool:
    minute, hour = expression.split()[-5:-3]
    return not minute.startswith("*") and not hour.startswith("*")


def _real(local: datetime, zone: tzinfo) -> datetime:
    """The first real instant from a local time on, which a change to summer time may have skipped."""
    while (moment := local.replace(tzinfo=zone)).astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local:
        local += _MINUTE
    return moment
