"""The ledger is counted: what the run did and bore."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any, cast

import msgspec

from chaos.excuses import Excuses, repeats
from chaos.ledger import Ledger
from chaos.plan import Plan

SERVER_AWAY = ("server restarted", "server killed", "server frozen")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the report prints."""

    dispatched: int
    """Answered as accepted."""
    maybe: int
    """No answer came, or the producer was killed before it: they may have been accepted or not."""
    maybe_run: int
    """So many of those ran."""
    refused: int
    """Refused by a unique key, by full memory, by an outage."""
    done: int
    dead: int
    cancelled: int
    runs: int
    retries: int
    """Runs after a failure, as they should be."""
    delayed: int
    slots_of_schedule: int
    rescued: int
    """Runs cut short by a fault, and run again."""
    duplicates: int
    """Tasks that ran to a good end more than once."""
    repeats: dict[str, int]
    """Runs that came again without a failure, by their excuse."""
    refused_settlements: int
    lost: int
    early: int
    faults: dict[str, int]
    stalls_of_machine: int
    """Times that the server or a process stood still though nobody had ordered it."""
    longest_stall_s: float
    """While the load lasted, from the first end on: the longest time in which no task ended anywhere."""
    stalled_by: list[str]
    recovered_s: dict[str, float]
    """After the server was back: until a task ended."""
    late_ms: dict[str, float]
    """By how much delayed tasks and retries started late: median, 99 of 100, worst."""


def count(ledger: Ledger, plan: Plan, began_us: int) -> Figures:
    """All of them; after ``proof.broken_promises``, whose tables it uses."""
    number = ledger.number
    excuses = Excuses(ledger, plan)
    why = Counter(excuses.for_repeat(before, again.began_us) or "none" for before, again in repeats(ledger))
    cut_short = sum(before.how is None for before, _ in repeats(ledger))
    stall_us, stall_from_us = _longest_stall(ledger, began_us, began_us + round(plan.seconds * 1e6))
    return Figures(
        dispatched=number("SELECT COUNT(*) FROM accepted WHERE NOT maybe"),
        maybe=number("SELECT COUNT(*) FROM accepted WHERE maybe"),
        maybe_run=number("SELECT COUNT(*) FROM accepted WHERE maybe AND id IN (SELECT id FROM start)"),
        refused=number("SELECT COUNT(*) FROM answer WHERE what IN ('no', 'held', 'moved')"),
        done=number("SELECT COUNT(*) FROM good JOIN accepted USING (id)"),
        dead=number("SELECT COUNT(*) FROM dead"),
        cancelled=number("SELECT COUNT(*) FROM cancelled"),
        runs=number("SELECT COUNT(*) FROM start"),
        retries=number("SELECT COUNT(*) FROM start WHERE failures > 0 AND crashes = 0"),
        delayed=number("SELECT COUNT(*) FROM accepted JOIN sent USING (id) WHERE delay_us > 0 AND NOT maybe"),
        slots_of_schedule=number("SELECT COUNT(DISTINCT nominal_ms) FROM start WHERE nominal_ms > 0"),
        rescued=cut_short,
        duplicates=number("SELECT COUNT(*) FROM good WHERE times > 1"),
        repeats=dict(sorted(why.items())),
        refused_settlements=number("SELECT COUNT(*) FROM settlement WHERE what = 'refused'"),
        lost=number(
            "SELECT COUNT(*) FROM accepted WHERE NOT maybe AND id NOT IN (SELECT id FROM good)"
            " AND id NOT IN (SELECT id FROM dead) AND id NOT IN (SELECT id FROM cancelled)"
        ),
        early=number("SELECT COUNT(*) FROM start WHERE fire_ms > 0 AND at_us < fire_ms * 1000"),
        faults={
            str(kind): cast(int, times)
            for kind, times in ledger.rows(
                "SELECT kind, COUNT(*) FROM fault WHERE ordered GROUP BY kind ORDER BY COUNT(*) DESC, kind"
            )
        },
        stalls_of_machine=number("SELECT COUNT(*) FROM fault WHERE NOT ordered"),
        longest_stall_s=round(stall_us / 1e6, 3),
        stalled_by=_going_on(ledger, stall_from_us, stall_from_us + stall_us),
        recovered_s=_recoveries(ledger, began_us + round(plan.seconds * 1e6)),
        late_ms=_lateness(ledger),
    )


def _longest_stall(ledger: Ledger, from_us: int, to_us: int) -> tuple[int, int]:
    rows = list(
        ledger.rows(
            "SELECT at_us - LAG(at_us, 1, at_us) OVER (ORDER BY at_us) AS gap, at_us FROM finish"
            " WHERE at_us BETWEEN ?1 AND ?2 ORDER BY gap DESC LIMIT 1",
            from_us,
            to_us,
        )
    )
    if not rows:
        return to_us - from_us, from_us
    gap_us, at_us = cast(tuple[int, int], rows[0])
    return gap_us, at_us - gap_us


def _going_on(ledger: Ledger, from_us: int, to_us: int) -> list[str]:
    question = (
        "SELECT DISTINCT kind || CASE struck WHEN 'all' THEN '' ELSE ' (' || struck || ')' END FROM fault"
        " WHERE began_us <= ? AND ended_us >= ? AND ordered"
    )
    return [str(kind) for (kind,) in ledger.rows(question, to_us, from_us)]


def _recoveries(ledger: Ledger, until_us: int) -> dict[str, float]:
    kinds = ", ".join(f"'{kind}'" for kind in SERVER_AWAY)
    waits = [
        (cast(int, first) - cast(int, ended)) / 1e6
        for ended, first in ledger.rows(
            f"SELECT ended_us, (SELECT MIN(at_us) FROM finish WHERE at_us > ended_us) FROM fault"  # noqa: S608
            f" WHERE kind IN ({kinds}) AND ended_us < ?",
            until_us,
        )
        if first is not None
    ]
    return {"median": round(median(waits), 3), "worst": round(max(waits), 3)} if waits else {}


def _lateness(ledger: Ledger) -> dict[str, float]:
    question = "SELECT MIN(at_us) / 1000.0 - fire_ms AS late FROM start WHERE fire_ms > 0 GROUP BY id, fire_ms"
    late = [cast(float, row[0]) for row in ledger.rows(f"{question} ORDER BY late")]
    if not late:
        return {}
    shares: Any = {"median": 0.5, "99 of 100": 0.99, "worst": 1.0}
    return {name: round(late[min(len(late) - 1, int(len(late) * share))], 1) for name, share in shares.items()}
