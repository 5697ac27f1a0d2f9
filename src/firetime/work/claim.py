"""Deliveries come off one queue, never more than there are slots free; lost leases come first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from firetime.store.clock import ServerClock
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.values.codec import Guarded
from firetime.values.errors import InvalidTaskPayload
from firetime.values.ids import as_text, is_text
from firetime.values.message import Delivery, Fence
from firetime.values.state import FRESH

MOST_DELIVERIES = 500
BUDGET_BYTES = 1024 * 1024
"""One claim gives at most so many deliveries, and about so many bytes (design, fact 2)."""

_SHARE = 10
_ORDERS = {0: "lnh", 5: "nhl"}
"""Of so many claims one starts from the low lane and one from the normal lane: each always gets its share."""

_FIELDS = 8


class Claimed(msgspec.Struct, frozen=True):
    """What one claim gave."""

    deliveries: list[Delivery]
    drained: bool
    """Whether the lanes were empty when it ended."""
    paused: bool
    remade: bool
    """Whether consumer groups were missing and have been made anew."""
    stale: int
    late: bool = False
    """Whether the answer came so late that its deliveries may be another's by now; none was taken."""


class Claimer:
    """One worker's claims from one queue. Not for two claims at once."""

    def __init__(
        self,
        server: Server,
        keys: QueueKeys,
        consumer: str,
        codec: Guarded,
        clock: ServerClock,
        *,
        lease_s: float,
        sweep_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.keys = keys
        self.in_flight = False
        self._server = server
        self._consumer = consumer
        self._codec = codec
        self._clock = clock
        self._lease_s = lease_s
        self._sweep_s = sweep_s
        self._monotonic = monotonic
        self._claims = 0
        self._next_sweep = monotonic() + lease_s

    def connected_anew(self) -> None:
        """After an outage nobody sweeps before one lease has passed: idle times went on, renewals could not."""
        self._next_sweep = self._monotonic() + self._lease_s

    def sweep_due_in(self) -> float:
        """Seconds until a claim should look for lost leases even if no bell rings."""
        return max(0.0, self._next_sweep - self._monotonic())

    async def claim(self, free: int, *, may_sweep: bool = True) -> Claimed:
        """At most ``free`` deliveries. Raises ``QueueError`` kinds.

        A claim whose answer is lost, or comes later than half a lease, gives none: renewal finds what it left.
        Without ``may_sweep`` lost leases are looked for later: the first claim after an outage must not.
        """
        free = min(free, MOST_DELIVERIES)
        self._claims += 1
        sent = self._monotonic()
        sweep = may_sweep and sent >= self._next_sweep
        if not may_sweep:
            self._next_sweep = max(self._next_sweep, sent + self._sweep_s)
        self.in_flight = True
        try:
            told = await self._server.run("claim", self.keys, self._arguments(free, sweep=sweep))
        finally:
            self.in_flight = False
        received = self._monotonic()
        self._clock.observe(told[0], sent=sent, received=received)
        count = (len(told) - 3) // _FIELDS
        if sweep and count < free:
            self._next_sweep = received + self._sweep_s
        if received - sent > self._lease_s / 2:
            return Claimed([], drained=False, paused=False, remade=False, stale=0, late=True)
        deliveries = self._read(told)
        return Claimed(
            deliveries=deliveries,
            drained=count < free and not _spent(told),
            paused=told[1] == b"paused",
            remade=told[1] == b"remade",
            stale=told[2],
        )

    def _arguments(self, free: int, *, sweep: bool) -> dict[str, Any]:
        return {
            "consumer": self._consumer,
            "free": free,
            "order": _ORDERS.get(self._claims % _SHARE, "hnl"),
            # when it was asked for, in us on the server's clock: one that comes late must not sweep
            "sweep": self._clock.now_ms() * 1000 if sweep else 0,
            "lease_ms": round(self._lease_s * 1000),
            "sweep_ms": max(1, round(self._sweep_s * 1000)),
            "budget": BUDGET_BYTES,
        }

    def _read(self, told: list[Any]) -> list[Delivery]:
        claimed_ms = told[0] // 1000
        words = iter(told[3:])
        return [self._delivery(each, claimed_ms) for each in zip(*[words] * _FIELDS, strict=True)]

    def _delivery(self, words: tuple[Any, ...], claimed_ms: int) -> Delivery:
        lane, entry, count, task_id, record, state, fire, cancel_asked = words
        message, problem, unread, name = None, "", None, as_text(task_id)
        own_id = b"" if is_text(task_id) else task_id
        if record is None:
            problem = "record lost"
        elif own_id:
            problem, unread = "malformed", InvalidTaskPayload("", f"its id {name!r} is no text")
        else:
            try:
                message = self._codec.decode(record, self.keys.queue, name)
            except InvalidTaskPayload as error:
                problem, unread = "malformed", error
        return Delivery(
            name,
            Fence(self.keys.queue, lane.decode(), entry.decode(), self._consumer, count),
            message,
            self._codec.read_state(state, self.keys.queue, name) if state else FRESH,
            int(fire) if fire else 0,
            claimed_ms,
            b"" if message is not None else record or b"",
            problem,
            cancel_asked == 1,
            own_id,
            unread,
            self.keys.logical,
        )


def _spent(told: list[Any]) -> bool:
    """Whether the byte budget, and not an empty lane, may have ended the claim."""
    return sum(len(told[at] or b"") for at in range(7, len(told), _FIELDS)) * 2 > BUDGET_BYTES
