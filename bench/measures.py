"""What is measured: each row of the table, its unit, which way is better, and what firetime aims at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a figure of firetime should be, beside the best peer's, the floor's, or by itself."""

    beside: Literal["peer", "floor", "alone"]
    least: float | None = None
    """At least so many times the other, for what is better when it is more."""
    most: float | None = None
    """At most so many times the other (or so much, alone), for what is better when it is less."""

    def __str__(self) -> str:
        bound = self.least if self.least is not None else self.most
        sign = "≥" if self.least is not None else "≤"
        return f"{sign} {bound:g}" if self.beside == "alone" else f"{sign} {bound:g} x {self.beside}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One row."""

    key: str
    title: str
    unit: str
    more_is_better: bool
    aims: tuple[Aim, ...] = ()
    digits: int = 0


def _rate(key: str, title: str, *aims: Aim) -> Measure:
    return Measure(key=key, title=title, unit="/s", more_is_better=True, aims=aims)


def _cost(key: str, title: str, unit: str, *aims: Aim, digits: int = 0) -> Measure:
    return Measure(key=key, title=title, unit=unit, more_is_better=False, aims=aims, digits=digits)


_BEST_PEER = Aim(beside="peer", least=1)

MEASURES = (
    _rate("one", "dispatch, one awaited at a time", _BEST_PEER),
    _rate("one_sync", "dispatch, one at a time, no event loop", _BEST_PEER),
    _rate("fifty", "dispatch, 50 at once", Aim(beside="peer", least=5)),
    _rate("bulk", "dispatch in bulk", Aim(beside="peer", least=3)),
    _rate("drain", "drain no-op tasks, 1 worker", Aim(beside="floor", least=0.7), Aim(beside="peer", least=4)),
    _rate("drain2", "drain no-op tasks, 2 workers"),
    _rate("threads", "drain `def` tasks in threads", Aim(beside="peer", least=3)),
    _rate("sleep", "drain tasks that sleep 10 ms"),
    Measure(key="sleep_ideal", title="the same, of at-once / 10 ms", unit="%", more_is_better=True),
    _cost("latency_p50", "idle: dispatch to start, p50", "ms", digits=2),
    _cost("latency_p99", "idle: dispatch to start, p99", "ms", Aim(beside="peer", most=1), digits=2),
    _rate("retry", "tasks that fail once, then work"),
    _rate("promote", "delayed tasks, all due"),
    _cost("idle_rss", "memory of an idle worker, RSS", "MiB", Aim(beside="alone", most=50)),
    _cost("idle_pss", "the same, PSS", "MiB"),
    _cost("queued_bytes", "server memory for a queued message", "B"),
    _cost("delayed_bytes", "server memory for a delayed message", "B"),
    _cost("import_ms", "import time", "ms", Aim(beside="alone", most=150)),
    _cost("dispatch_cpu", "client CPU for a bulk dispatch", "us", digits=1),
    _cost("dispatch_server", "server CPU for a bulk dispatch", "us", digits=1),
    _cost("drain_cpu", "worker CPU for a no-op task", "us", digits=1),
    _cost("drain_server", "server CPU for a no-op task", "us", digits=1),
)
