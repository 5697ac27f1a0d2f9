"""The deliveries a worker holds, and the renewal of their leases, from a thread that a blocked event loop cannot stop."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from firetime.store.blocking import BlockingServer
from firetime.store.keys import QueueKeys
from firetime.store.scripts import Argument
from firetime.values.errors import QueueError
from firetime.values.message import Delivery, Fence

Place = tuple[str, str]
"""Lane letter and stream entry."""


class Held:
    """The deliveries of one worker, from claim to settlement; touched by the loop and by the renewing thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_queue: defaultdict[str, dict[Place, Delivery]] = defaultdict(dict)

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """They have been claimed."""
        with self._lock:
            for each in deliveries:
                self._by_queue[each.fence.queue][each.fence.lane, each.fence.entry] = each

    def drop(self, deliveries: Iterable[Delivery]) -> None:
        """They have been settled, or are lost. A later delivery of the same entry stays."""
        with self._lock:
            for each in deliveries:
                held, place = self._by_queue[each.fence.queue], (each.fence.lane, each.fence.entry)
                if held.get(place) is each:
                    del held[place]

    def get(self, queue: str, place: Place) -> Delivery | None:
        """The delivery of an entry, if this worker knows it."""
        with self._lock:
            return self._by_queue[queue].get(place)

    def snapshot(self, queue: str) -> list[Delivery]:
        """What is held of a queue now."""
        with self._lock:
            return list(self._by_queue[queue].values())

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._by_queue.values()))


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
        server: BlockingServer,
        queues: list[QueueKeys],
        held: Held,
        consumer: str,
        *,
        unknown_s: float,
        stall_limit_s: float,
        on_renewed: Callable[[Renewed], None],
    ) -> None:
        self.loop_turned = time.monotonic()
        """When the event loop last turned; the worker moves it on."""
        self._server = server
        self._queues = queues
        self._held = held
        self._consumer = consumer
        self._unknown_ms = round(unknown_s * 1000)
        self._stall_limit_s = stall_limit_s
        self._on_renewed = on_renewed
        self._suspicious: set[str] = {keys.queue for keys in queues}

    def suspect(self, queue: str) -> None:
        """A claim went wrong: there may be deliveries nobody knows of."""
        self._suspicious.add(queue)

    def stalled(self) -> bool:
        """Whether the event loop has stood still for too long to keep its leases."""
        return time.monotonic() - self.loop_turned > self._stall_limit_s

    def tick(self) -> None:
        """Renews every queue's leases. Raises ``QueueError``; what was not renewed is tried at the next tick."""
        if self.stalled():
            return
        failed: QueueError | None = None
        for keys in self._queues:
            deliveries = self._held.snapshot(keys.queue)
            if not deliveries and keys.queue not in self._suspicious:
                continue
            try:
                self._renew(keys, deliveries)
            except QueueError as error:
                self._suspicious.add(keys.queue)
                failed = error
        if failed is not None:
            failed.kind = "renew"
            raise failed

    def _renew(self, keys: QueueKeys, deliveries: list[Delivery]) -> None:
        arguments: dict[str, Argument] = {
            "consumer": self._consumer,
            "known": len(deliveries),
            "unknown_ms": self._unknown_ms,
        }
        rest: list[Argument] = []
        for each in deliveries:
            rest += [each.fence.lane, each.fence.entry, each.fence.deliveries, each.task_id]
        for each in deliveries:
            message = each.message
            if message is not None and message.unique_key is not None and message.unique_ms > 0:
                rest += [message.unique_key, each.task_id, message.unique_ms]
        lost, cancel_asked, unknown = self._server.run("renew", keys, arguments, rest)
        places = {each.fence.lane + each.fence.entry: each for each in deliveries}
        ids = {each.task_id: each for each in deliveries}
        found = [
            (
                Fence(keys.queue, unknown[at].decode(), unknown[at + 1].decode(), self._consumer, unknown[at + 2]),
                unknown[at + 3].decode(),
            )
            for at in range(0, len(unknown), 4)
        ]
        if not found:
            self._suspicious.discard(keys.queue)
        renewed = Renewed(
            queue=keys.queue,
            lost=[places[place.decode()] for place in lost],
            cancel_asked=[ids[task_id.decode()] for task_id in cancel_asked],
            unknown=found,
        )
        if renewed.lost or renewed.cancel_asked or renewed.unknown:
            self._on_renewed(renewed)
