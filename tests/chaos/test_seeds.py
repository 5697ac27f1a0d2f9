"""A seed decides the faults and the load, and nothing else does."""

from __future__ import annotations

import pytest

from chaos.faults import KINDS, schedule
from chaos.load import BATCH, batch_of, batches
from chaos.plan import Plan

PLAN = Plan(seed=7, tasks=2_530, faults=60, seconds=30)


def other(**changes: object) -> Plan:
    return Plan(**{"seed": 7, "tasks": 2_530, "faults": 60, "seconds": 30, **changes})  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_faults_and_the_same_load() -> None:
    assert schedule(other()) == schedule(PLAN)
    assert [batch_of(other(), 1, 3), batch_of(other(), 0, 0)] == [batch_of(PLAN, 1, 3), batch_of(PLAN, 0, 0)]


def test_another_seed_gives_others() -> None:
    assert schedule(other(seed=8)) != schedule(PLAN)
    assert batch_of(other(seed=8), 1, 3) != batch_of(PLAN, 1, 3)


def test_each_kind_of_fault_comes_at_least_once() -> None:
    assert {fault.kind for fault in schedule(PLAN)} == set(KINDS)
    assert len(schedule(PLAN)) == PLAN.faults


def test_faults_come_in_the_order_of_their_times_and_within_the_load() -> None:
    times = [fault.at_s for fault in schedule(PLAN)]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= PLAN.seconds


def test_who_is_spared_is_not_killed() -> None:
    spared = schedule(other(spared=4, faults=500))
    assert {fault.kind for fault in spared} & {"worker killed", "worker asked to stop", "leader killed"} == set()


def test_kinds_can_be_left_out() -> None:
    assert "server killed" not in {fault.kind for fault in schedule(other(without=("server killed",), faults=500))}


@pytest.mark.parametrize("producers", [1, 2, 3])
def test_the_producers_together_send_every_task_once(producers: int) -> None:
    plan = other(producers=producers)
    orders = [
        order
        for producer in range(producers)
        for batch in range(batches(plan, producer))
        for order in batch_of(plan, producer, batch)
    ]
    assert len(orders) == plan.tasks
    assert len({order.number for order in orders}) == plan.tasks
    assert all(len(batch_of(plan, 0, batch)) == BATCH for batch in range(batches(plan, 0) - 1))


def test_the_load_has_every_kind_of_task() -> None:
    orders = [order for batch in range(batches(PLAN, 0)) for order in batch_of(PLAN, 0, batch)]
    assert {"plain", "thread", "flaky", "doomed", "unique", "long", "kept"} <= {order.task for order in orders}
    assert any(order.cancel_after_s for order in orders)
    assert any(order.explicit_id for order in orders)
    assert any(order.delay_s for order in orders)
