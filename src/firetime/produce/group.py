"""A group goes out, and what follows it is sent by whoever ends the last of its members."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from firetime.produce.desk import Desk
from firetime.produce.gather import Gathered, gather
from firetime.produce.registry import Registry
from firetime.produce.result import Handle
from firetime.produce.send import read_refusals
from firetime.produce.task import batches, handle_for
from firetime.store.keys import QueueKeys
from firetime.store.scripts import Argument
from firetime.values.durations import Duration, seconds
from firetime.values.errors import BrokerRefused, BrokerUnavailable, FiretimeError, QueueFull, TaskAlreadyDispatched
from firetime.values.message import Parcel

GROUP_TTL_S = 7 * 24 * 3600.0
"""A week: long enough for a dead letter to be found on a Monday, mended and replayed."""


class Group:
    """Messages that run beside each other, and one that follows when all of them are done: ``runner.group(...)``."""

    def __init__(
        self, desk: Desk, group_id: str, keys: QueueKeys, members: list[Handle[Any]], then: Handle[Any]
    ) -> None:
        self.group_id = group_id
        self.queue = keys.logical
        self.members = members
        """Their handles, in the order given."""
        self.then = then
        """The callback's handle; ``unknown`` until it is sent."""
        self._desk = desk
        self._key = keys.group(group_id)

    def __repr__(self) -> str:
        return f"Group({self.group_id!r}, queue={self.queue!r}, {len(self.members)} members)"

    async def pending(self) -> int | None:
        """How many members are not done; dead letters are not.

        None when nothing waits any more: the callback was sent, or the group was given up or its time is over.
        """
        count = int(await (await self._desk.server()).ask("HLEN", self._key))
        return count - 1 if count else None

    async def give_up(self) -> bool:
        """Forgets the callback: it will not run. The members go on; cancel those by their handles.

        Returns whether the group still waited; False: the callback was sent before, or there is no group any more.
        """
        return int(await (await self._desk.server()).ask("DEL", self._key)) == 1

    def pending_sync(self) -> int | None:
        """``pending`` from code without an event loop."""
        return self._desk.portal.call(self.pending)

    def give_up_sync(self) -> bool:
        """``give_up`` from code without an event loop."""
        return self._desk.portal.call(self.give_up)


class Groups(Registry):
    """What a runner has of groups."""

    async def group(self, members: Iterable[Parcel], *, then: Parcel, ttl: Duration = GROUP_TTL_S) -> Group:
        """Sends messages (``task.message(...)``), and ``then`` as soon as all of them are done: once, whoever ran twice.

        No result is needed. A member that fails is waited for through its retries, and as a dead letter until it is
        replayed and done. A member that is cancelled or purged ends the group without its callback, and so does ``ttl``
        (seconds or a timedelta since it was sent, default 7 days). Without members the callback is sent at once.

        All go to one queue, and in it to one shard, or none does: ``InvalidOption``, ``InvalidTaskPayload``,
        ``TaskAlreadyDispatched`` (whatever ``on_conflict`` says), ``QueueFull``, ``BrokerUnavailable``. More than 500
        members, or 1 MiB, go in several calls: where a later one is refused, those of the earlier ones run, and the
        group is given up.
        """
        ttl_s = seconds("ttl", ttl, least=1.0)
        group = gather(members, then, house=self.desk.house, shards=self.desk.shards)
        await _send(self.desk, group, round(ttl_s * 1000))
        return self._group(group)

    def group_sync(self, members: Iterable[Parcel], *, then: Parcel, ttl: Duration = GROUP_TTL_S) -> Group:
        """``group`` from code without an event loop."""
        given = list(members)
        return self.desk.portal.call(lambda: self.group(given, then=then, ttl=ttl))

    def _group(self, group: Gathered) -> Group:
        def handle(parcel: Parcel) -> Handle[Any]:
            name = parcel.message.task
            return handle_for(self.desk, parcel, None, self.tasks.get(name, name))

        keys = self.desk.keys(group.queue)
        return Group(self.desk, group.group_id, keys, [handle(each) for each in group.members], handle(group.callback))


async def _send(desk: Desk, group: Gathered, ttl_ms: int) -> None:
    members = list(group.members)
    calls = [[members[position] for position in positions] for positions in batches(members)] or [[]]
    for number, batch in enumerate(calls, start=1):
        arguments: dict[str, Argument] = {
            "max_length": desk.room(group.queue),
            "ttl_ms": ttl_ms,
            "begins": "1" if number == 1 else "",
            "callback": _follows(group.callback) if number == len(calls) else b"",
        }
        try:
            await _send_batch(desk, group, batch, arguments)
        except (QueueFull, TaskAlreadyDispatched):
            # should that fail, the group's ttl gives it up: without its last call nothing follows it
            with suppress(BrokerUnavailable):
                await (await desk.server()).ask("DEL", desk.keys(group.queue).group(group.group_id))
            raise


async def _send_batch(desk: Desk, group: Gathered, batch: Sequence[Parcel], arguments: dict[str, Argument]) -> None:
    keys = desk.keys(group.queue)
    calls = (await desk.counter()).calls(group.queue)
    rest = [word for parcel in batch for word in _words(parcel)]
    ended_keys = [keys.ended(parcel.task_id) for parcel in batch if parcel.explicit_id]
    expires = asyncio.get_running_loop().time() + desk.deadline_s
    try:
        flat = await calls.call(
            "group", arguments, rest, expires=expires, more_keys=ended_keys, group=keys.group(group.group_id)
        )
    except QueueFull as error:
        raise QueueFull(keys.logical, error.reason) from None
    for refusal in read_refusals(flat).values():
        raise _error(keys, refusal.what, refusal.holder)


def _error(keys: QueueKeys, what: str, task_id: str) -> FiretimeError:
    if what == "exists":
        return TaskAlreadyDispatched(task_id)
    if what == "full":
        return QueueFull(keys.logical, "the group would pass max_length messages")
    return BrokerRefused("the group's ttl was over before all of its members were sent")


def _follows(callback: Parcel) -> bytes:
    return f"{callback.message.lane}{callback.task_id} ".encode() + callback.record


def _words(parcel: Parcel) -> tuple[Argument, ...]:
    kind, time = ("at", parcel.at_ms) if parcel.at_ms is not None else ("in", parcel.delay_us)
    when = (kind, time) if parcel.at_ms is not None or parcel.delay_us > 0 else ("", 0)
    return parcel.task_id, parcel.record, parcel.message.lane, *when, "1" if parcel.explicit_id else ""
