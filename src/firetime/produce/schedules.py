"""Recurring schedules are declared in code or at run time, paused, resumed, triggered and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from firetime.produce.desk import Desk
from firetime.produce.draft import draft
from firetime.produce.result import Handle
from firetime.produce.task import Task, handle_for
from firetime.values.definition import Definition
from firetime.values.durations import Duration
from firetime.values.errors import InvalidOption, MessageNotFound
from firetime.values.ids import new_id
from firetime.values.message import Message, Parcel
from firetime.values.options import PLAIN
from firetime.values.schedule import Misfire, Overlap, Schedule, fingerprint, first_slot, schedule

_decoder = msgspec.json.Decoder(Schedule)


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands now."""

    name: str
    queue: str
    task: str
    cron: str | None
    every_s: float | None
    tz: str
    paused: bool
    next_ms: int | None
    """Its next slot; None while it is paused, and when it is over."""
    last_id: str | None
    """The id of its latest run."""
    misfire: str
    overlap: str


class Declared(msgspec.Struct, frozen=True):
    """A schedule that code declares, to be written when the runner starts."""

    queue: str
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
        ``start``/``until``: aware datetimes between which it has slots. ``misfire``: what happens to slots later than
        ``grace`` seconds. ``jitter``: up to so many seconds are added to each fire-time. ``overlap="skip"``: no run
        while the last one still lives. Raises ``InvalidOption`` naming what cannot be meant.
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
        return Declared(parcel.queue, schedule(name, parcel.record, **when))

    async def put(self, declared: Declared) -> str:
        """Writes it unless it is there already; another definition of the name is replaced, a pause kept."""
        made, keys = declared.schedule, self._desk.keys(declared.queue)
        next_ms = first_slot(made, await self._now_ms())
        arguments: dict[str, str | bytes | int] = {
            "name": made.name,
            "fingerprint": fingerprint(made),
            "definition": msgspec.json.encode(made),
            "next_ms": -1 if next_ms is None else next_ms,
        }
        said: bytes = await (await self._desk.server()).run("schedule_put", keys, arguments)
        return said.decode()

    async def pause(self, name: str, *, queue: str = "default") -> None:
        """No slots until ``resume``; those of the meantime are not made up for. Raises ``MessageNotFound``."""
        await self._set_pause(name, queue, pause=True)

    async def resume(self, name: str, *, queue: str = "default") -> None:
        """Lets it go on with its next slot from now. Raises ``MessageNotFound``."""
        await self._set_pause(name, queue, pause=False)

    async def remove(self, name: str, *, queue: str = "default") -> None:
        """Ends it; runs that were sent go on. One that code declares is written anew at the next start.

        Raises ``MessageNotFound``.
        """
        server = await self._desk.server()
        if not await server.run("schedule_remove", self._desk.keys(queue), {"name": name}):
            raise MessageNotFound(name, f"among the schedules of {queue!r}")

    async def trigger(self, name: str, *, queue: str = "default") -> Handle[Any]:
        """Sends one run now, beside its slots. Raises ``MessageNotFound``."""
        made, _, _ = await self._kept(name, queue)
        message = self._desk.house.codec.decode(made.record)
        parcel = Parcel(queue=queue, task_id=f"{name}@{new_id()}", message=message, record=made.record)
        answers = await self._desk.send(queue, (parcel,))
        return handle_for(self._desk, parcel, answers.get(0), self._tasks.get(message.task, message.task))

    async def list(self, *, queue: str = "default") -> list[ScheduleInfo]:
        """All of a queue, by name."""
        keys, server = self._desk.keys(queue), await self._desk.server()
        told = await server.ask("HGETALL", keys.schedules)
        found: list[ScheduleInfo] = []
        for at in range(0, len(told), 2):
            made, paused, next_ms = await self._read(told[at], told[at + 1], queue)
            last = await server.ask("HGET", keys.schedules_last, told[at])
            found.append(self._info(made, queue, paused=paused, next_ms=next_ms, last=last))
        return sorted(found, key=lambda info: info.name)

    def _info(
        self, made: Schedule, queue: str, *, paused: bool, next_ms: int | None, last: bytes | None
    ) -> ScheduleInfo:
        message: Message = self._desk.house.codec.decode(made.record)
        return ScheduleInfo(
            name=made.name,
            queue=queue,
            task=message.task,
            cron=made.cron,
            every_s=None if made.every_ms is None else made.every_ms / 1000,
            tz=made.tz,
            paused=paused,
            next_ms=next_ms,
            last_id=None if last is None else last.decode(),
            misfire=made.misfire,
            overlap=made.overlap,
        )

    async def _set_pause(self, name: str, queue: str, *, pause: bool) -> None:
        made, _, _ = await self._kept(name, queue)
        next_ms = None if pause else first_slot(made, await self._now_ms())
        arguments: dict[str, str | bytes | int] = {
            "name": name,
            "fingerprint": fingerprint(made),
            "pause": "1" if pause else "0",
            "next_ms": -1 if next_ms is None else next_ms,
        }
        await (await self._desk.server()).run("schedule_pause", self._desk.keys(queue), arguments)

    async def _kept(self, name: str, queue: str) -> tuple[Schedule, bool, int | None]:
        kept = await (await self._desk.server()).ask("HGET", self._desk.keys(queue).schedules, name)
        if kept is None:
            raise MessageNotFound(name, f"among the schedules of {queue!r}")
        return await self._read(name.encode(), kept, queue)

    async def _read(self, name: bytes, kept: bytes, queue: str) -> tuple[Schedule, bool, int | None]:
        _fingerprint, paused, definition = kept.split(b" ", 2)
        slot = await (await self._desk.server()).ask("ZSCORE", self._desk.keys(queue).schedules_due, name)
        try:
            made = _decoder.decode(definition)
        except msgspec.DecodeError as error:
            raise InvalidOption("schedule", name.decode(), f"a definition that can be read ({error})") from None
        return made, paused == b"1", None if slot is None else int(float(slot))

    async def _now_ms(self) -> int:
        server = await self._desk.server()
        told, micros = await server.ask("TIME")
        return (int(told) * 1_000_000 + int(micros) + server.shift.us) // 1000
