"""``python -m chaos.soak``: load and failures for a long time, and whether memory stays where it was; ``make soak`` calls it.

Weighed are the workers that live through all of it, and the server. The load leaves out what the server is asked to
remember (explicit ids, cancels, history), and dead letters are taken away all the while: what is left must not grow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from redis.exceptions import RedisError

from chaos.crew import ROOT
from chaos.journal import Journal
from chaos.plan import Plan
from chaos.remains import Remains
from chaos.report import surroundings, table, text
from chaos.run import Outcome, play
from chaos.stage import Stage
from chaos.tasks import make_runner
from firetime import FiretimeError

_EVERY_S = 5.0
_HARVEST_S = 10.0
_WARM_UP = 0.25
"""This share of the time caches, pools and the allocator fill up; it does not count."""

_LEFT_OUT = ("worker killed by its task",)
_SECONDS_A_FAULT = 5.0


class Sample(msgspec.Struct, frozen=True):
    """What was weighed at one time."""

    at_s: float
    kib: dict[str, float]
    """Worker slot -> its resident memory; ``server`` -> its ``used_memory``."""


class Slope(msgspec.Struct, frozen=True):
    """How one of them grew, after the warm-up."""

    who: str
    samples: int
    first_kib: float
    last_kib: float
    kib_a_minute: float


class Scales:
    """Weighs the spared workers and the server, for ever."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    async def weigh(self, stage: Stage) -> None:
        """One sample after the other."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(_EVERY_S)
            kib = {place.slot: _resident_kib(place.pid) for place in stage.workers[: stage.plan.spared] if place.pid}
            with contextlib.suppress(RedisError):  # it is down just now
                kib["server"] = (await asyncio.to_thread(stage.redis.info, "memory"))["used_memory"] / 1024
            self.samples.append(Sample(round(time.monotonic() - began, 1), kib))


async def harvest(stage: Stage) -> None:
    """Takes the dead letters away, for ever: the journal keeps what they said."""
    journal = Journal(stage.folder, "harvester")
    runner = make_runner(stage.url, stage.plan)
    remains = Remains(stage.redis, stage.keys.values())
    try:
        while True:
            await asyncio.sleep(_HARVEST_S)
            with contextlib.suppress(FiretimeError, RedisError):  # the server is down, or full: next time
                for queue, task_id, reason, failures in await asyncio.to_thread(lambda: list(remains.letters())):
                    journal.tell("D", task_id, reason, failures)
                    await runner.dead(queue).purge(task_id)
    finally:
        await runner.aclose()


def slopes(samples: Sequence[Sample]) -> list[Slope]:
    """Least squares over each one's samples after the warm-up, in KiB a minute."""
    last_s = samples[-1].at_s if samples else 0.0
    warm = [sample for sample in samples if sample.at_s >= _WARM_UP * last_s]
    found = []
    for who in sorted({who for sample in warm for who in sample.kib}):
        points = [(sample.at_s / 60, sample.kib[who]) for sample in warm if who in sample.kib]
        if len(points) > 1:
            found.append(Slope(who, len(points), points[0][1], points[-1][1], round(_slope(points), 2)))
    return found


def _slope(points: Sequence[tuple[float, float]]) -> float:
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def _resident_kib(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return float(line.split()[1])
    return 0.0


def page(outcome: Outcome, found: Sequence[Slope], command: str, minutes: float) -> str:
    """The report as Markdown."""
    figures = outcome.figures
    sentence = (
        f"`{command}`: {figures.dispatched:,} tasks and {sum(figures.faults.values()):,} faults in {minutes:g} minutes; "
        f"{figures.lost} lost, {figures.early} early. {'Every promise held.' if outcome.held else 'BROKEN, see below.'}"
    )
    rows = [(each.who, f"{each.first_kib:,.0f} | {each.last_kib:,.0f} | {each.kib_a_minute:+.2f}") for each in found]
    return "\n".join(
        [
            "# Soak: memory under load and failures",
            "",
            sentence,
            "",
            f"Memory after a warm-up of {_WARM_UP:.0%} of the time, a sample every {_EVERY_S:g} s; the slope is that of least squares.",
            f"The workers are those that lived through it, among {outcome.plan.workers}; the server's is its `used_memory`.",
            "",
            "| | first, KiB | last, KiB | slope, KiB a minute |",
            "|---|---:|---:|---:|",
            *(f"| {who} | {figures} |" for who, figures in rows),
            "",
            *table("fault", "times", outcome.figures.faults.items()),
            *(f"- broken: {each.promise}: {each.times} ({'; '.join(each.examples)})" for each in outcome.broken),
            *table("setting", "", [*msgspec.to_builtins(outcome.plan).items(), *surroundings(outcome.server)]),
        ]
    )


async def soak(plan: Plan, folder: Path) -> tuple[Outcome, list[Sample]]:
    """Plays a plan and weighs."""
    scales = Scales()
    outcome = await play(plan, folder, _say, beside=(scales.weigh, harvest))
    return outcome, scales.samples


def main() -> None:
    """Soaks as the command line asks; the exit code is 1 when a promise did not hold."""
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0, help="how long (default 20)")
    parser.add_argument("--rate", type=float, default=150.0, help="dispatches a second (default 150)")
    parser.add_argument("--seed", type=int, help="what decides load and faults (default: a random one)")
    parser.add_argument("--report", default="soak", help="name of the page written in docs/chaos (default soak)")
    asked = parser.parse_args()
    seconds = asked.minutes * 60
    plan = Plan(
        seed=secrets.randbelow(1_000_000) if asked.seed is None else asked.seed,
        tasks=round(asked.rate * seconds),
        faults=round(seconds / _SECONDS_A_FAULT),
        seconds=seconds,
        spared=2,
        without=_LEFT_OUT,
        forgetful=True,
    )
    command = f'make soak SOAK="--minutes {asked.minutes:g} --rate {asked.rate:g} --seed {plan.seed}"'
    with tempfile.TemporaryDirectory(prefix="firetime-soak-") as folder:
        outcome, samples = asyncio.run(soak(plan, Path(folder)))
    found = slopes(samples)
    print(text(outcome))
    for each in found:
        print(
            f"{each.who:<12}{each.first_kib:>12,.0f} KiB -> {each.last_kib:>12,.0f} KiB {each.kib_a_minute:>+10.2f} KiB/min"
        )
    if asked.report:
        reports = ROOT / "docs" / "chaos"
        reports.mkdir(parents=True, exist_ok=True)
        (reports / f"{asked.report}.md").write_text(page(outcome, found, command, asked.minutes), encoding="utf-8")
        _say(f"written: docs/chaos/{asked.report}.md")
    sys.exit(0 if outcome.held else 1)


def _say(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    main()
