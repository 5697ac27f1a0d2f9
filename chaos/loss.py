"""A server that loses its data: flushed in mid-run, or failed over to a replica that lagged behind.

What it has lost is lost; it is counted. What is dispatched after the server is back must be done, nothing may start early,
and the queue must work on by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from chaos.clock import true_us
from chaos.diary import ALL
from chaos.excuses import covered
from chaos.ledger import Ledger
from chaos.plan import Plan
from chaos.probe import Probe
from chaos.proof import Broken, broken_promises, early_starts
from chaos.run import Say, close_down, drain, merge, server_name, worst_day
from chaos.stage import Stage
from tests.kit.servers import ServerProcess

RECOVERY_S = 2.0
"""So long after the server is back, at the latest, something that was dispatched since has ended."""

_LAG_S = 0.5
"""For so long the primary acknowledges what its replica will never see."""

_READONLY_S = 0.3
"""For so long clients reach the replica before it is promoted."""

_LOST_FROM_VIEW = (
    "sent",
    "answer",
    "cancel_asked",
    "cancel_answer",
    "start",
    "finish",
    "settlement",
    "told",
    "history",
)


_STALLS = "SELECT began_us, ended_us FROM stall UNION ALL SELECT began_us, ended_us FROM fault WHERE NOT ordered"


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    scenario: str
    plan: Plan
    before: int
    """Acknowledged before the server lost its data."""
    lost: int
    """Of those, never run to a good end, nor dead: lost with the server's data."""
    run_again: int
    """Of those, run to a good end twice: that they were settled was lost."""
    after: int
    """Acknowledged after it was back."""
    early: int
    recovered_s: float
    """Until something ended that was dispatched after it was back."""
    stood_still_s: float
    """So much of that one of the processes, or the server, waited for a processor."""
    broken: list[Broken]
    took_s: float
    server: str

    @property
    def held(self) -> bool:
        """Whether every promise did, about what was dispatched after."""
        return not self.broken


Lose = Callable[[Stage], Awaitable[None]]


async def flush(stage: Stage) -> None:
    """FLUSHALL."""
    await asyncio.to_thread(stage.redis.flushall)


async def fail_over(stage: Stage) -> None:
    """The primary is killed; its replica, half a second behind, is promoted by hand. Nobody waits for replicas."""
    replica = stage.replica
    if replica is None:
        raise RuntimeError("a failover needs a replica: stage.add_replica() first")
    await asyncio.to_thread(_part, stage, replica)
    await asyncio.sleep(_LAG_S)
    await asyncio.to_thread(stage.server.kill)
    await asyncio.to_thread(stage.move_to, replica)
    for proxy in stage.proxies.values():
        await asyncio.to_thread(proxy.cut)
    await asyncio.sleep(_READONLY_S)
    await asyncio.to_thread(stage.redis.replicaof, "NO", "ONE")


def _part(stage: Stage, replica: ServerProcess) -> None:
    """The replica hears no more of its primary, and has not noticed that it could take its place."""
    with stage.client(replica.url) as redis:
        redis.replicaof("127.0.0.1", "1")


SCENARIOS: dict[str, Lose] = {"flush": flush, "failover": fail_over}


async def lose(scenario: str, plan: Plan, folder: Path, say: Say) -> Loss:
    """Plays a load in whose middle the server loses data."""
    began = time.monotonic()
    stage = Stage(plan, folder)
    back_us = 0

    async def strike(_: object) -> None:
        nonlocal back_us
        await asyncio.sleep(max(0.0, stage.began_s + plan.seconds / 2 - time.time()))
        struck_us = true_us()
        await SCENARIOS[scenario](stage)
        back_us = true_us()
        stage.diary.write(scenario, ALL, struck_us)
        say(f"{scenario}: the server is back")

    say(f"{scenario}, seed {plan.seed}: {plan.tasks:,} tasks in {plan.seconds:g} s")
    try:
        if scenario == "failover":
            await asyncio.to_thread(stage.add_replica)
        server, probe = server_name(stage), Probe(lambda: stage.url, stage.diary)
        await worst_day(stage, strike, say)
        await drain(stage, say)
        probe.close()
        ledger = Ledger(folder / "ledger.sqlite")
        broken = await close_down(stage, ledger, say)
    finally:
        stage.close()
    merge(stage, ledger, say)
    told = _judge(ledger, plan, back_us, broken)
    ledger.close()
    return Loss(scenario=scenario, plan=plan, took_s=round(time.monotonic() - began, 1), server=server, **told)


def _judge(ledger: Ledger, plan: Plan, back_us: int, broken: list[Broken]) -> dict[str, Any]:
    acknowledged = "SELECT DISTINCT id FROM answer WHERE what IN ('yes', 'exists')"
    ledger.db.executescript(
        f"CREATE TEMP TABLE old AS SELECT id FROM sent GROUP BY id HAVING MIN(at_us) <= {back_us}"  # noqa: S608
        f" UNION SELECT id FROM start WHERE task = 'tick' AND at_us <= {back_us};"
        " CREATE INDEX temp.old_id ON old (id);"
    )
    before = ledger.number(f"SELECT COUNT(*) FROM ({acknowledged}) WHERE id IN (SELECT id FROM old)")  # noqa: S608
    good = "SELECT id FROM finish WHERE how = 'good'"
    lost = ledger.number(
        f"SELECT COUNT(*) FROM ({acknowledged}) WHERE id IN (SELECT id FROM old) AND id NOT IN ({good})"  # noqa: S608
        " AND id NOT IN (SELECT id FROM dead) AND id NOT IN (SELECT id FROM cancelled)"
    )
    again = ledger.number(
        f"SELECT COUNT(*) FROM (SELECT id FROM ({good}) WHERE id IN (SELECT id FROM old)"  # noqa: S608
        " GROUP BY id HAVING COUNT(*) > 1)"
    )
    early = early_starts(ledger)
    recovered_us = _first_end(ledger, back_us) - back_us
    stood_still_us = covered(
        ((int(str(a)), int(str(b))) for a, b in ledger.rows(_STALLS)),
        back_us,
        back_us + recovered_us,
    )
    if early:
        broken.append(Broken("early", len(early), early[:5]))
    if recovered_us - stood_still_us > RECOVERY_S * 1e6:
        broken.append(Broken(f"work goes on within {RECOVERY_S:g} s", 1, [f"{recovered_us / 1e6:.3f} s"]))
    for table in (*_LOST_FROM_VIEW, "dead", "cancelled"):
        ledger.db.execute(f"DELETE FROM {table} WHERE id IN (SELECT id FROM old)")  # noqa: S608 - tables named here
    broken += broken_promises(ledger, plan)
    return {
        "before": before,
        "lost": lost,
        "run_again": again,
        "after": ledger.number("SELECT COUNT(*) FROM accepted WHERE NOT maybe"),
        "early": len(early),
        "recovered_s": round(recovered_us / 1e6, 3),
        "stood_still_s": round(stood_still_us / 1e6, 3),
        "broken": broken,
    }


def _first_end(ledger: Ledger, back_us: int) -> int:
    return ledger.number(
        "SELECT MIN(finish.at_us) FROM finish JOIN sent USING (id) WHERE sent.at_us > ?1 AND finish.at_us > ?1", back_us
    )
