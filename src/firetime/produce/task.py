"""A task is called like the function it is made of, or dispatched: now, after a delay, or for a time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from firetime.produce.blocking import refuse_where_a_loop_runs
from firetime.produce.desk import Desk
from firetime.produce.draft import bound_to, draft
from firetime.produce.result import Handle
from firetime.produce.send import MOST_BYTES, MOST_MESSAGES, Refusal
from firetime.values.codec import Guarded
from firetime.values.definition import Definition
from firetime.values.durations import Duration, delay_s, epoch_ms
from firetime.values.errors import FiretimeError, QueueFull, TaskAlreadyDispatched
from firetime.values.message import Parcel
from firetime.values.options import PLAIN, DispatchOptions, OnConflict, UniqueFor, dispatch_options
from firetime.values.shards import renewed
from firetime.values.states import Priority

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Dispatcher(Generic[P, R]):
    """A task with the options of one dispatch: what ``task.options(...)`` gives."""

    def __init__(self, desk: Desk, task: Definition | str, options: DispatchOptions) -> None:
        self._desk = desk
        self._task = task
        self._options = options

    def message(self, /, *args: P.args, **kwargs: P.kwargs) -> Parcel:
        """A message for ``runner.dispatch_many``; nothing is sent yet.

        Raises ``InvalidTaskPayload`` when the arguments do not fit the task or cannot be encoded.
        """
        return draft(self._task, args, kwargs, self._options, self._desk.house)

    async def dispatch(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Sends one run of the task and returns when the server has it; after that it is not lost.

        A dispatch whose reply got lost is repeated without sending twice. Raises ``InvalidTaskPayload``,
        ``TaskAlreadyDispatched``, ``QueueFull``, and ``BrokerUnavailable`` within the dispatch deadline (default 5 s).
        """
        return await self._send(self.message(*args, **kwargs))

    async def dispatch_delayed(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Sends one run to start ``delay`` (seconds or a timedelta) from now, on the server's clock; never earlier."""
        return await self._send(self._at(args, kwargs, delay=delay))

    async def schedule_for(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Sends one run to start at ``when``, an aware datetime, on the server's clock; a past one means now."""
        return await self._send(self._at(args, kwargs, at=when))

    def dispatch_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """``dispatch`` from code without an event loop."""
        return self._send_sync(self.message(*args, **kwargs))

    def dispatch_delayed_sync(self, delay: Duration, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """``dispatch_delayed`` from code without an event loop."""
        return self._send_sync(self._at(args, kwargs, delay=delay))

    def schedule_for_sync(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """``schedule_for`` from code without an event loop."""
        return self._send_sync(self._at(args, kwargs, at=when))

    def _at(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> Parcel:
        timed = msgspec.structs.replace(
            self._options,
            delay_s=None if delay is None else delay_s("delay", delay),
            at_ms=None if at is None else epoch_ms("when", at),
        )
        return draft(self._task, args, kwargs, timed, self._desk.house)

    async def _send(self, parcel: Parcel) -> Handle[R]:
        answers = await self._desk.send(parcel.queue, (parcel,))
        return handle_for(self._desk, parcel, answers.get(0), self._task)

    def _send_sync(self, parcel: Parcel) -> Handle[R]:
        direct = self._desk.direct
        if direct is None:
            return self._desk.portal.call(lambda: self._send(parcel))
        refuse_where_a_loop_runs()
        answers = direct.send(parcel.queue, (parcel,))
        return handle_for(self._desk, parcel, answers.get(0), self._task)


class Task(Dispatcher[P, R]):
    """A registered function. Calling it runs it here and now; the ``dispatch`` family sends it to a worker."""

    def __init__(self, desk: Desk, definition: Definition) -> None:
        super().__init__(desk, definition, PLAIN)
        self.definition = definition
        self.name = definition.name
        self.__doc__ = definition.function.__doc__
        self.__wrapped__ = definition.function
        self.__module__ = definition.function.__module__

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Calls the function itself: nothing is sent."""
        return self.definition.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def options(
        self,
        *,
        queue: str | None = None,
        priority: Priority | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        task_id: str | None = None,
        max_retry: int | None = None,
        timeout: Duration | None = None,
        result_ttl: Duration | None = None,
        unique_for: UniqueFor | None = None,
        unique_key: str | None = None,
        on_conflict: OnConflict | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Dispatcher[P, R]:
        """The task with other options for one dispatch; what is left out is as the task has it.

        ``delay`` (seconds or timedelta) and ``at`` (aware datetime) exclude each other. ``task_id`` is an id of your
        own: a second dispatch with it is ``TaskAlreadyDispatched``, for a while even after the task has ended
        (``remember_ids``). Raises ``InvalidOption``, which names the option and what was expected.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        return Dispatcher(self._desk, self._task, dispatch_options(given))


def handle_for(desk: Desk, parcel: Parcel, refusal: Refusal | None, task: Definition | str) -> Handle[Any]:
    """The handle of a message that was answered, or the error its answer means."""
    decode = msgspec.json.decode if isinstance(task, str) else task.decode_value
    if refusal is None:
        return Handle(desk, parcel.queue, parcel.task_id, decode)
    if refusal.what == "full":
        raise QueueFull(desk.shards.logical(parcel.queue), "it holds max_length messages")
    if refusal.what == "moved" or (refusal.what == "held" and parcel.on_conflict == "return"):
        return Handle(desk, parcel.queue, refusal.holder, decode)
    if refusal.what == "exists" and parcel.on_conflict == "return":
        return Handle(desk, parcel.queue, parcel.task_id, decode)
    raise TaskAlreadyDispatched(refusal.holder, key=parcel.message.unique_key if refusal.what == "held" else None)


async def send_many(
    desk: Desk, parcels: list[Parcel], task_of: Callable[[Parcel], Definition | str]
) -> list[Handle[Any] | FiretimeError]:
    """Sends many messages in few calls: a handle or an error for each, in order."""
    own = each_its_own(parcels, desk.house.codec)
    outcome: dict[int, Handle[Any] | FiretimeError] = {}

    async def send_in_turn(batches: list[list[int]]) -> None:
        for positions in batches:
            answered = await _send_batch(desk, [own[position] for position in positions], task_of)
            outcome.update(zip(positions, answered, strict=True))

    by_queue: defaultdict[str, list[list[int]]] = defaultdict(list)
    for positions in batches(own):
        by_queue[own[positions[0]].queue].append(positions)
    # in each queue one after the other, so that its order holds and no deadline runs while a batch waits for its turn
    await asyncio.gather(*map(send_in_turn, by_queue.values()))
    return [outcome[position] for position in range(len(own))]


def each_its_own(parcels: list[Parcel], codec: Guarded) -> list[Parcel]:
    """One message given twice is two runs: the second gets an id of its own, unless the id was asked for."""
    seen: set[str] = set()
    own: list[Parcel] = []
    for parcel in parcels:
        again = parcel.task_id in seen and not parcel.explicit_id
        own.append(_again(parcel, codec) if again else parcel)
        seen.add(parcel.task_id)
    return own


def _again(parcel: Parcel, codec: Guarded) -> Parcel:
    task_id, message = renewed(parcel.task_id), parcel.message
    record = codec.encode(message, parcel.queue, bound_to(message, task_id, parcel.on_conflict))
    return msgspec.structs.replace(parcel, task_id=task_id, record=record)


async def _send_batch(
    desk: Desk, batch: list[Parcel], task_of: Callable[[Parcel], Definition | str]
) -> list[Handle[Any] | FiretimeError]:
    try:
        answers = await desk.send(batch[0].queue, batch)
    except FiretimeError as error:
        return [error] * len(batch)
    outcome: list[Handle[Any] | FiretimeError] = []
    for position, parcel in enumerate(batch):
        try:
            outcome.append(handle_for(desk, parcel, answers.get(position), task_of(parcel)))
        except FiretimeError as error:
            outcome.append(error)
    return outcome


def batches(parcels: list[Parcel]) -> list[list[int]]:
    """Positions of messages of one queue, in order, each list small enough for one call."""
    batches: list[list[int]] = []
    filling: dict[str, tuple[list[int], int]] = {}
    for position, parcel in enumerate(parcels):
        batch, size = filling.get(parcel.queue) or (None, 0)
        if batch is None or size + len(parcel.record) > MOST_BYTES or len(batch) == MOST_MESSAGES:
            batch, size = list[int](), 0
            batches.append(batch)
        batch.append(position)
        filling[parcel.queue] = batch, size + len(parcel.record)
    return batches


__all__ = ["Dispatcher", "Task", "batches", "each_its_own", "handle_for", "send_many"]
