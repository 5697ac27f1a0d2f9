"""Delayed messages become ready: the due head moves, in batches, and then somebody says when the next is due."""

from __future__ import annotations

import time

import msgspec

from firetime.store.clock import ServerClock
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.values.errors import QueueError


class Promoted(msgspec.Struct, frozen=True):
    """What one call moved, and when the next head is due."""

    moved: int
    head_ms: int | None
    wake_id: str
    late_ms: int
    """By how much the moved ones were late in all."""
    leads: bool
    """Whether the caller leads: others move only what is overdue by the grace."""


class Promoter:
    """Promotes one queue on behalf of one instance; the script checks whether that one leads."""

    def __init__(
        self, server: Server, keys: QueueKeys, token: str, clock: ServerClock, *, grace_s: float, batch: int
    ) -> None:
        self._server = server
        self._keys = keys
        self._token = token
        self._clock = clock
        self._grace_s = grace_s
        self._batch = batch

    async def tick(self) -> Promoted:
        """Moves at most a batch. Raises ``QueueError`` with ``kind`` "scheduler"."""
        arguments: dict[str, str | bytes | int] = {
            "token": self._token,
            "grace_ms": round(self._grace_s * 1000),
            "most": self._batch,
        }
        sent = time.monotonic()
        try:
            told = await self._server.run("promote", self._keys, arguments)
        except QueueError as error:
            error.kind = "scheduler"
            raise
        moved, head_ms, now_us, wake_id, late_ms, leads = told
        self._clock.observe(now_us, sent=sent, received=time.monotonic())
        return Promoted(moved, None if head_ms < 0 else head_ms, wake_id.decode(), int(late_ms), leads == 1)
