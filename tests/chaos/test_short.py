"""A short worst day: real processes, every kind of fault, and a proof from the journals."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.faults import KINDS
from chaos.plan import Plan
from chaos.report import text
from chaos.run import play

SHORT = Plan(seed=20, tasks=6_000, faults=40, seconds=40)


@pytest.mark.timeout(170)
async def test_on_the_worst_day_nothing_is_lost_early_or_settled_twice(tmp_path: Path) -> None:
    outcome = await play(SHORT, tmp_path, print)
    assert outcome.held, text(outcome)
    assert (outcome.figures.lost, outcome.figures.early) == (0, 0)
    assert set(outcome.figures.faults) | set(outcome.not_possible) == set(KINDS)
