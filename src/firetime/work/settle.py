"""Verdicts become edges: batched by queue, lane and kind, each tried until the server has answered."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from firetime.values.errors import BrokerUnavailable, QueueError, TaskUnlockFailed
from firetime.values.verdict import DONE, Bury, Cancel, Complete, RetryIn
from firetime.work.edges import Edges, Settlement

MOST_TOGETHER = 500
MOST_BYTES = 1024 * 1024
"""One call settles at most so many deliveries, and about so many bytes of results and errors."""


SIDE_BY_SIDE = 4
"""Calls in flight at once, where a worker settles in several queues, lanes or ways."""


class Settled(msgspec.Struct, frozen=True):
    """What the server said to a batch."""

    batch: list[Settlement]
    refused: frozenset[str]
    """Ids whose fence no longer held: another worker settles them. Empty after a repeat, where a refusal may be ours."""
    not_freed: tuple[TaskUnlockFailed, ...]
    error: QueueError | None = None
    """What the server refused the whole batch for: it was given up, and its leases run out."""


class _Trip:
    """What one tick has come to so far."""

    __slots__ = ("done", "failed")

    def __init__(self) -> None:
        self.done: list[Settled] = []
        self.failed: BrokerUnavailable | None = None


class Settler:
    """Everything one worker has to settle."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self._waiting: list[Settlement] = []
        self._news = asyncio.Event()
        self._room = asyncio.Semaphore(SIDE_BY_SIDE)

    def put(self, settlement: Settlement) -> None:
        """Takes one more; never waits."""
        self._waiting.append(settlement)
        if len(self._waiting) == 1:
            self._news.set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self) -> None:
        """Until there is something to settle."""
        await self._news.wait()

    async def tick(self) -> list[Settled]:
        """Settles what waits now. What the server did not answer waits again and ``BrokerUnavailable`` is raised.

        A batch that the server refuses for good is given up, and comes back with its ``error``.
        """
        taken, self._waiting = self._waiting, []
        self._news.clear()
        trip = _Trip()
        batches = _batches(taken)
        if len(batches) == 1:
            await self._try(batches[0], trip)
        else:
            # of other queues, lanes or kinds: side by side, or the last would wait for the replies of all before it, and a
            # worker that is killed meanwhile could not tell that its tasks have ended
            await asyncio.gather(*(self._try(batch, trip) for batch in batches))
        if trip.failed is not None and not trip.done:
            raise trip.failed
        return trip.done

    async def _try(self, batch: list[Settlement], trip: _Trip) -> None:
        async with self._room:
            if trip.failed is not None:
                # the server is away: what has not been sent is not tried now
                self._wait_again(batch)
                return
            try:
                trip.done.append(await self._settle(batch))
            except BrokerUnavailable as error:
                error.kind = "settle"
                trip.failed = trip.failed or error
                repeated = error.maybe_accepted
                self._wait_again(
                    [msgspec.structs.replace(each, repeated=True) for each in batch] if repeated else batch
                )
            except QueueError as error:
                error.kind = "settle"
                trip.done.append(Settled(batch, frozenset(), (), error))

    def _wait_again(self, batch: list[Settlement]) -> None:
        self._waiting += batch
        self._news.set()

    async def _settle(self, batch: list[Settlement]) -> Settled:
        answered = await self._edges.take(batch)
        repeated = {each.delivery.task_id for each in batch if each.repeated}
        return Settled(batch, answered.refused - repeated, answered.not_freed)


def _batches(settlements: Sequence[Settlement]) -> list[list[Settlement]]:
    """Grouped by edge, queue and lane, in stream order, each small enough for one call."""
    groups: defaultdict[tuple[type, str, str], list[Settlement]] = defaultdict(list)
    for each in settlements:
        fence, kind = each.delivery.fence, type(each.verdict)
        groups[Complete if kind is Cancel else kind, fence.queue, fence.lane].append(each)
    batches: list[list[Settlement]] = []
    for group in groups.values():
        group.sort(key=_entry_order)
        batches += _in_bounds(group)
    return batches


def _in_bounds(group: list[Settlement]) -> list[list[Settlement]]:
    batches: list[list[Settlement]] = [[]]
    size = 0
    for each in group:
        size += 0 if each.verdict is DONE else _size(each)
        if len(batches[-1]) == MOST_TOGETHER or (batches[-1] and size > MOST_BYTES):
            batches.append([])
            size = _size(each)
        batches[-1].append(each)
    return batches


def _size(each: Settlement) -> int:
    match each.verdict:
        case Complete(value):
            return len(value) if value else 0
        case RetryIn(_, state) | Bury(_, _, state):
            return sum(len(note.traceback) + len(note.text) for note in (*state.first, *state.last))
        case _:
            return 0


def _entry_order(each: Settlement) -> tuple[int, int]:
    milliseconds, _, sequence = each.delivery.fence.entry.partition("-")
    return int(milliseconds), int(sequence)
