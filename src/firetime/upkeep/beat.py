"""Recurring schedules beat: a slot that is due becomes runs, once, whoever and however many look after it."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from firetime.store.clock import ServerClock
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.store.scripts import Argument
from firetime.values.codec import Guarded
from firetime.values.errors import FiretimeError, InvalidOption, InvalidTaskPayload, QueueError
from firetime.values.ids import as_text
from firetime.values.message import Message
from firetime.values.schedule import NOMINAL, Kept, Plan, jittered, plan, read_kept

_MOST_DUE = 25
"""How many schedules one tick looks after; what is delayed is promoted in between."""


class Beaten(msgspec.Struct, frozen=True):
    """What one tick did."""

    sent: int
    """Runs."""
    next_ms: int | None
    """The next slot that this instance can tick; it may be due already."""
    unreadable: list[FiretimeError]
    """Schedules that are due and mean nothing to this release: they are left to the one that wrote them."""


class Beat:
    """The schedules of one queue, looked after by one instance."""

    def __init__(self, server: Server, keys: QueueKeys, codec: Guarded, clock: ServerClock) -> None:
        self._server = server
        self._keys = keys
        self._codec = codec
        self._clock = clock
        self._most = _MOST_DUE

    async def tick(self, *, attended_ms: int) -> Beaten:
        """Ticks the slots that are due. ``attended_ms``: since when this instance has been there without a break.

        Raises ``QueueError`` with kind "scheduler".
        """
        sent, unreadable = 0, list[FiretimeError]()
        try:
            now_us, next_ms, *due = await self._look()
            nexts = [next_ms]
            for at in range(0, len(due), 3):
                try:
                    kept = read_kept(as_text(due[at]), due[at + 2])
                    template = self._codec.decode(
                        kept.schedule.record, self._keys.queue, kept.schedule.name, "schedule"
                    )
                except (InvalidOption, InvalidTaskPayload) as error:
                    unreadable.append(error)
                    continue
                planned = plan(kept.schedule, due[at + 1], now_us // 1000, attended_ms=attended_ms)
                sent_now, next_ms = await self._send(kept, template, due[at + 1], planned)
                sent += sent_now
                nexts.append(next_ms)
        except QueueError as error:
            error.kind = "scheduler"
            raise
        if len(unreadable) >= self._most:
            # they stay due: the next look must reach beyond them
            self._most *= 2
        return Beaten(sent, min((each for each in nexts if each >= 0), default=None), unreadable)

    async def _look(self) -> list[Any]:
        sent = time.monotonic()
        told: list[Any] = await self._server.run("schedule_next", self._keys, {"most": self._most})
        self._clock.observe(told[0], sent=sent, received=time.monotonic())
        return told

    async def _send(self, kept: Kept, template: Message, slot_ms: int, planned: Plan) -> tuple[int, int]:
        """How many runs were sent, and the next slot."""
        made = kept.schedule
        rest: list[Argument] = []
        for each in planned.slots_ms:
            headers = {**template.headers, NOMINAL: str(each)}
            task_id, message = f"{made.name}@{each}", msgspec.structs.replace(template, headers=headers)
            record = self._codec.encode(message, self._keys.queue, task_id)
            rest += [task_id, record, template.lane, jittered(made, each)]
        arguments: dict[str, Argument] = {
            "name": made.name,
            "fingerprint": kept.fingerprint,
            "slot_ms": slot_ms,
            "next_ms": -1 if planned.next_ms is None else planned.next_ms,
            "overlap": made.overlap,
            "unique_key": template.unique_key or "",
            "hold_ms": template.unique_ms,
        }
        _said, sent, next_ms = await self._server.run("tick", self._keys, arguments, rest)
        return sent, next_ms
