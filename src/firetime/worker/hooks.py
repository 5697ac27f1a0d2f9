"""Events reach people: as log lines, as errors to iterate over, as calls of their hooks; none of it holds a worker up."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from firetime.values.events import Event, Events, TaskEvent, Trouble, WorkerEvent
from firetime.values.log import say
from firetime.values.verdict import Bury, Cancel, Complete, Forget, Release, RetryIn
from firetime.worker.call import raised_by

_log = logging.getLogger("firetime")
_task_log = logging.getLogger("firetime.task")
MOST_KEPT = 1000
"""Errors or calls waiting to be taken; beyond that the oldest are dropped."""


class Buffer:
    """A bounded queue from any thread to one event loop: it drops the oldest and never blocks."""

    def __init__(self) -> None:
        self._kept: deque[Any] = deque()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._closed = False

    def put(self, item: Any) -> None:
        """Takes an item."""
        if len(self._kept) >= MOST_KEPT:
            self._kept.popleft()
        self._kept.append(item)
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            # the loop is closed: nobody will take it
            self._kept.clear()

    def close(self) -> None:
        """Nothing more comes: whoever takes items ends after the last one."""
        self._closed = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._kept:
                yield self._kept.popleft()
            if self._closed:
                return


class Hooks:
    """The functions a user registered for what happens to a runner."""

    def __init__(self) -> None:
        self.on_error: list[Callable[..., Any]] = []
        self.on_long_queue: list[Callable[..., Any]] = []
        self.on_promoted: list[Callable[..., Any]] = []
        self.on_demoted: list[Callable[..., Any]] = []

    def calls_for(self, event: Event) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Which of them an event calls, and with what."""
        match event:
            case Trouble(error):
                return [(hook, (error,)) for hook in self.on_error]
            case WorkerEvent("long queue", _, queue, detail):
                return [(hook, (queue, int(detail))) for hook in self.on_long_queue]
            case WorkerEvent("promoted", _, queue):
                return [(hook, (queue,)) for hook in self.on_promoted]
            case WorkerEvent("demoted", _, queue):
                return [(hook, (queue,)) for hook in self.on_demoted]
            case _:
                return []


async def call_hooks(hooks: Hooks, events: Buffer) -> None:
    """Calls hooks one after the other until the buffer is closed; what they raise is logged."""
    async for event in events:
        for hook, arguments in hooks.calls_for(event):
            error = await raised_by(hook, *arguments)
            if error is not None:
                say(_log, logging.ERROR, "the hook %s failed", getattr(hook, "__name__", hook), error=error)


async def troubles(events: Events) -> AsyncIterator[BaseException]:
    """The infrastructure errors that are emitted from the first step on."""
    buffer = Buffer()

    def take(event: Event) -> None:
        if isinstance(event, Trouble):
            buffer.put(event.error)

    events.subscribe(take, every_task=False)
    try:
        async for error in buffer:
            yield error
    finally:
        events.unsubscribe(take)


def log_event(event: Event) -> None:
    """One line for a change of state, with task id and name; costs a look where the level is off."""
    match event:
        case TaskEvent():
            _log_task(event)
        case WorkerEvent(what, worker, queue, detail):
            level = (
                logging.WARNING if what in ("disconnected", "remade", "long queue", "stale", "spent") else logging.INFO
            )
            _log.log(level, "worker %s %s", worker, " ".join(filter(None, (what, queue, detail))))
        case Trouble(error, echo):
            kind = getattr(error, "kind", None) or "task"
            _log.log(logging.DEBUG if echo else logging.WARNING, "%s trouble: %s", kind, error)


def wants_every_task() -> bool:
    """Whether the log takes a line for every task."""
    return _task_log.isEnabledFor(logging.INFO)


def _log_task(event: TaskEvent) -> None:
    level = _level(event)
    if _task_log.isEnabledFor(level):
        delivery = event.delivery
        _task_log.log(level, "%s %s %s", delivery.task, delivery.task_id, _said(event))


def _level(event: TaskEvent) -> int:
    if event.what in ("lost", "refused") or isinstance(event.verdict, Bury) or _is_unknown(event):
        return logging.WARNING
    return logging.DEBUG if event.what == "started" else logging.INFO


def _is_unknown(event: TaskEvent) -> bool:
    return event.outcome is not None and event.outcome.ending == "unknown"


def _said(event: TaskEvent) -> str:
    if event.what != "settled":
        return {"refused": "settled by another worker", "lost": "lost its lease"}.get(event.what, event.what)
    error = event.outcome.error if event.outcome is not None else None
    match event.verdict:
        case Complete():
            return f"done in {event.outcome.duration_s:.3f} s" if event.outcome is not None else "done"
        case RetryIn(delay_s) if _is_unknown(event):
            return f"is no task of this worker's; put back for one that knows it, tried again in {delay_s:.2f} s"
        case RetryIn(delay_s):
            return f"runs again in {delay_s:.2f} s: {error!r}"
        case Bury(reason, error):
            return f"is dead ({reason}): {error!r}"
        case Release():
            return "given back"
        case Cancel():
            return "cancelled"
        case Forget() | None:
            return "left to another worker"
