"""A task that ran again without having failed needs an excuse: a fault that struck who ran it before, and long enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import cast

import msgspec

from chaos.diary import ALL
from chaos.faults import KINDS
from chaos.ledger import Ledger
from chaos.plan import CONDUCTOR, Plan

_SETTLES_S = 2.0
"""So long after its end a run may still be unknown to the server; whoever is killed later than that is no excuse."""


class Run(msgspec.Struct, frozen=True):
    """One run of a task, as the journal of its process tells."""

    id: str
    fence: int
    failures: int
    began_us: int
    slot: str
    how: str | None
    """None: it never ended."""
    ended_us: int | None


class Struck(msgspec.Struct, frozen=True):
    """Something that kept a process from the server, or ended it."""

    began_us: int
    ended_us: int
    kills: bool = False
    stops: bool = False
    silences: bool = False


_RUNS = """
SELECT start.id, start.fence, start.failures, start.at_us, process.slot, finish.how, finish.at_us
FROM start JOIN process ON process.name = start.process
LEFT JOIN finish ON finish.id = start.id AND finish.fence = start.fence AND finish.process = start.process
WHERE start.id IN (SELECT id FROM start GROUP BY id HAVING COUNT(*) > 1)
ORDER BY start.id, start.fence, start.at_us"""

_SETTLED_TWICE = """
SELECT settlement.id, process.slot, MAX(finish.at_us), settlement.at_us
FROM settlement JOIN process ON process.name = settlement.process
LEFT JOIN finish ON finish.id = settlement.id AND finish.process = settlement.process
WHERE what IN ('Complete', 'Bury', 'Cancel') AND settlement.id IN (
  SELECT id FROM settlement WHERE what IN ('Complete', 'Bury', 'Cancel') GROUP BY id HAVING COUNT(*) > 1)
GROUP BY settlement.rowid ORDER BY settlement.id"""


class Excuses:
    """What struck whom, to be asked about a time and a place."""

    def __init__(self, ledger: Ledger, plan: Plan) -> None:
        self._lease_us = round(plan.lease_s * 1e6)
        self._of: defaultdict[str, list[Struck]] = defaultdict(list)
        for kind, struck, began_us, ended_us in ledger.rows("SELECT kind, struck, began_us, ended_us FROM fault"):
            known = KINDS.get(str(kind))
            times = cast(int, began_us), cast(int, ended_us)
            what = (known.kills, known.stops, known.silences) if known else (False, False, True)
            self._of[str(struck)].append(Struck(*times, *what))
        for slot, began_us, ended_us in ledger.rows("SELECT slot, began_us, ended_us FROM stall"):
            # where the conductor stands still, so do the proxies, which live in its process
            whom = ALL if slot == CONDUCTOR else str(slot)
            self._of[whom].append(Struck(cast(int, began_us), cast(int, ended_us), silences=True))

    def for_repeat(self, before: Run, again_us: int) -> str | None:
        """Why it was run again: ``killed``, ``stopped``, ``silent``, or None: there is no excuse."""
        # frozen between the claim and the start, a worker begins when another has begun already: it was given the task a
        # lease before that other at the latest
        given_us = min(before.began_us, again_us) - self._lease_us
        silent_us = covered(self._silences(before.slot), given_us, max(before.began_us, again_us))
        last_us = again_us if before.ended_us is None else before.ended_us
        known_us = last_us + silent_us + round(_SETTLES_S * 1e6)
        for each in self._of[before.slot]:
            if each.ended_us >= before.began_us and each.began_us <= again_us:
                if each.kills and each.began_us <= known_us:
                    return "killed"
                if each.stops and each.began_us <= last_us:
                    return "stopped"
        return "silent" if silent_us >= self._lease_us / 3 else None

    def anything(self, slot: str, from_us: int, to_us: int) -> bool:
        """Whether anything at all happened on the way between a process and the server."""
        return any(
            each.began_us <= to_us and each.ended_us >= from_us - self._lease_us
            for each in (*self._of[slot], *self._of[ALL])
        )

    def _silences(self, slot: str) -> Iterator[tuple[int, int]]:
        for each in (*self._of[slot], *self._of[ALL]):
            if each.silences:
                yield each.began_us, each.ended_us


def covered(intervals: Iterable[tuple[int, int]], from_us: int, to_us: int) -> int:
    """How much of a time the intervals cover together."""
    total, reached = 0, from_us
    for began_us, ended_us in sorted(intervals):
        begin, end = max(began_us, reached), min(ended_us, to_us)
        if end > begin:
            total += end - begin
            reached = end
    return total


def repeats(ledger: Ledger) -> Iterator[tuple[Run, Run]]:
    """Every two runs of a task that followed each other, although the first had not failed."""
    runs = (Run(*row) for row in ledger.rows(_RUNS))  # type: ignore[arg-type]
    for _, of_one in groupby(runs, key=lambda run: run.id):
        for before, again in pairwise(of_one):
            if again.failures == before.failures:
                yield before, again


def unexplained_repeats(ledger: Ledger, plan: Plan) -> dict[str, list[str]]:
    """What ran again, or was settled again, without an excuse."""
    excuses = Excuses(ledger, plan)
    again = [
        f"{before.id} by {before.slot} ({before.how}), again {(after.began_us - before.began_us) / 1e6:.3f} s later"
        for before, after in repeats(ledger)
        if excuses.for_repeat(before, after.began_us) is None
    ]
    twice = []
    for task_id, group in groupby(ledger.rows(_SETTLED_TWICE), key=lambda row: row[0]):
        settled = [(str(slot), cast(int, ended or at), cast(int, at)) for _, slot, ended, at in group]
        if not any(excuses.anything(slot, ended_us, at_us) for slot, ended_us, at_us in settled):
            twice.append(str(task_id))
    return {"run again, and no fault explains it": again, "settled twice, and no fault explains it": twice}
