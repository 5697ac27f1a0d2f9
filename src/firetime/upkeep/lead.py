"""One of those who promote a queue leads, for as long as it renews its lease; leading is an optimisation only."""

from __future__ import annotations

import time

import msgspec

from firetime.store.clock import ServerClock
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.values.errors import QueueError


class Standing(msgspec.Struct, frozen=True):
    """Who leads a queue, as one answer told it."""

    leads: bool
    epoch: int
    leader: str
    since_ms: int
    head_ms: int | None
    """The fire-time of the next delayed message."""
    wake_id: str
    slot_ms: int | None
    """The next slot of the recurring schedules."""
    slots_wake_id: str
    left_s: float
    """How long the lease lasts unless it is prolonged."""

    def forgets(self, earlier: Standing) -> bool:
        """Whether the server has lost data since: the epoch only ever grows."""
        if self.epoch != earlier.epoch:
            return self.epoch < earlier.epoch
        return (self.leader, self.since_ms) != (earlier.leader, earlier.since_ms)


class Leadership:
    """One instance's candidacy for one queue."""

    def __init__(self, server: Server, keys: QueueKeys, token: str, clock: ServerClock, *, ttl_s: float) -> None:
        self._server = server
        self._keys = keys
        self._token = token
        self._clock = clock
        self._ttl_s = ttl_s

    async def tick(self) -> Standing:
        """Takes the lease if it is free, prolongs it if it is ours. Due every third of it, and when another's runs out.

        Raises ``QueueError`` with ``kind`` "election".
        """
        arguments: dict[str, str | bytes | int] = {"token": self._token, "ttl_ms": round(self._ttl_s * 1000)}
        sent = time.monotonic()
        try:
            told = await self._server.run("lead", self._keys, arguments)
        except QueueError as error:
            error.kind = "election"
            raise
        leads, epoch, leader, since_ms, head_ms, now_us, wake_id, slot_ms, left_ms, slots_wake_id = told
        self._clock.observe(now_us, sent=sent, received=time.monotonic())
        return Standing(
            leads=leads == 1,
            epoch=epoch,
            leader=leader.decode(),
            since_ms=since_ms,
            head_ms=None if head_ms < 0 else head_ms,
            wake_id=wake_id.decode(),
            slot_ms=None if slot_ms < 0 else slot_ms,
            slots_wake_id=slots_wake_id.decode(),
            left_s=left_ms / 1000,
        )
