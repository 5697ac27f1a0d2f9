"""Whoever sends and looks: tasks by their names, many messages at once, handles, dead letters, queues."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from firetime.produce.dead import DeadLetters
from firetime.produce.desk import Desk
from firetime.produce.group import Groups
from firetime.produce.overview import Overview, QueueStats
from firetime.produce.pause import pause, resume
from firetime.produce.result import Handle
from firetime.produce.task import Dispatcher, send_many
from firetime.values.definition import Definition
from firetime.values.errors import FiretimeError, InvalidOption
from firetime.values.ids import checked_name
from firetime.values.message import Parcel
from firetime.values.options import dispatch_options


class Producer(Groups):
    """The half of a ``TaskRunner`` that works nowhere."""

    def __init__(self, desk: Desk, *, gone_s: float) -> None:
        super().__init__(desk)
        self.look_with(gone_s=gone_s)

    def look_with(self, *, gone_s: float) -> None:
        """A worker that was silent for so long counts as gone."""
        self.overview = Overview(self.desk, gone_s=gone_s)

    # --- sending

    async def dispatch(self, task: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Sends one run of a task by its name, from code that does not have its function: arguments go unchecked.

        Options: ``runner.named("send_email", priority="high").dispatch(...)``.
        """
        return await self.named(task).dispatch(*args, **kwargs)

    def dispatch_sync(self, task: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """``dispatch`` from code without an event loop."""
        return self.named(task).dispatch_sync(*args, **kwargs)

    def named(self, task: str, /, **options: Any) -> Dispatcher[..., Any]:
        """A task by its name, with options as ``Task.options`` takes them; a registered one is checked as usual."""
        known = self.tasks.get(task)
        return Dispatcher(self.desk, known or checked_name("task", task), dispatch_options(options))

    async def dispatch_many(self, messages: Iterable[Parcel]) -> list[Handle[Any] | FiretimeError]:
        """Sends many messages (``task.message(...)``) in few calls: a handle or an error for each, in order."""
        return await send_many(self.desk, list(messages), self._task_of)

    def dispatch_many_sync(self, messages: Iterable[Parcel]) -> list[Handle[Any] | FiretimeError]:
        """``dispatch_many`` from code without an event loop."""
        parcels = list(messages)
        return self.desk.portal.call(lambda: send_many(self.desk, parcels, self._task_of))

    def _task_of(self, parcel: Parcel) -> Definition | str:
        return self.tasks.get(parcel.message.task, parcel.message.task)

    # --- looking

    def handle(self, task_id: str, *, queue: str = "default") -> Handle[Any]:
        """The handle of a message known by its id and queue."""
        if not isinstance(task_id, str) or not task_id.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("task_id", task_id, "the id of a message, as handle.task_id has it")
        return Handle(self.desk, checked_name("queue", queue), task_id)

    def dead(self, queue: str = "default") -> DeadLetters:
        """The dead letters of a queue: list, show, replay, purge."""
        return DeadLetters(self.desk, checked_name("queue", queue))

    async def stats(self, queue: str = "default") -> QueueStats:
        """What a queue looks like now: lengths, means, predicted wait, lateness, workers, leader."""
        return await self.overview.queue(checked_name("queue", queue))

    async def pause(self, queue: str = "default") -> None:
        """Lets no worker claim from the queue until ``resume``; what runs, runs on, and dispatches are accepted."""
        await pause(await self.desk.server(), await self.desk.all_keys(queue))

    async def resume(self, queue: str = "default") -> bool:
        """Opens a paused queue; returns whether it was paused."""
        return await resume(await self.desk.server(), await self.desk.all_keys(queue))
