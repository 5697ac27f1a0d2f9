"""The deliveries a worker holds, and the renewal of their leases, from a thread that a blocked event loop cannot stop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.store.scripts import Argument
from firetime.values.errors import QueueError
from firetime.values.ids import as_text, is_text
from firetime.values.message import Delivery, Fence

Place = tuple[str, str]
"""Lane letter and stream entry."""


class Held:
    """The deliveries of one worker, from claim to settlement; touched by the loop and by the renewing thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_queue: defaultdict[str, dict[Place, Delivery]] = defaultdict(dict)
        self._given_up: defaultdict[str, set[Place]] = defaultdict(set)

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """They have been claimed."""
        with self._lock:
            for each in deliveries:
                fence = each.fence
                place = fence.lane, fence.entry
                self._by_queue[fence.queue][place] = each
                if self._given_up:
                    self._given_up[fence.queue].discard(place)

    def drop(self, deliveries: Iterable[Delivery]) -> None:
        """They have been settled, or are lost. A later delivery of the same entry stays."""
        with self._lock:
            for each in deliveries:
                fence = each.fence
                held, place = self._by_queue[fence.queue], (fence.lane, fence.entry)
                if held.get(place) is each:
                    del held[place]

    def give_up(self, deliveries: Iterable[Delivery]) -> None:
        """They cannot be settled: no longer renewed, nor taken for unknown, they cost a crash when their lease ends."""
        deliveries = list(deliveries)
        self.drop(deliveries)
        with self._lock:
            for each in deliveries:
                self._given_up[each.fence.queue].add((each.fence.lane, each.fence.entry))

    def knows(self, queue: str, place: Place) -> bool:
        """Whether this worker has, or has given up, the delivery of an entry."""
        with self._lock:
            return place in self._by_queue[queue] or place in self._given_up[queue]

    def snapshot(self, queue: str) -> list[Delivery]:
        """What is held of a queue now."""
        with self._lock:
            return list(self._by_queue[queue].values())

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._by_queue.values()))


_TURNS_S = 2.0
"""An event loop that turns says so more often than this."""


class Renewed(msgspec.Struct, frozen=True):
    """What one renewal of a queue's leases told."""

    queue: str
    lost: list[Delivery]
    cancel_asked: list[Delivery]
    unknown: list[tuple[Fence, str]]
    """Pending entries nobody here knows, with their ids: the reply of their claim was lost."""


class Renewal:
    """Renews what is held, once a tick, over a connection of its own."""

    def __init__(
        self,
        server: Server,
        queues: list[QueueKeys],
        held: Held,
        consumer: str,
        *,
        unknown_s: float,
        call_s: float,
        stall_limit_s: float,
        on_renewed: Callable[[Renewed], None],
    ) -> None:
        self.loop_turned = time.monotonic()
        """When the event loop last turned; the worker moves it on."""
        self._server = server
        self._queues = queues
        self._held = held
        self._consumer = consumer
        self._call_s = call_s
        self._unknown_ms = round(unknown_s * 1000)
        self._stall_limit_s = stall_limit_s
        self._on_renewed = on_renewed
        self._suspicious = {keys.queue: time.monotonic() for keys in queues}
        """Queue -> since when. What a claim left is not told from one in flight before it is ``unknown_s`` old."""

    def suspect(self, queue: str) -> None:
        """A claim went wrong: there may be deliveries nobody knows of."""
        self._suspicious[queue] = time.monotonic()

    def stalled(self) -> bool:
        """Whether the event loop has stood still for too long to keep its leases."""
        return time.monotonic() - self.loop_turned > self._stall_limit_s

    async def tick(self) -> None:
        """Renews every queue's leases. Raises ``QueueError``; what was not renewed is tried at the next tick."""
        if self.stalled():
            return
        # side by side: a node of a cluster that does not answer must not cost the leases of the others' queues
        outcomes = await asyncio.gather(*map(self._renew_queue, self._queues))
        failed = next((error for error in outcomes if error is not None), None)
        if failed is not None:
            failed.kind = "renew"
            raise failed

    async def _renew_queue(self, keys: QueueKeys) -> QueueError | None:
        deliveries = self._held.snapshot(keys.queue)
        turns = time.monotonic() - self.loop_turned < _TURNS_S
        if not deliveries and keys.queue not in self._suspicious and turns:
            return None
        try:
            await self._renew(keys, deliveries)
        except QueueError as error:
            self.suspect(keys.queue)
            return error
        return None

    def _trust(self, queue: str, asked: float) -> None:
        if (since := self._suspicious.get(queue)) is not None and asked > since + self._unknown_ms / 1000:
            del self._suspicious[queue]

    async def _prolong(self, keys: QueueKeys, unknown: list[tuple[Fence, str]]) -> None:
        """A claim may have been answered while the event loop is blocked: until it turns, they are this worker's too."""
        await self._call(keys, unknown, [])

    async def _call(self, keys: QueueKeys, known: list[tuple[Fence, str]], unique: list[Argument]) -> Any:
        arguments: dict[str, Argument] = {
            "consumer": self._consumer,
            "known": len(known),
            "unknown_ms": self._unknown_ms,
        }
        rest: list[Argument] = []
        for fence, task_id in known:
            rest += [fence.lane, fence.entry, fence.deliveries, task_id]
        return await self._server.run("renew", keys, arguments, rest + unique, deadline_s=self._call_s)

    async def _renew(self, keys: QueueKeys, deliveries: list[Delivery]) -> None:
        unique: list[Argument] = []
        for each in deliveries:
            message = each.message
            if message is not None and message.unique_key is not None and message.unique_ms > 0:
                unique += [message.unique_key, each.task_id, message.unique_ms]
        asked = time.monotonic()
        known = [(each.fence, each.task_id) for each in deliveries]
        lost, cancel_asked, unknown = await self._call(keys, known, unique)
        places = {each.fence.lane + each.fence.entry: each for each in deliveries}
        ids = {each.task_id: each for each in deliveries}
        found = [
            (
                Fence(keys.queue, unknown[at].decode(), unknown[at + 1].decode(), self._consumer, unknown[at + 2]),
                as_text(unknown[at + 3]),
            )
            for at in range(0, len(unknown), 4)
            # one whose id is no text is no message that could be run: its lease runs out
            if is_text(unknown[at + 3])
        ]
        if not found:
            self._trust(keys.queue, asked)
        renewed = Renewed(
            queue=keys.queue,
            lost=[places[place.decode()] for place in lost],
            cancel_asked=[ids[task_id.decode()] for task_id in cancel_asked],
            unknown=found,
        )
        if renewed.lost or renewed.cancel_asked or renewed.unknown:
            self._on_renewed(renewed)
        if found:
            await self._prolong(keys, found)
