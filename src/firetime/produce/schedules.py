"""Recurring schedules are declared in code or at run time, paused, resumed, triggered and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from firetime.produce.desk import Desk
from firetime.produce.draft import bound_to, draft
from firetime.produce.moving import Former, keeps_its_slot, taken_from
from firetime.produce.result import Handle
from firetime.produce.task import Task, handle_for
from firetime.produce.whereabouts import first_that
from firetime.values.definition import Definition
from firetime.values.durations import Duration
from firetime.values.errors import InvalidOption, InvalidTaskPayload, MessageNotFound
from firetime.values.ids import as_text, new_id
from firetime.values.message import Parcel
from firetime.values.options import PLAIN
from firetime.values.schedule import (
    Misfire,
    Overlap,
    Schedule,
    fingerprint,
    first_slot,
    kept_fingerprint,
    read_kept,
    schedule,
)


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands now."""

    name: str
    queue: str
    task: str = ""
    cron: str | None = None
    every_s: float | None = None
    tz: str = "UTC"
    start_ms: int | None = None
    until_ms: int | None = None
    paused: bool = False
    next_ms: int | None = None
    """Its next slot; None while it is paused, and when it is over."""
    last_id: str | None = None
    """The id of its latest run: ``name@slot``."""
    misfire: str = "once"
    jitter_s: float = 0.0
    overlap: str = "run"
    problem: str = ""
    """Why this release cannot read it; it is left to the one that wrote it."""


class Declared(msgspec.Struct, frozen=True):
    """A schedule that code declares, to be written when the runner starts."""

    queue: str
    """Of a spread queue its home; the shard of the unique key where it has one."""
    schedule: Schedule


