"""What one run is to be: everything that its seed and its options decide."""

from __future__ import annotations

from typing import Any

import msgspec

QUEUES = ("alpha", "beta", "gamma")

PREFIX = "chaos"

CONDUCTOR = "conductor"
"""The slot of the process that plays the run; the proxies live in it."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run."""

    seed: int
    tasks: int
    """Dispatches that the producers are to have answered; the faults that are tasks come on top."""
    faults: int
    seconds: float
    """How long the load and the faults last; what is left of the work is waited for afterwards."""
    workers: int = 4
    producers: int = 2
    lease_s: float = 2.5
    appendfsync: str = "always"
    server: str = "valkey9"
    spared: int = 0
    """So many workers are never killed or stopped: their memory is what a soak measures."""
    forgetful: bool = False
    """Whether the load leaves out what the server would have to remember to its end."""
    without: tuple[str, ...] = ()
    """Kinds of faults that are left out."""

    @property
    def worker_slots(self) -> list[str]:
        """The names of the workers' places; who is killed is followed by another in the same place."""
        return [f"worker-{number}" for number in range(self.workers)]

    @property
    def producer_slots(self) -> list[str]:
        """The names of the producers' places."""
        return [f"producer-{number}" for number in range(self.producers)]


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of the run is told when it starts."""

    slot: str
    url: str
    """Of the proxy that stands before the server for this process."""
    folder: str
    plan: Plan
    began_s: float
    """When the load begins, on the machine's clock."""


def runner_settings(plan: Plan) -> dict[str, Any]:
    """The settings of every runner of the run."""
    return {
        "prefix": PREFIX,
        "lease": plan.lease_s,
        "sweep": plan.lease_s / 3,
        "leader_lease": plan.lease_s / 2,
        "dispatch_deadline": 3.0,
        "shutdown": 3.0,
        "concurrency": 50,
        "threads": 8,
        # what was cancelled, and each id of one's own, is asked for at the end
        "remember_ids": 60.0 if plan.forgetful else plan.seconds + 3600,
        "history_length": plan.tasks + 100_000,
    }
