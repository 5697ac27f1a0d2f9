"""Tasks flow from senders to a worker while something happens to the servers between them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from firetime import BrokerUnavailable, TaskRunner, current_task
from firetime.store.keys import QueueKeys
from tests.kit.cluster import node_client
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tests.kit.servers import ServerProcess

PREFIX = "firetime:flow"
_SENDERS = 2
_ENOUGH = 20
_PAUSE_S = 0.01
_PATIENCE_S = 60.0
"""Far more than anything here takes: a busy machine is slow, not wrong."""


@dataclass(slots=True)
class Flow:
    """What was sent and what ran; a number is one task."""

    queues: Sequence[str]
    accepted: dict[int, str] = field(default_factory=dict)
    """Number -> queue."""
    ids: dict[str, int] = field(default_factory=dict)
    """Task id -> number, of those accepted."""
    doubtful: set[int] = field(default_factory=set)
    """Neither accepted nor refused for certain."""
    refused: list[BrokerUnavailable] = field(default_factory=list)
    ran: Counter[int] = field(default_factory=Counter)
    early: list[int] = field(default_factory=list)

    @property
    def lost(self) -> set[int]:
        """Accepted, and never run."""
        return self.accepted.keys() - self.ran.keys()

    @property
    def story(self) -> str:
        """The figures, for the log of a test."""
        again = sum(times - 1 for times in self.ran.values())
        return (
            f"{len(self.accepted)} accepted, {len(self.lost)} of them lost, {again} runs too many, {len(self.early)} early,"
            f" {len(self.doubtful)} doubtful, {len(self.refused)} refused"
        )

    def mark(self) -> Callable[[], bool]:
        """Whether every queue has accepted and run enough of what was sent from here on."""
        sent = set(self.accepted)

        def gone_on() -> bool:
            new = Counter(self.accepted[number] for number in self.accepted.keys() - sent if number in self.ran)
            return all(new[queue] >= _ENOUGH for queue in self.queues)

        return gone_on

    async def goes_on(self, what: str) -> None:
        """By itself, in every queue."""
        await until(self.mark(), timeout=_PATIENCE_S, what=f"{what}; so far {self.story}")


@asynccontextmanager
async def flowing(
    url: str, primary_of: Callable[[str], ServerProcess], queues: Sequence[str] = ("default",), *, min_replicas: int = 0
) -> AsyncIterator[Flow]:
    """Senders and a worker at work; at the end of the block the senders end, and what is left in the queues is run."""
    flow = Flow(queues)
    worker = TaskRunner(url, prefix=PREFIX, lease=3.0, leader_lease=1.0, queues=queues)
    sender = TaskRunner(url, prefix=PREFIX, dispatch_deadline=30.0, min_replicas=min_replicas)

    @worker.task
    async def note(number: int) -> None:
        due_ms = current_task().fire_ms
        if due_ms is not None and time.time() * 1000 < due_ms:
            flow.early.append(number)
        flow.ran[number] += 1

    over = asyncio.Event()
    await worker.start()
    senders = [asyncio.create_task(_send(sender, flow, over, numbers)) for numbers in _apart(_SENDERS)]
    try:
        await flow.goes_on("the flow begins")
        yield flow
        over.set()
        await asyncio.wait_for(asyncio.gather(*senders), _PATIENCE_S)
        await until(lambda: not _left(primary_of, queues), timeout=_PATIENCE_S, what=f"all has run; {flow.story}")
    finally:
        for task in senders:
            task.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        await sender.aclose()
        await worker.aclose()


def kept(primary_of: Callable[[str], ServerProcess], queues: Sequence[str]) -> set[str]:
    """The ids that the servers have in their data now."""
    found: set[str] = set()
    for queue in queues:
        with node_client(primary_of(queue).port) as redis:
            found |= {id.decode() for id in redis.hkeys(QueueKeys(PREFIX, queue).tasks)}
    return found


def _left(primary_of: Callable[[str], ServerProcess], queues: Sequence[str]) -> bool:
    try:
        return bool(kept(primary_of, queues))
    except (RedisError, OSError):
        return True


def _apart(senders: int) -> list[count[int]]:
    return [count(first, senders) for first in range(senders)]


async def _send(runner: TaskRunner, flow: Flow, over: asyncio.Event, numbers: count[int]) -> None:
    for number in numbers:
        if over.is_set():
            return
        queue = flow.queues[number // _SENDERS % len(flow.queues)]
        delay_s = 0.0 if number % 3 else 0.2
        try:
            handle = await runner.named("note", queue=queue, delay=delay_s).dispatch(number)
        except BrokerUnavailable as error:
            flow.refused.append(error)
            if error.maybe_accepted:
                flow.doubtful.add(number)
        else:
            flow.accepted[number] = queue
            flow.ids[handle.task_id] = number
        await asyncio.sleep(_PAUSE_S)