class Schedules:
    """The recurring schedules of a runner's queues: ``runner.schedules``."""

    def __init__(self, desk: Desk, tasks: Mapping[str, Definition]) -> None:
        self._desk = desk
        self._tasks = tasks

    async def add(
        self,
        name: str,
        task: Task[..., Any] | str,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        start: datetime | None = None,
        until: datetime | None = None,
        misfire: Misfire = "once",
        misfire_limit: int = 100,
        grace: Duration = 1.0,
        jitter: Duration = 0.0,
        overlap: Overlap = "run",
    ) -> str:
        """Writes a schedule; it is kept until removed, whoever runs. Returns "added", "changed" or "same".

        ``cron`` (five fields, or six with seconds first, in the time zone ``tz``) or ``every`` (seconds or timedelta).
        ``start``/``until``: aware datetimes between which it has slots. ``misfire``: what becomes of slots that nobody
        was there to tick, and that are more than ``grace`` seconds past: "skip" them, run the latest "once" (default),
        or "all" of the latest ``misfire_limit``. ``jitter``: up to so many seconds are added to each fire-time.
        ``overlap="skip"``: no run while the last one lives, be it that it waits to be tried again.
        Raises ``InvalidOption`` naming what cannot be meant.
        """
        definition = task.definition if isinstance(task, Task) else self._tasks.get(task, task)
        declared = self.declare(
            name,
            definition,
            tuple(args),
            kwargs or {},
            cron=cron,
            every=every,
            tz=tz,
            start=start,
            until=until,
            misfire=misfire,
            misfire_limit=misfire_limit,
            grace=grace,
            jitter=jitter,
            overlap=overlap,
        )
        return await self.put(declared)

    def declare(
        self, name: str, task: Definition | str, args: tuple[Any, ...], kwargs: Mapping[str, Any], **when: Any
    ) -> Declared:
        """A checked schedule, not yet written."""
        parcel = draft(task, args, kwargs, PLAIN, self._desk.house)
        # with a unique key it must stand where every other message with that key goes; else where it need never move
        where = self._desk.shards.logical(parcel.queue) if parcel.message.unique_key is None else parcel.queue
        record = self._desk.house.codec.encode(parcel.message, where, name, "schedule")
        return Declared(where, schedule(name, record, **when))

    async def put(self, declared: Declared, *, only_missing: bool = False) -> str:
        """Writes it unless it is there already; another definition of the name is replaced, a pause kept.

        The next slot stays as it is where the times are the same, so that a deploy skips none that is due.
        """
        made, queue = declared.schedule, declared.queue
        former = None if only_missing else await self._taken_along(made.name, queue)
        while True:
            stored = None if only_missing else await self._stored(made.name, queue)
            said = await self._write(made, queue, stored, former)
            if said != "again":
                break
            if only_missing:
                return "same"
        if former is not None and said == "added" and former.paused:
            await self._pause(made.name, queue)
        return said

    async def pause(self, name: str, *, queue: str = "default") -> None:
        """No slots until ``resume``; those of the meantime are not made up for. Raises ``MessageNotFound``."""
        await self._pause(name, await self._place(name, queue))

    async def resume(self, name: str, *, queue: str = "default") -> None:
        """Lets it go on with its next slot from now; one that is not paused stays as it is. Raises ``MessageNotFound``."""
        queue = await self._place(name, queue)
        while True:
            stored = await self._existing(name, queue)
            next_ms = first_slot(read_kept(name, stored).schedule, await self._now_ms())
            if await self._set_pause(name, queue, stored, next_ms=-1 if next_ms is None else next_ms):
                return

    async def remove(self, name: str, *, queue: str = "default") -> None:
        """Ends it; runs that were sent go on. One that code declares is written anew at the next start.

        Raises ``MessageNotFound``.
        """
        server = await self._desk.server()
        keys = self._desk.keys(await self._place(name, queue))
        if not await server.run("schedule_remove", keys, {"name": name}):
            raise _not_found(name, queue)

    async def trigger(self, name: str, *, queue: str = "default") -> Handle[Any]:
        """Sends one run now, beside its slots and even while it is paused; ``overlap`` does not count it.

        Raises ``MessageNotFound``, and what any dispatch of the task raises.
        """
        queue = await self._place(name, queue)
        made = read_kept(name, await self._existing(name, queue)).schedule
        codec, task_id = self._desk.house.codec, f"{name}@{new_id()}"
        message = codec.decode(made.record, queue, name, "schedule")
        task = self._tasks.get(message.task, message.task)
        on_conflict = "raise" if isinstance(task, str) else task.options.on_conflict
        parcel = Parcel(
            queue=queue,
            task_id=task_id,
            message=message,
            record=codec.encode(message, queue, bound_to(message, task_id, on_conflict)),
            on_conflict=on_conflict,
        )
        answers = await self._desk.send(queue, (parcel,))
        return handle_for(self._desk, parcel, answers.get(0), task)

    async def list(self, *, queue: str = "default") -> list[ScheduleInfo]:
        """All of a queue, by name."""
        found: list[ScheduleInfo] = []
        server = await self._desk.server()
        for keys in await self._desk.all_keys(queue):
            stored = _pairs(await server.ask("HGETALL", keys.schedules))
            due = _pairs(await server.ask("ZRANGE", keys.schedules_due, 0, -1, "WITHSCORES"))
            last = _pairs(await server.ask("HGETALL", keys.schedules_last))
            found += [self._info(name, queue, stored[name], due.get(name), last.get(name)) for name in stored]
        return sorted(found, key=lambda each: each.name)

    def _info(self, name: str, queue: str, stored: bytes, due: bytes | None, last: bytes | None) -> ScheduleInfo:
        next_ms = None if due is None else int(float(due))
        last_id = None if last is None else last.decode()
        try:
            kept = read_kept(name, stored)
            message = self._desk.house.codec.decode(kept.schedule.record, queue, name, "schedule")
        except (InvalidOption, InvalidTaskPayload) as error:
            return ScheduleInfo(name=name, queue=queue, next_ms=next_ms, last_id=last_id, problem=str(error))
        made = kept.schedule
        return ScheduleInfo(
            name=name,
            queue=queue,
            task=message.task,
            cron=made.cron,
            every_s=None if made.every_ms is None else made.every_ms / 1000,
            tz=made.tz,
            start_ms=made.start_ms,
            until_ms=made.until_ms,
            paused=kept.paused,
            next_ms=next_ms,
            last_id=last_id,
            misfire=made.misfire,
            jitter_s=made.jitter_ms / 1000,
            overlap=made.overlap,
        )

    async def _write(self, made: Schedule, queue: str, stored: bytes | None, former: Former | None) -> str:
        made = self._sealed_as_kept(made, queue, stored)
        next_ms = first_slot(made, await self._now_ms())
        if former is not None and (slot_ms := former.slot_for(made)) is not None:
            next_ms = slot_ms
        arguments: dict[str, str | bytes | int] = {
            "name": made.name,
            "fingerprint": fingerprint(made),
            "definition": msgspec.json.encode(made),
            "next_ms": -1 if next_ms is None else next_ms,
            "expected": kept_fingerprint(stored),
            "keep": int(keeps_its_slot(made, stored)),
        }
        said: bytes = await (await self._desk.server()).run("schedule_put", self._desk.keys(queue), arguments)
        return said.decode()

    async def _place(self, name: str, queue: str) -> str:
        """The shard that a schedule stands in; the queue where it has none, or where nobody knows the schedule."""
        if len(places := await self._desk.all_keys(queue)) == 1:
            return queue
        keys, _ = await first_that(
            places, lambda keys: self._stored(name, keys.queue), lambda stored: stored is not None
        )
        return keys.queue

    async def _taken_along(self, name: str, queue: str) -> Former | None:
        """A spread queue's schedule out of every other shard than its own."""
        shards = self._desk.shards
        every = await self._desk.all_keys(shards.logical(queue)) if shards.counts else []
        return await taken_from(await self._desk.server(), [keys for keys in every if keys.queue != queue], name)

    async def _pause(self, name: str, queue: str) -> None:
        while not await self._set_pause(name, queue, await self._existing(name, queue), next_ms=None):
            continue

    def _sealed_as_kept(self, made: Schedule, queue: str, stored: bytes | None) -> Schedule:
        """The record as it is kept where both say the same: encrypted anew it would look like another definition."""
        codec = self._desk.house.codec
        try:
            kept = read_kept(made.name, stored or b"").schedule.record
            if codec.is_kept_as_well_as(kept):
                messages = [codec.decode(record, queue, made.name, "schedule") for record in (kept, made.record)]
                return msgspec.structs.replace(made, record=kept) if messages[0] == messages[1] else made
        except (InvalidOption, InvalidTaskPayload):
            pass
        return made

    async def _set_pause(self, name: str, queue: str, stored: bytes, *, next_ms: int | None) -> bool:
        """False where another definition has been written meanwhile. Without a next slot it is paused."""
        arguments: dict[str, str | bytes | int] = {
            "name": name,
            "fingerprint": kept_fingerprint(stored),
            "pause": int(next_ms is None),
            "next_ms": -1 if next_ms is None else next_ms,
        }
        return bool(await (await self._desk.server()).run("schedule_pause", self._desk.keys(queue), arguments))

    async def _existing(self, name: str, queue: str) -> bytes:
        stored = await self._stored(name, queue)
        if stored is None:
            raise _not_found(name, self._desk.shards.logical(queue))
        return stored

    async def _stored(self, name: str, queue: str) -> bytes | None:
        found: bytes | None = await (await self._desk.server()).ask("HGET", self._desk.keys(queue).schedules, name)
        return found

    async def _now_ms(self) -> int:
        return await (await self._desk.server()).now_us() // 1000


def _not_found(name: str, queue: str) -> MessageNotFound:
    return MessageNotFound(name, f"among the schedules of {queue!r}")


def _pairs(flat: Sequence[bytes]) -> dict[str, bytes]:
    return {as_text(flat[at]): flat[at + 1] for at in range(0, len(flat), 2)}
