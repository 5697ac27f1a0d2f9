"""``python -m chaos``: the worst day, its proof and its report; ``make chaos`` calls it."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path

from chaos.crew import ROOT
from chaos.loss import SCENARIOS, Loss, lose
from chaos.plan import Plan
from chaos.report import text, write
from chaos.run import Outcome, play
from tests.kit.servers import KINDS

_REPORTS = ROOT / "docs" / "chaos"


def main() -> None:
    """Plays what the command line asks for; the exit code is 1 when a promise did not hold."""
    asked = _arguments()
    plan = Plan(
        seed=secrets.randbelow(1_000_000) if asked.seed is None else asked.seed,
        tasks=asked.tasks,
        faults=asked.faults,
        seconds=asked.minutes * 60,
        workers=asked.workers,
        producers=asked.producers,
        lease_s=asked.lease,
        appendfsync=asked.appendfsync,
        server=asked.server,
    )
    what = f"--lose {asked.lose}" if asked.lose else f"--faults {plan.faults}"
    command = f'make chaos CHAOS="--tasks {plan.tasks} {what} --minutes {asked.minutes:g} --seed {plan.seed}"'
    with tempfile.TemporaryDirectory(prefix="firetime-chaos-") as made:
        folder = Path(asked.keep or made)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = asyncio.run(_played(plan, asked.lose, folder))
    print(text(outcome))
    if asked.report:
        write(outcome, _REPORTS, asked.lose or asked.report, command)
        _say(f"written: docs/chaos/{asked.lose or asked.report}.md and .json")
    sys.exit(0 if outcome.held else 1)


async def _played(plan: Plan, scenario: str | None, folder: Path) -> Outcome | Loss:
    return await (play(plan, folder, _say) if scenario is None else lose(scenario, plan, folder, _say))


_BEGAN = time.monotonic()


def _say(what: str) -> None:
    print(f"[{time.monotonic() - _BEGAN:7.1f} s] {what}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000, help="dispatches (default 20,000)")
    parser.add_argument("--faults", type=int, default=60, help="faults (default 60)")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long load and faults last (default 2)")
    parser.add_argument("--seed", type=int, help="what decides load and faults (default: a random one, printed)")
    parser.add_argument("--workers", type=int, default=4, help="worker processes (default 4)")
    parser.add_argument("--producers", type=int, default=2, help="producer processes (default 2)")
    parser.add_argument("--lease", type=float, default=2.5, help="the workers' lease in seconds (default 2.5)")
    parser.add_argument("--appendfsync", default="always", choices=("always", "everysec", "no"))
    parser.add_argument("--server", default="valkey9", choices=list(KINDS))
    parser.add_argument("--lose", choices=list(SCENARIOS), help="no faults, but a server that loses data in mid-run")
    parser.add_argument("--report", default="report", help="name of the page written in docs/chaos (default report)")
    parser.add_argument("--keep", metavar="FOLDER", help="leave journals, logs and ledger there (default: dropped)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
