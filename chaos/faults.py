"""A seed becomes the schedule of faults: what goes wrong, where, when and for how long, the same every time."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

from chaos.plan import Plan

Where = Literal["worker", "leader", "producer", "link", "server", "task"]


class Kind(msgspec.Struct, frozen=True):
    """One way in which things go wrong."""

    where: Where
    share: float
    """Of all faults, in parts."""
    leases: tuple[float, float] = (0.0, 0.0)
    """How long it lasts, from and to, in leases."""
    amount: tuple[float, float] = (0.0, 0.0)
    """How strong it is, from and to, where that can be said."""
    silences: bool = False
    """Whether it keeps the server and who it strikes from hearing of each other while it lasts."""
    kills: bool = False
    """Whether a process that it strikes never tells how its tasks ended."""
    stops: bool = False
    """Whether a process that it strikes gives back what has not ended."""


KINDS: dict[str, Kind] = {
    "worker killed": Kind("worker", 14, kills=True),
    "worker asked to stop": Kind("worker", 5, stops=True),
    "worker frozen": Kind("worker", 10, (0.2, 2.0), silences=True),
    "leader killed": Kind("leader", 5, kills=True),
    "leader frozen": Kind("leader", 5, (0.2, 2.0), silences=True),
    "worker's clock moved": Kind("worker", 5, amount=(-400_000.0, 400_000.0)),
    "worker killed by its task": Kind("task", 3, kills=True),
    "event loop blocked by a task": Kind("task", 4, (0.3, 1.5)),
    "producer killed": Kind("producer", 7, kills=True),
    "producer frozen": Kind("producer", 3, (0.2, 2.0), silences=True),
    "connections cut": Kind("link", 10),
    "replies lost": Kind("link", 10, amount=(1, 3)),
    "connections black-holed": Kind("link", 7, (0.1, 1.6), silences=True),
    "connections refused": Kind("link", 4, (0.1, 1.0), silences=True),
    "connections slowed": Kind("link", 5, (0.3, 1.5), (0.01, 0.3), silences=True),
    "server restarted": Kind("server", 3, (0.0, 0.5), silences=True),
    "server killed": Kind("server", 4, (0.0, 0.8), silences=True),
    "server frozen": Kind("server", 4, (0.1, 1.5), silences=True),
    "server's memory filled": Kind("server", 4, (0.3, 1.2), silences=True),
    "server's scripts forgotten": Kind("server", 2),
    "all connections cut": Kind("server", 2),
}
"""What goes wrong, by its name in the report."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a schedule."""

    kind: str
    at_s: float
    """From the beginning of the load."""
    lasts_s: float
    amount: float
    chosen: int
    """Which of those that it could strike: counted round and round."""


def schedule(plan: Plan) -> list[Fault]:
    """The faults of a run in the order of their times; every kind at least once, where there are enough of them."""
    chance = random.Random(f"{plan.seed}/faults")
    kinds = {name: kind for name, kind in KINDS.items() if name not in plan.without and _has_a_target(kind, plan)}
    names = list(kinds)
    chance.shuffle(names)
    names += chance.choices(list(kinds), [kind.share for kind in kinds.values()], k=max(0, plan.faults - len(names)))
    faults = [_fault(chance, name, plan) for name in names[: plan.faults]]
    return sorted(faults, key=lambda fault: fault.at_s)


def _has_a_target(kind: Kind, plan: Plan) -> bool:
    if kind.where == "leader":
        return plan.spared == 0
    return kind.where != "worker" or plan.spared < plan.workers


def _fault(chance: random.Random, name: str, plan: Plan) -> Fault:
    kind = KINDS[name]
    return Fault(
        kind=name,
        at_s=round(chance.uniform(0.02, 0.95) * plan.seconds, 3),
        lasts_s=round(chance.uniform(*kind.leases) * plan.lease_s, 3),
        amount=round(chance.uniform(*kind.amount), 3),
        chosen=chance.randrange(1000),
    )
