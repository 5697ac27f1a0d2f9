"""Delayed messages are promoted on a client's timer that ends exactly when the head is due."""

from __future__ import annotations

import asyncio
import time

from firetime.store.connect import CALL_S
from firetime.store.keys import QueueKeys
from firetime.upkeep.beat import Beat
from firetime.upkeep.lead import Leadership, Standing
from firetime.upkeep.news import NextDue
from firetime.upkeep.promote import Promoter
from firetime.upkeep.register import Register
from firetime.values.errors import BrokerUnavailable, QueueError
from firetime.values.events import Trouble, WorkerEvent
from firetime.worker.workshop import Health, Patience, Stir, Workshop

_LONGEST_S = 5.0
"""Nobody goes longer without asking, whatever the head was and however long the lease (design, section 7)."""

_LONGEST_TURN_S = 60.0
"""Within so long a turn has ended, well or not, with its sleep: several calls, each with a deadline."""

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
        self.head = NextDue(shop.clock)
        self.slot = NextDue(shop.clock)
        self._shop = shop
        self._stir = Stir()
        self._election = Patience(health, f"election of {keys.queue}")
        self._patience = Patience(health, f"scheduler {keys.queue}")
        self._lease_s = settings.leader_lease
        self._leadership = Leadership(shop.server, keys, shop.token, shop.clock, ttl_s=settings.leader_lease)
        self._promoter = Promoter(
            shop.server, keys, shop.token, shop.clock, grace_s=settings.standby_grace, batch=settings.promote_batch
        )
        self._register = Register(shop.server, keys, gone_s=gone_s(shop))
        self._beat = Beat(shop.server, keys, shop.codec, shop.clock)
        self._reign: Standing | None = None
        self._lead_at = 0.0
        self._vacant = False
        self._present = float("-inf")
        self._attended_ms = 0
        self._unreadable: set[str] = set()
        self._look_at = 0.0
        self._prune_at = time.monotonic() + gone_s(shop)

    def heard(self, about: NextDue, entry: str, at_ms: int) -> None:
        """An earlier head or slot has arrived; 0: the leader has resigned."""
        if at_ms == 0:
            about.last_id = entry
            self._vacant, self._lead_at = True, 0.0
        else:
            about.heard(at_ms, entry)
        self._stir.notify()

    async def keep(self) -> None:
        """For ever: leads if it can, promotes what is due, ticks, sleeps until the next head."""
        while True:
            self._patience.turns(_LONGEST_TURN_S)
            try:
                if time.monotonic() >= self._lead_at:
                    await self._stand_for_election()
                await self._promote_if_due()
                await self._tick_if_due()
                await self._look_after_if_due()
            except QueueError as error:
                await self._patience.endure(error)
                continue
            self._patience.over()
            # a backlog moves batch by batch, and in between the lease is renewed and slots are ticked
            if (sleep_s := self._sleep_s()) > 0:
                await self._stir.wait(sleep_s)

    async def _stand_for_election(self) -> None:
        try:
            await self._lead()
        except BrokerUnavailable:
            raise
        except QueueError as error:
            # leading is an optimisation: without it what is overdue is promoted and ticked all the same
            self._lead_at = time.monotonic() + self._election.pause_s(error)
            await self._promote()
            await self._tick()
        else:
            self._election.over()

    async def _lead(self) -> None:
        self._vacant = False
        self.head.asking()
        self.slot.asking()
        standing = await self._leadership.tick()
        self.head.answered(standing.head_ms, standing.wake_id)
        self.slot.answered(standing.slot_ms, standing.slots_wake_id)
        now = time.monotonic()
        self._lead_at = 0.0 if self._vacant else now + min(self._lease_s / 3, standing.left_s + 0.001, _LONGEST_S)
        if now - self._present > self._lease_s:
            self._attended_ms = self._shop.clock.now_ms()
        self._present = now
        if standing.leads != self.leads:
            self.leads = standing.leads
            # of a queue with shards only its home: who leads the queue is one question with one answer
            if self.keys.is_home:
                self._tell(standing)
        if self._reign is not None and standing.forgets(self._reign):
            await self._shop.restore_schedules(self.keys.queue)
        self._reign = standing

    def _tell(self, standing: Standing) -> None:
        detail = f"epoch {standing.epoch}, led by {standing.leader}"
        token, queue = self._shop.token, self.keys.queue
        self._shop.events.emit(WorkerEvent("promoted" if standing.leads else "demoted", token, queue, detail))

    async def _promote_if_due(self) -> None:
        if self.head.is_due(self._grace_s):
            await self._promote()

    async def _promote(self) -> None:
        self.head.asking()
        told = await self._promoter.tick()
        self.head.answered(told.head_ms, told.wake_id)
        self.head.acted(in_vain=told.moved == 0)
        if self.leads and not told.leads:
            # the lease is another's by now, or nobody's: it went while this process was frozen, or was deleted
            self._lead_at = 0.0

    async def _tick_if_due(self) -> None:
        if self.slot.is_due(self._grace_s):
            await self._tick()

    async def _tick(self) -> None:
        slot_ms = self.slot.at_ms
        self.slot.asking()
        beaten = await self._beat.tick(attended_ms=self._attended())
        self.slot.answered(beaten.next_ms)
        self.slot.acted(in_vain=beaten.sent == 0 and beaten.next_ms == slot_ms)
        for error in beaten.unreadable:
            if str(error) not in self._unreadable:
                self._unreadable.add(str(error))
                error.kind = "scheduler"
                self._shop.events.emit(Trouble(error))

    def _attended(self) -> int:
        """Since when, on the server's clock, this instance has looked after the queue; silent for a lease, it was away."""
        away = time.monotonic() - self._present > self._lease_s
        return self._shop.clock.now_ms() if away else self._attended_ms

    async def _look_after_if_due(self) -> None:
        """What one of all instances is to do, the leader does."""
        if not self.leads or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_AFTER_S
        threshold = self._shop.settings.long_queue_threshold
        if threshold and self.keys.is_home and (waiting := await self._waiting()) >= threshold:
            event = WorkerEvent("long queue", self._shop.token, self.keys.queue, str(waiting))
            self._shop.events.emit(event)
        if time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + gone_s(self._shop)
            await self._register.prune()

    async def _waiting(self) -> int:
        """How many messages stand in the queue, in whichever shard."""
        every = [keys for keys in self._shop.queues.values() if keys.logical == self.keys.queue]
        return sum([await Register(self._shop.server, keys, gone_s=gone_s(self._shop)).waiting() for keys in every])

    @property
    def _grace_s(self) -> float:
        """How long after its time this instance acts: the leader at once, anyone else when it is overdue."""
        return 0.0 if self.leads else self._shop.settings.standby_grace

    def _sleep_s(self) -> float:
        until_lead = self._lead_at - time.monotonic()
        dues = (due.due_in(self._grace_s) for due in (self.head, self.slot))
        return min([until_lead, *(due_in for due_in in dues if due_in is not None)])


