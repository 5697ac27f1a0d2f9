"""The server loses its data: what is dispatched after that is done all the same, and nothing starts early."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.loss import SCENARIOS, lose
from chaos.plan import Plan

PLAN = Plan(seed=5, tasks=2_000, faults=0, seconds=10, workers=2, producers=1)


@pytest.mark.timeout(170)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_after_the_loss_the_queue_works_on_by_itself(scenario: str, tmp_path: Path) -> None:
    loss = await lose(scenario, PLAN, tmp_path, print)
    assert loss.broken == []
    assert loss.early == 0
    assert loss.before > 0
    assert loss.after > 0
