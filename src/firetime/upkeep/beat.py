"""Recurring schedules beat: a slot that is due becomes runs, once, whoever and however many look after it."""

from __future__ import annotations

import time

import msgspec

from firetime.store.clock import ServerClock
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.store.scripts import Argument
from firetime.values.codec import Codec
from firetime.values.errors import QueueError
from firetime.values.schedule import NOMINAL, Schedule, fingerprint, jittered, plan

_decoder = msgspec.json.Decoder(Schedule)


class Beat:
    """The schedules of one queue, looked after by one instance."""

    def __init__(self, server: Server, keys: QueueKeys, codec: Codec, clock: ServerClock) -> None:
        self._server = server
        self._keys = keys
        self._codec = codec
        self._clock = clock

    async def tick(self) -> int | None:
        """Ticks one slot if one is due; returns the next slot in ms. Raises ``QueueError`` with kind "scheduler"."""
        try:
            sent = time.monotonic()
            now_us, *head = await self._server.run("schedule_next", self._keys, {})
            self._clock.observe(now_us, sent=sent, received=time.monotonic())
            if not head or head[2] is None:
                return None
            slot_ms = int(float(head[1]))
            if slot_ms > now_us // 1000:
                return slot_ms
            return await self._send(head[2], slot_ms, now_us // 1000)
        except QueueError as error:
            error.kind = "scheduler"
            raise

    async def _send(self, kept: bytes, slot_ms: int, now_ms: int) -> int | None:
        schedule = _decoder.decode(kept.split(b" ", 2)[2])
        planned = plan(schedule, slot_ms, now_ms)
        template = self._codec.decode(schedule.record)
        rest: list[Argument] = []
        for each in planned.slots_ms:
            headers = {**template.headers, NOMINAL: str(each)}
            record = self._codec.encode(msgspec.structs.replace(template, headers=headers))
            rest += [f"{schedule.name}@{each}", record, template.lane, jittered(schedule, each)]
        arguments: dict[str, Argument] = {
            "name": schedule.name,
            "fingerprint": fingerprint(schedule),
            "slot_ms": slot_ms,
            "next_ms": -1 if planned.next_ms is None else planned.next_ms,
            "overlap": schedule.overlap,
        }
        _said, _sent, next_ms = await self._server.run("tick", self._keys, arguments, rest)
        return None if next_ms < 0 else next_ms
