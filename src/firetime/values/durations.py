"""Spans and instants come in as users write them and leave as plain numbers; what cannot be meant is refused here."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from firetime.values.errors import InvalidOption

Duration = float | int | timedelta
"""Seconds, or a ``timedelta``."""

LATEST = datetime(2200, 1, 1, tzinfo=UTC)
"""The far end of time here: scores keep their millisecond exactly far beyond it, people's intentions do not."""

LATEST_MS = int(LATEST.timestamp() * 1000)


LONGEST_S = 200 * 366 * 86400.0
"""No span is longer than this: Redis and timers take numbers that are not much larger, and nobody means one."""


def seconds(name: str, value: Duration, *, least: float = 0.0) -> float:
    """``value`` as seconds; ``name`` is the argument to blame.

    Raises ``InvalidOption`` for what is no number or timedelta, NaN, infinite, under ``least``, or over 200 years.
    """
    expected = f"seconds (or a timedelta) of at least {least:g} and at most 200 years"
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        # an int may be too large for a float
        number = float(value) if -LONGEST_S <= value <= LONGEST_S else math.inf
    else:
        raise InvalidOption(name, value, expected)
    if not least <= number <= LONGEST_S:
        raise InvalidOption(name, value, expected)
    return number


def delay_s(name: str, value: Duration) -> float:
    """A delay in seconds; besides what ``seconds`` refuses, nothing may lie beyond the year 2200."""
    number = seconds(name, value)
    if number * 1000 > LATEST_MS - datetime.now(UTC).timestamp() * 1000:
        raise InvalidOption(name, value, f"a delay that ends before {LATEST:%Y}")
    return number


def epoch_ms(name: str, value: datetime) -> int:
    """An aware datetime as milliseconds since 1970, rounded up, so that nothing fires before the instant named."""
    if not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(name, value, "an aware datetime")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidOption(name, value, "an aware datetime, such as datetime(2027, 1, 1, 9, tzinfo=UTC)")
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    number = -(-(since // timedelta(microseconds=1)) // 1000)
    if number > LATEST_MS:
        raise InvalidOption(name, value, f"an instant before {LATEST:%Y}")
    return max(number, 0)