class Scheduler:
    """The schedules of all queues of one instance, and its ear for news of earlier heads."""

    def __init__(self, shop: Workshop, health: Health) -> None:
        self._shop = shop
        self._health = health
        self.schedules = {keys.queue: QueueSchedule(shop, keys, health) for keys in shop.queues.values()}

    async def hear_news(self) -> None:
        """For ever: everyone hears of an earlier head or slot, and nobody consumes the news."""
        async with asyncio.TaskGroup() as hearing:
            for group in self._shop.server.sharing_a_read(list(self.schedules.values())):
                hearing.create_task(self._hear(group))

    async def _hear(self, schedules: tuple[QueueSchedule, ...]) -> None:
        patience = Patience(self._health, f"wake of {', '.join(schedule.keys.queue for schedule in schedules)}")
        streams: dict[str, tuple[QueueSchedule, NextDue]] = {}
        for each in schedules:
            streams |= {each.keys.wake: (each, each.head), each.keys.schedules_wake: (each, each.slot)}
        line = self._shop.server.line(schedules[0].keys.wake)
        wake_ms = _WAKE_MS
        try:
            while True:
                patience.turns(_WAKE_DEADLINE_S + CALL_S)
                last = [about.last_id for _, about in streams.values()]
                words: list[str | int] = ["XREAD", "BLOCK", wake_ms, "STREAMS", *streams, *last]
                try:
                    heard = await line.ask(*words, deadline_s=_WAKE_DEADLINE_S)
                    wake_ms = _WAKE_MS
                except QueueError as error:
                    # the next answer comes at once, so that nobody waits for good news
                    wake_ms = 1
                    error.kind = "scheduler"
                    await patience.endure(error)
                    continue
                patience.over()
                for stream, entries in heard or ():
                    schedule, about = streams[stream.decode()]
                    for entry, fields in entries:
                        schedule.heard(about, entry.decode(), _said_ms(fields))
        finally:
            await line.aclose()

    async def run(self) -> None:
        """For ever: keeps every queue's schedule."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.hear_news())
            for schedule in self.schedules.values():
                group.create_task(schedule.keep())


def _said_ms(fields: list[bytes]) -> int:
    """When the news says that something is due; 0, which makes everyone ask, for news that somebody else wrote."""
    try:
        return int(fields[1])
    except (IndexError, ValueError):
        return 0


def gone_s(shop: Workshop) -> float:
    """How long a worker may be silent before it counts as gone: three leases."""
    return 3 * shop.settings.lease
