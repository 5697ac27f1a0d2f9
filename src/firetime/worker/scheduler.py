"""Delayed messages are promoted on a client's timer that ends exactly when the head is due."""

from __future__ import annotations

import asyncio
import time

from firetime.store.keys import QueueKeys
from firetime.upkeep.beat import Beat
from firetime.upkeep.lead import Leadership
from firetime.upkeep.promote import Promoted, Promoter
from firetime.upkeep.register import Register
from firetime.values.errors import QueueError
from firetime.values.events import WorkerEvent
from firetime.worker.workshop import Health, Patience, Stir, Workshop

_LONGEST_SLEEP_S = 5.0
"""Nobody sleeps longer without asking, whatever the head was (design, section 7)."""

_LOOK_AFTER_S = 5.0
"""How often the leader looks for long queues."""

_WAKE_MS = 5000
_WAKE_DEADLINE_S = 10.0


class QueueSchedule:
    """One queue's leadership and promotion, by one instance."""

    def __init__(self, shop: Workshop, keys: QueueKeys, health: Health) -> None:
        settings = shop.settings
        self.keys = keys
        self.leads = False
        self.wake_id = "0-0"
        self._shop = shop
        self._stir = Stir()
        self._patience = Patience(health, f"scheduler {keys.queue}")
        self._renew_every_s = settings.leader_lease / 3
        self._leadership = Leadership(shop.server, keys, shop.token, shop.clock, ttl_s=settings.leader_lease)
        self._promoter = Promoter(
            shop.server, keys, shop.token, shop.clock, grace_s=settings.standby_grace, batch=settings.promote_batch
        )
        self._register = Register(shop.server, keys, gone_s=gone_s(shop))
        self._beat = Beat(shop.server, keys, shop.codec, shop.clock)
        self._head_ms: int | None = None
        self._slot_ms: int | None = None
        self._lead_at = 0.0
        self._look_at = 0.0
        self._prune_at = time.monotonic() + gone_s(shop)

    def woken(self, wake_id: str, what: bytes, at_ms: int) -> None:
        """An earlier head ("f") or an earlier slot ("s") has arrived; 0: the leader has resigned."""
        self.wake_id = wake_id
        if at_ms == 0:
            self._lead_at = 0.0
        elif what == b"s":
            self._slot_ms = _earlier(self._slot_ms, at_ms)
        else:
            self._head_ms = _earlier(self._head_ms, at_ms)
        self._stir.notify()

    def look_again(self) -> None:
        """Asks the server anew, whatever is known: the clock may have moved."""
        self._lead_at = 0.0
        self._stir.notify()

    async def keep(self) -> None:
        """For ever: leads if it can, promotes what is due, sleeps until the next head."""
        while True:
            try:
                if time.monotonic() >= self._lead_at:
                    await self._lead()
                await self._promote_due()
                await self._tick_due()
                await self._look_after_if_due()
            except QueueError as error:
                await self._patience.endure(error)
                continue
            self._patience.over()
            await self._stir.wait(max(0.0, self._sleep_s()))

    async def _lead(self) -> None:
        standing = await self._leadership.tick()
        self._lead_at = time.monotonic() + self._renew_every_s
        self._head_ms, self.wake_id, self._slot_ms = standing.head_ms, standing.wake_id, standing.slot_ms
        if standing.leads != self.leads:
            self.leads = standing.leads
            detail = f"epoch {standing.epoch}, led by {standing.leader}"
            token, queue = self._shop.token, self.keys.queue
            self._shop.events.emit(WorkerEvent("promoted" if standing.leads else "demoted", token, queue, detail))

    async def _promote_due(self) -> None:
        while (due_in := self._promoter.due_in(self._head_ms, leads=self.leads)) is not None and due_in <= 0:
            told = await self._promoter.tick()
            self._remember(told)
            if told.moved == 0:
                return

    def _remember(self, told: Promoted) -> None:
        self._head_ms, self.wake_id = told.head_ms, told.wake_id

    async def _tick_due(self) -> None:
        while (due_in := self._promoter.due_in(self._slot_ms, leads=self.leads)) is not None and due_in <= 0:
            former_ms, self._slot_ms = self._slot_ms, await self._beat.tick()
            if self._slot_ms == former_ms:
                return

    async def _look_after_if_due(self) -> None:
        """What one of all instances is to do, the leader does."""
        if not self.leads or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_AFTER_S
        threshold = self._shop.settings.long_queue_threshold
        if threshold and (waiting := await self._register.waiting()) >= threshold:
            event = WorkerEvent("long queue", self._shop.token, self.keys.queue, str(waiting))
            self._shop.events.emit(event)
        if time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + gone_s(self._shop)
            await self._register.prune()

    def _sleep_s(self) -> float:
        until_lead = self._lead_at - time.monotonic()
        heads = (self._promoter.due_in(head_ms, leads=self.leads) for head_ms in (self._head_ms, self._slot_ms))
        return min(until_lead, _LONGEST_SLEEP_S, *(due_in for due_in in heads if due_in is not None))


class Scheduler:
    """The schedules of all queues of one instance, and its ear for news of earlier heads."""

    def __init__(self, shop: Workshop, health: Health) -> None:
        self._shop = shop
        self._health = health
        self.schedules = {keys.queue: QueueSchedule(shop, keys, health) for keys in shop.queues.values()}

    async def hear_news(self) -> None:
        """For ever: everyone hears of an earlier head, and nobody consumes the news."""
        patience = Patience(self._health, "wake")
        line = self._shop.server.line()
        by_stream = {each.keys.wake.encode(): each for each in self.schedules.values()}
        try:
            while True:
                last = [each.wake_id for each in self.schedules.values()]
                streams = [each.keys.wake for each in self.schedules.values()]
                try:
                    heard = await line.ask(
                        "XREAD", "BLOCK", _WAKE_MS, "STREAMS", *streams, *last, deadline_s=_WAKE_DEADLINE_S
                    )
                except QueueError as error:
                    error.kind = "scheduler"
                    await patience.endure(error)
                    continue
                patience.over()
                for stream, entries in heard or ():
                    entry, fields = entries[-1]
                    by_stream[stream].woken(entry.decode(), fields[0], int(fields[1]))
        finally:
            await line.aclose()

    async def run(self) -> None:
        """For ever: keeps every queue's schedule."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hear_news())
            for schedule in self.schedules.values():
                group.create_task(schedule.keep())


def _earlier(known_ms: int | None, at_ms: int) -> int:
    return at_ms if known_ms is None else min(known_ms, at_ms)


def gone_s(shop: Workshop) -> float:
    """How long a worker may be silent before it counts as gone: three leases."""
    return 3 * shop.settings.lease
