"""The states a message can be in, the lanes it can stand in, and how both are written in Redis."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Priority = Literal["high", "normal", "low"]
"""Which lane of its queue a message waits in."""

LANES: dict[Priority, str] = {"high": "h", "normal": "n", "low": "l"}
"""Priority -> lane letter, from the top down."""

PRIORITIES: dict[str, Priority] = {letter: priority for priority, letter in LANES.items()}
"""Lane letter -> priority."""


class Status(StrEnum):
    """Where a message is. ``EXPIRED`` is a finished one whose result has outlived its ``result_ttl``.

    ``UNKNOWN`` is an id that never existed, or a finished task without ``result_ttl``, which leaves nothing behind.
    """

    DELAYED = "delayed"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "result expired"
    UNKNOWN = "unknown"


class RescheduleAnswer(StrEnum):
    """What ``reschedule`` or ``run_now`` found; only a delayed message can be moved."""

    RESCHEDULED = "rescheduled"
    READY = "already ready"
    RUNNING = "already running"
    FINISHED = "finished"
    NOT_FOUND = "not found"


class CancelAnswer(StrEnum):
    """What ``cancel`` found, truthfully.

    ``REQUESTED`` is a running task that has been asked to stop: a coroutine is cancelled, a thread runs to its end
    but is not retried. ``FINISHED`` is a task already done, dead or cancelled.
    """

    CANCELLED = "cancelled"
    REQUESTED = "already running"
    FINISHED = "finished"
    NOT_FOUND = "not found"
