"""One run from its first process to its proof."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from redis.exceptions import RedisError

from chaos.faults import schedule
from chaos.figures import Figures, count
from chaos.journal import Journal, told
from chaos.ledger import Ledger
from chaos.plan import CONDUCTOR, QUEUES, Plan
from chaos.probe import Probe
from chaos.proof import Broken, broken_promises
from chaos.pulse import tell_of_stalls
from chaos.remains import Remains
from chaos.sender import Sender
from chaos.stage import Stage
from chaos.strike import Striker
from chaos.tasks import make_runner, register

Say = Callable[[str], None]

_SILENCE_S = 45.0
"""When nothing has changed for so long, nobody waits for the rest: it is lost, and the proof will say so."""

_LOOK_S = 0.25
_PRUNED_AFTER_LEASES = 8
"""A worker is forgotten three leases after it was heard last, by somebody who looks every three leases."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run."""

    plan: Plan
    figures: Figures
    broken: list[Broken]
    took_s: float
    server: str
    not_possible: list[str]

    @property
    def held(self) -> bool:
        """Whether every promise did."""
        return not self.broken


async def play(
    plan: Plan, folder: Path, say: Say, *, beside: Sequence[Callable[[Stage], Awaitable[None]]] = ()
) -> Outcome:
    """Plays a plan; the journals, logs and the ledger are left in the folder. ``beside`` goes on while the load does."""
    began = time.monotonic()
    stage, faults = Stage(plan, folder), schedule(plan)
    say(f"seed {plan.seed}: {plan.tasks:,} tasks and {len(faults)} faults in {plan.seconds:g} s")
    try:
        probe, server = Probe(lambda: stage.url, stage.diary), server_name(stage)
        await worst_day(stage, lambda sender: Striker(stage, sender).strike(faults), say, beside=beside)
        await drain(stage, say)
        probe.close()
        ledger = Ledger(folder / "ledger.sqlite")
        broken = await close_down(stage, ledger, say)
    finally:
        stage.close()
    merge(stage, ledger, say)
    broken += broken_promises(ledger, plan)
    figures = count(ledger, plan, round(stage.began_s * 1e6))
    ledger.close()
    return Outcome(
        plan=plan,
        figures=figures,
        broken=broken,
        took_s=round(time.monotonic() - began, 1),
        server=server,
        not_possible=stage.diary.not_possible,
    )


async def worst_day(
    stage: Stage,
    strike: Callable[[Sender], Awaitable[None]],
    say: Say,
    *,
    beside: Sequence[Callable[[Stage], Awaitable[None]]] = (),
) -> None:
    """The load, and what strikes it, until both are over; who ends is followed by another all the while."""
    runner = make_runner(stage.url, stage.plan)
    register(runner)
    journal = Journal(stage.folder, CONDUCTOR)
    sender, pulse = Sender(runner, journal, stage.plan), tell_of_stalls(journal)
    stage.crew.hire()
    watch = asyncio.ensure_future(stage.crew.watch())
    others = [asyncio.ensure_future(_tell(stage, say)), *(asyncio.ensure_future(other(stage)) for other in beside)]
    try:
        await strike(sender)
        await asyncio.to_thread(stage.heal)
        while not all(place.over for place in stage.producers):
            await asyncio.sleep(_LOOK_S)
            for ended in (task for task in (watch, *others) if task.done()):
                ended.result()
    finally:
        pulse.set()
        for task in (watch, *others):
            task.cancel()
        await asyncio.gather(watch, *others, return_exceptions=True)
        await runner.aclose()


def merge(stage: Stage, ledger: Ledger, say: Say) -> None:
    """All that was written becomes one ledger."""
    say("the journals are merged and asked")
    ledger.read(stage.folder)
    ledger.take_happened(stage.diary.happened)
    ledger.close_the_books()


async def _tell(stage: Stage, say: Say) -> None:
    every_s = max(10.0, stage.plan.seconds / 20)
    while True:
        await asyncio.sleep(every_s)
        passed_s = time.time() - stage.began_s
        say(f"{passed_s:6.0f} s: {len(stage.diary.happened)} faults")


async def drain(stage: Stage, say: Say) -> None:
    """Waits for the rest of the work, while workers work in peace."""
    say("all is sent and healed; what is left is waited for")
    runner = make_runner(stage.url, stage.plan)
    await runner.schedules.pause("tick", queue=QUEUES[0])
    await runner.aclose()
    watch = asyncio.create_task(stage.crew.watch())
    remains = Remains(stage.redis, stage.keys.values())
    heard, changed = (-1, -1), time.monotonic()
    try:
        while time.monotonic() - changed < _SILENCE_S:
            left = sum((await asyncio.to_thread(remains.at_work)).values())
            written = sum(path.stat().st_size for path in stage.folder.glob("worker-*.tsv"))
            if left == 0:
                break
            if (left, written) != heard:
                heard, changed = (left, written), time.monotonic()
            await asyncio.sleep(_LOOK_S)
        await _until_pruned(stage, remains)
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def _until_pruned(stage: Stage, remains: Remains) -> None:
    """The consumers of the killed are forgotten after a while; the living have one in each lane."""
    most = len(stage.workers) * len(QUEUES) * 3
    give_up = time.monotonic() + _PRUNED_AFTER_LEASES * stage.plan.lease_s + _SILENCE_S
    while await asyncio.to_thread(remains.consumers) > most and time.monotonic() < give_up:
        await asyncio.sleep(_LOOK_S)


async def close_down(stage: Stage, ledger: Ledger, say: Say) -> list[Broken]:
    """Workers leave; dead letters and history go into the ledger; what else is left is counted as left behind."""
    say("workers are asked to leave")
    codes = await asyncio.gather(*(place.dismiss() for place in stage.workers), return_exceptions=True)
    broken = [f"{place.slot} ended with {code!r}" for place, code in zip(stage.workers, codes, strict=True) if code]
    broken += stage.diary.broken
    remains = Remains(stage.redis, stage.keys.values())
    at_work = sum(remains.at_work().values())
    ledger.put("dead", remains.dead())
    ledger.put("history", ((task_id,) for task_id in remains.history()))
    ledger.put("cancelled", ((task_id,) for task_id in remains.cancelled(_asked_to_cancel(stage.folder))))
    await _clear(stage)
    found = [Broken("processes that ended by themselves", len(broken), broken)] if broken else []
    if at_work:
        found.append(Broken("messages still waiting or running at the end", at_work, []))
    if left := remains.left_behind():
        found.append(Broken("left behind in the server", len(left), left[:10]))
    return found


def _asked_to_cancel(folder: Path) -> list[tuple[str, str]]:
    """Id and queue of every message somebody asked to cancel."""
    queue_of, asked = {}, []
    for path in folder.glob("producer-*.tsv"):
        for words in told(path):
            if words[0] == "i":
                queue_of[words[1]] = words[4]
            elif words[0] == "k":
                asked.append(words[1])
    return [(task_id, queue_of[task_id]) for task_id in asked]


async def _clear(stage: Stage) -> None:
    """What a user would do at the end: the schedule is removed, the dead letters purged."""
    runner = make_runner(stage.url, stage.plan)
    await runner.schedules.remove("tick", queue=QUEUES[0])
    for queue in QUEUES:
        await runner.dead(queue).purge_all()
    await runner.aclose()


def server_name(stage: Stage) -> str:
    """What the server says it is."""
    try:
        told = stage.redis.info("server")
    except RedisError:
        return "?"
    if "valkey_version" in told:
        return f"Valkey {told['valkey_version']}"
    return f"Redis {told['redis_version']}"
