"""What was dispatched, journalled and counted goes in; what was promised, what was found, and whether they agree come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import msgspec

from firetime.faces.demo.journal import Entry
from firetime.faces.demo.sources import Counts, DirectCount

Kind = Literal["file", "delayed", "fails twice", "fails until mended", "unique"]


class Sent(msgspec.Struct, frozen=True):
    """One dispatch that was accepted."""

    id: str
    kind: Kind
    not_before: float = 0.0
    """Before this it may not start, by the clock of whoever dispatched it: ``time.time()``."""


class Facts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What one play left behind."""

    sent: Sequence[Sent]
    entries: Sequence[Entry]
    """The journals of all workers."""
    told: Counts
    """The sum of the tasks' results."""
    direct: DirectCount
    """The same, counted without a queue."""
    buried: str
    """Why the dead letter was one; empty when there was none."""
    unique_dispatches: int
    worked_s: float
    """From the first dispatch to the end of the last task."""
    log: str = ""
    """The end of what the workers logged."""

    @cached_property
    def endings(self) -> Counter[str]:
        """Task id -> runs that ended well."""
        return Counter(entry.id for entry in self.entries if entry.what == "ended")

    @cached_property
    def failures(self) -> Counter[str]:
        """Task id -> runs that raised."""
        return Counter(entry.id for entry in self.entries if entry.what == "raised")

    @cached_property
    def begun(self) -> list[Entry]:
        """Every run's beginning."""
        return [entry for entry in self.entries if entry.what == "began"]

    @property
    def lost(self) -> list[str]:
        """Accepted, and never run to the end."""
        return [sent.id for sent in self.sent if not self.endings[sent.id]]

    @property
    def early(self) -> list[Entry]:
        """Begun before their fire-time, or before the dispatcher's own clock allowed it."""
        not_before = {sent.id: sent.not_before for sent in self.sent}
        return [
            entry
            for entry in self.begun
            if entry.at < not_before.get(entry.id, 0.0)
            or (entry.fire_ms is not None and entry.at * 1000 < entry.fire_ms)
        ]

    @property
    def late_ms(self) -> list[float]:
        """By how much each delayed task began late, from the least to the most; its first run counts."""
        delayed = set(self.of("delayed"))
        first: dict[str, float] = {}
        for entry in self.begun:
            if entry.id in delayed and entry.fire_ms is not None:
                first.setdefault(entry.id, entry.at * 1000 - entry.fire_ms)
        return sorted(first.values())

    @property
    def rescued(self) -> list[str]:
        """Tasks of a worker that vanished, which another has run to the end."""
        return [sent.id for sent in self.sent if self.crashes(sent.id) and self.endings[sent.id]]

    @property
    def run_again(self) -> int:
        """Ends beyond the first of each task: its worker was killed after the end and before the server knew."""
        return sum(self.endings.values()) - len(self.endings)

    def of(self, kind: Kind) -> list[str]:
        """The ids of a kind."""
        return [sent.id for sent in self.sent if sent.kind == kind]

    def runs(self, kind: Kind) -> int:
        """How often the tasks of a kind began."""
        ids = self.of(kind)
        return sum(entry.id in ids for entry in self.begun)

    def crashes(self, task_id: str) -> int:
        """How many workers vanished with it."""
        return max((entry.crashes for entry in self.begun if entry.id == task_id), default=0)


class Line(msgspec.Struct, frozen=True):
    """One line of the table."""

    what: str
    expected: str
    found: str
    good: bool


def lines(facts: Facts) -> list[Line]:
    """What was promised, one line each. A run that a killed worker took with it is no failure and no run too many."""
    return [
        *_counted(facts),
        _same("tasks run to their end", len(facts.sent), len(facts.sent) - len(facts.lost)),
        _same("lost", 0, len(facts.lost)),
        _same("delayed tasks run", len(facts.of("delayed")), len(facts.late_ms)),
        _same("started before their time", 0, len(facts.early)),
        _failing_twice(facts),
        _coming_back(facts),
        _unique(facts),
        _rescue(facts),
    ]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the ordered numbers that is not less than ``share`` of them."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _counted(facts: Facts) -> list[Line]:
    names = {
        "files": "source files counted",
        "functions": "functions",
        "classes": "classes",
        "lines": "lines",
        "unparsable": "files that do not parse",
    }
    return [_same(what, getattr(facts.direct.counts, name), getattr(facts.told, name)) for name, what in names.items()]


def _same(what: str, expected: int, found: int) -> Line:
    return Line(what, f"{expected:,}", f"{found:,}", expected == found)


def _failing_twice(facts: Facts) -> Line:
    (task_id,) = facts.of("fails twice")
    failed, ended = facts.failures[task_id], facts.endings[task_id]
    good = 2 <= failed <= 2 + facts.crashes(task_id) and ended > 0
    return Line("fails twice, then works", "2 failures, 1 end", f"{failed} failures, {ended} end", good)


def _coming_back(facts: Facts) -> Line:
    (task_id,) = facts.of("fails until mended")
    ended = facts.endings[task_id]
    good = facts.buried == "exhausted" and ended > 0
    return Line("dead, then replayed", "exhausted, 1 end", f"{facts.buried}, {ended} end", good)


def _unique(facts: Facts) -> Line:
    ids, runs = facts.of("unique"), facts.runs("unique")
    good = len(ids) == 1 and 1 <= runs <= 1 + facts.crashes(ids[0])
    return Line(f"unique, dispatched {facts.unique_dispatches} times", "1 run", f"{runs} run", good)


def _rescue(facts: Facts) -> Line:
    return Line("rescued after the kill", "1 or more", f"{len(facts.rescued)}", bool(facts.rescued))
