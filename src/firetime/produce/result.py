"""A handle is what a dispatch gives: with it a message is looked at, waited for and called back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

import msgspec

from firetime.produce import control
from firetime.produce.control import Look
from firetime.produce.desk import Desk
from firetime.produce.whereabouts import first_that
from firetime.store.keys import QueueKeys
from firetime.values.durations import Duration, delay_s, epoch_ms, seconds
from firetime.values.errors import (
    BrokerUnavailable,
    InvalidTaskPayload,
    MessageNotFound,
    ResultNotReady,
    TaskCancelled,
    TaskCrashed,
    TaskExecutionError,
    UntrustedMessage,
)
from firetime.values.message import UNREADABLE
from firetime.values.state import newest
from firetime.values.states import CancelAnswer, RescheduleAnswer, Status

R_co = TypeVar("R_co", covariant=True)
_LOOK_AGAIN_S = 0.1
_ENDED = {Status.DONE, Status.DEAD, Status.CANCELLED, Status.EXPIRED, Status.UNKNOWN}


class Handle(Generic[R_co]):
    """One dispatched message. Make one from an id alone with ``runner.handle(task_id)``."""

    __slots__ = ("_decode", "_desk", "_place", "queue", "task_id")

    def __init__(
        self, desk: Desk, queue: str, task_id: str, decode: Callable[[bytes], Any] = msgspec.json.decode
    ) -> None:
        self.queue = desk.queue_of.get(queue, queue)
        self.task_id = task_id
        self._place = None if self.queue == queue else queue
        """The one shard that it is in, once it is known."""
        self._desk = desk
        self._decode = decode

    def __repr__(self) -> str:
        return f"Handle({self.task_id!r}, queue={self.queue!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (self.queue, self.task_id) == (other.queue, other.task_id)

    def __hash__(self) -> int:
        return hash((self.queue, self.task_id))

    async def look(self) -> Look:
        """Everything the server knows of the message now."""
        server, codec = await self._desk.server(), self._desk.house.codec
        keys, found = await first_that(
            self._places,
            lambda keys: control.look(server, keys, self.task_id, codec),
            lambda look: look.status is not Status.UNKNOWN,
        )
        if found.status is not Status.UNKNOWN:
            self._place = keys.queue
        return found

    async def status(self) -> Status:
        """Where the message is. A finished task without ``result_ttl`` leaves nothing behind: ``unknown``."""
        return (await self.look()).status

    async def cancel(self) -> CancelAnswer:
        """Takes the message back if it still waits; asks it to stop if it runs.

        A running coroutine is cancelled at once; a thread runs to its end but is not retried. Tells truthfully which.
        """
        keys, house = await self._keys(), self._desk.house
        server = await self._desk.server()
        return await control.cancel(server, keys, self.task_id, house.codec, remember_s=house.remember_s)

    async def reschedule(self, when: Duration | datetime) -> RescheduleAnswer:
        """Moves a delayed message to another fire-time: seconds or a timedelta from now, or an aware datetime."""
        if isinstance(when, datetime):
            kind, time = "at", epoch_ms("when", when)
        else:
            kind, time = "in", round(delay_s("when", when) * 1_000_000)
        keys, codec = await self._keys(), self._desk.house.codec
        return await control.reschedule(await self._desk.server(), keys, self.task_id, codec, kind=kind, time=time)

    async def run_now(self) -> RescheduleAnswer:
        """Makes a delayed message ready at once."""
        return await self.reschedule(0)

    async def result(self, timeout: Duration | None = None) -> R_co:
        """The task's value, as soon as it is there; it must keep one (``result_ttl``).

        ``timeout`` is in seconds (default: wait as long as it takes). Raises ``TaskExecutionError`` or ``TaskCrashed``
        for a dead letter, ``TaskCancelled``, ``MessageNotFound`` for an id nobody knows, and ``ResultNotReady`` when
        time is over, the value has expired, or the task keeps none.
        """
        timeout_s = None if timeout is None else seconds("timeout", timeout)
        seen = Status.UNKNOWN
        try:
            async with asyncio.timeout(timeout_s):
                watch = (await self._desk.counter()).watch
                async with watch.endings((await self._keys()).ended_channel, self.task_id) as news:
                    while True:
                        watch.check_open()
                        news.clear()
                        found = await self._look_patiently()
                        seen = found.status
                        if seen in _ENDED or (found.message is not None and found.message.result_ms == 0):
                            return self._value(found)
                        await news.wait()
        except TimeoutError as error:
            if isinstance(error, ResultNotReady):
                raise
            raise ResultNotReady(self.task_id, seen, f"waited {timeout_s} s") from None

    def status_sync(self) -> Status:
        """``status`` from code without an event loop."""
        return self._desk.portal.call(self.status)

    def cancel_sync(self) -> CancelAnswer:
        """``cancel`` from code without an event loop."""
        return self._desk.portal.call(self.cancel)

    def reschedule_sync(self, when: Duration | datetime) -> RescheduleAnswer:
        """``reschedule`` from code without an event loop."""
        return self._desk.portal.call(lambda: self.reschedule(when))

    def run_now_sync(self) -> RescheduleAnswer:
        """``run_now`` from code without an event loop."""
        return self._desk.portal.call(self.run_now)

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        """``result`` from code without an event loop."""

        def ask() -> Awaitable[R_co]:
            return self.result(timeout)

        return self._desk.portal.call(ask)

    async def _look_patiently(self) -> Look:
        """Looks, and bears an outage of the server for as long as a dispatch would."""
        clock = asyncio.get_running_loop().time
        expires = clock() + self._desk.deadline_s
        while True:
            try:
                return await self.look()
            except BrokerUnavailable:
                if clock() >= expires:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _decoded(self, value: bytes) -> Any:
        try:
            return self._decode(value)
        except UNREADABLE as error:
            raise InvalidTaskPayload("", f"the result of {self.task_id!r} cannot be read: {error}", raw=value) from None

    async def _keys(self) -> QueueKeys:
        """The keys of the one shard that the message is in; where it is in none, of the likeliest."""
        if len(self._places) > 1:
            await self._look_patiently()
        return self._places[0]

    @property
    def _places(self) -> list[QueueKeys]:
        """Where it may be, the likeliest first."""
        desk, place = self._desk, self._place
        return desk.keys_for(self.queue, self.task_id) if place is None else [desk.keys(place)]

    def _value(self, found: Look) -> R_co:
        match found.status:
            case Status.DONE if found.value_problem:
                raise UntrustedMessage("", f"the result of {self.task_id!r}: {found.value_problem}", raw=found.value)
            case Status.DONE if found.value is not None:
                return cast(R_co, self._decoded(found.value))
            case Status.DEAD:
                raise _failure(found)
            case Status.CANCELLED:
                raise TaskCancelled(self.task_id)
            case Status.UNKNOWN:
                raise MessageNotFound(self.task_id, "here: it never was, or it is done and kept no result (result_ttl)")
            case Status.EXPIRED:
                raise ResultNotReady(self.task_id, found.status, "its result_ttl is over")
            case _:
                raise ResultNotReady(self.task_id, found.status, "it keeps no result: set result_ttl to have one")


def _failure(found: Look) -> Exception:
    task = found.message.task if found.message is not None else found.task_id
    if found.state.reason == "crashed":
        return TaskCrashed(task, found.crashes)
    latest = newest(found.state)
    if latest is None:
        return TaskExecutionError(task, found.state.reason or "dead", "no error was noted")
    return TaskExecutionError(task, latest.type, latest.text, latest.traceback)
