"""How long to wait before a failed task is tried again: a policy takes the number of failures and gives seconds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from firetime.values.durations import Duration, seconds
from firetime.values.errors import InvalidOption

# 2 to the power of this many doublings is 34 years of a one-second base: past any cap, and far from float overflow
_MOST_DOUBLINGS = 30


class Backoff(Protocol):
    """A policy; ``failures`` is 1 after the first failed run, ``lease_s`` the runner's lease in seconds."""

    def delay_s(self, *, failures: int, error: BaseException, lease_s: float) -> float:
        """Seconds until the next run."""
        ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """``base`` x 2^(n-1) seconds, at most ``cap``.

    With ``jitter`` (the default) the delay is drawn evenly between 0 and that: "full jitter", which spreads
    a crowd of failures best (Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """

    base: Duration = 1.0
    cap: Duration = field(default=3600.0, kw_only=True)
    jitter: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        seconds("base", self.base)
        seconds("cap", self.cap)

    def delay_s(self, *, failures: int, error: BaseException, lease_s: float) -> float:
        """Seconds until the next run."""
        doublings = min(max(failures, 1) - 1, _MOST_DOUBLINGS)
        ceiling = min(seconds("cap", self.cap), seconds("base", self.base) * 2.0**doublings)
        return random.uniform(0, ceiling) if self.jitter else ceiling


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same number of seconds each time."""

    delay: Duration

    def __post_init__(self) -> None:
        seconds("delay", self.delay)

    def delay_s(self, *, failures: int, error: BaseException, lease_s: float) -> float:
        """Seconds until the next run."""
        return seconds("delay", self.delay)


@dataclass(frozen=True, slots=True)
class Linear:
    """``step`` x n seconds, at most ``cap``."""

    step: Duration = 1.0
    cap: Duration = field(default=3600.0, kw_only=True)

    def __post_init__(self) -> None:
        seconds("step", self.step)
        seconds("cap", self.cap)

    def delay_s(self, *, failures: int, error: BaseException, lease_s: float) -> float:
        """Seconds until the next run."""
        return min(seconds("cap", self.cap), seconds("step", self.step) * failures)


@dataclass(frozen=True, slots=True)
class Reclaim:
    """TaskRunner's way: again when one lease has passed."""

    def delay_s(self, *, failures: int, error: BaseException, lease_s: float) -> float:
        """Seconds until the next run."""
        return lease_s


@dataclass(frozen=True, slots=True)
class Computed:
    """A function of (failures, error) that gives seconds or a timedelta."""

    function: Callable[[int, BaseException], Duration]

    def delay_s(self, *, failures: int, error: BaseException, lease_s: float) -> float:
        """Seconds until the next run; what the function gives is checked like any other delay."""
        return seconds("backoff", self.function(failures, error))


def as_backoff(value: object) -> Backoff:
    """A policy from what users may write: a policy, a callable, or plain seconds (which is ``Fixed``)."""
    if hasattr(value, "delay_s"):
        return cast(Backoff, value)
    if callable(value):
        return Computed(cast("Callable[[int, BaseException], Duration]", value))
    try:
        return Fixed(seconds("backoff", cast(Duration, value)))
    except InvalidOption:
        expected = "a policy such as Exponential(1), seconds, or a function of (failures, error)"
        raise InvalidOption("backoff", value, expected) from None
