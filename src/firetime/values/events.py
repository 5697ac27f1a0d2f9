"""What happened, told by the rooms to whoever subscribes: logs, metrics, hooks. A failing subscriber stops nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

import msgspec

from firetime.values.log import say
from firetime.values.message import Delivery
from firetime.values.verdict import Outcome, Verdict

_log = logging.getLogger("firetime")

Happening = Literal["started", "settled", "refused", "lost", "cancel asked"]


WorkerHappening = Literal[
    "ready",
    "stopping",
    "stopped",
    "promoted",
    "demoted",
    "disconnected",
    "reconnected",
    "remade",
    "long queue",
    "stale",
    "unblocked",
    "spent",
]


class TaskEvent(msgspec.Struct, frozen=True):
    """Something happened to one delivery."""

    what: Happening
    delivery: Delivery
    outcome: Outcome | None = None
    verdict: Verdict | None = None


class WorkerEvent(msgspec.Struct, frozen=True):
    """Something happened to a worker: it started, stops, leads a queue or no longer does, lost or found the server."""

    what: WorkerHappening
    worker: str
    queue: str = ""
    detail: str = ""


class Trouble(msgspec.Struct, frozen=True):
    """An infrastructure error; ``error.kind`` tells which part of the worker met it."""

    error: BaseException
    echo: bool = False
    """Whether the like of it was told already, of another queue: the log needs no second line."""


Event = TaskEvent | WorkerEvent | Trouble


class Events:
    """The subscribers of one runner."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []
        self.every_task = False
        """Whether somebody wants to hear of tasks that start and end well too, and not of trouble only."""

    def subscribe(self, subscriber: Callable[[Event], None], *, every_task: bool = True) -> None:
        """Calls ``subscriber`` with every event, in the thread that emits it. It must be quick and must not block."""
        self._subscribers.append(subscriber)
        self.every_task |= every_task

    def unsubscribe(self, subscriber: Callable[[Event], None]) -> None:
        """Calls it no more."""
        self._subscribers.remove(subscriber)

    def emit(self, event: Event) -> None:
        """Tells everyone. A failing subscriber is logged and stops nothing."""
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception as error:  # noqa: BLE001 - user code: what it raises is logged
                say(_log, logging.ERROR, "a subscriber of events failed", error=error)
