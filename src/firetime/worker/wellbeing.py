"""Facts about the parts of a worker become an answer: is it well, and what ails it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Wellbeing(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is."""

    worker: str
    alive: bool
    """Nothing ails it that only a new process would mend."""
    ready: bool
    """It does its work."""
    stopping: bool
    ailing: Mapping[str, str]
    """What does not do its work -> why."""
    queues: list[str]
    running: int
    leaked_threads: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen of a worker at one moment."""

    troubled: Mapping[str, str] = {}
    """Loops whose calls have failed for a while."""
    stuck: Mapping[str, str] = {}
    """Loops that should have turned long ago, and have not, though the event loop does."""
    blocked_s: float = 0.0
    """For how long the event loop has not turned."""
    blocked_by: str = ""
    stall_limit_s: float
    broken: str = ""
    """What ended one of its parts."""
    spent: str = ""
    """Why it should make room for a new process."""
    stopping: bool = False


BLOCKED_S = 3.0
"""An event loop that has not turned for so long is not ready for work; a loop in trouble for so long is told of."""


def examine(facts: Facts, *, worker: str, queues: list[str], running: int, leaked_threads: int) -> Wellbeing:
    """What ails it, and whether a new process would mend that: of a server that is away, none would."""
    fatal = dict(facts.stuck)
    if facts.broken:
        fatal["worker"] = facts.broken
    if facts.spent:
        fatal["process"] = facts.spent
    passing = dict(facts.troubled)
    if facts.blocked_s >= BLOCKED_S:
        what = f"{facts.blocked_by or 'something'} has blocked it for {facts.blocked_s:.1f} s"
        (fatal if facts.blocked_s > facts.stall_limit_s else passing)["event loop"] = what
    ailing = passing | fatal
    return Wellbeing(
        worker=worker,
        alive=not fatal,
        ready=not ailing and not facts.stopping,
        stopping=facts.stopping,
        ailing=ailing,
        queues=queues,
        running=running,
        leaked_threads=leaked_threads,
    )
