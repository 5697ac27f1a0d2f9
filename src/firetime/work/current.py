"""What a task may ask about itself while it runs."""

from __future__ import annotations

import time
from contextvars import ContextVar

import msgspec

from firetime.values.errors import WrongContext
from firetime.values.message import Delivery
from firetime.values.schedule import NOMINAL


class CurrentTask(msgspec.Struct, frozen=True, kw_only=True):
    """The run that asks."""

    id: str
    name: str
    queue: str
    attempt: int
    """1 for the first run; grows with every failure and every crash."""
    failures: int
    crashes: int
    delivery: int
    """How many times this stream entry was handed out."""
    fence: int
    """Grows with every delivery of this id: give it to whatever must refuse an older run's writes."""
    fire_ms: int | None
    """When it was due, in ms since 1970 on the server's clock; None for what was dispatched for now."""
    nominal_ms: int | None
    """The slot of a recurring schedule that this run is for, in ms since 1970; None for other tasks."""
    deadline: float | None
    """When its timeout strikes, on ``time.monotonic()``; None without one."""
    headers: dict[str, str]

    def remaining(self) -> float | None:
        """Seconds left until the timeout strikes."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


_running: ContextVar[tuple[Delivery, float | None] | None] = ContextVar("firetime_current_task", default=None)


def enter(delivery: Delivery, deadline: float | None) -> None:
    """From here on, in this context, ``current_task()`` tells of this delivery."""
    _running.set((delivery, deadline))


def leave() -> None:
    """The task of this context has ended."""
    _running.set(None)


def current_task() -> CurrentTask:
    """The task that runs here. Raises ``WrongContext`` outside one."""
    delivery, deadline = _running.get() or (None, None)
    message = delivery.message if delivery is not None else None
    if delivery is None or message is None:
        raise WrongContext("current_task() was called outside a running task")
    return CurrentTask(
        id=delivery.task_id,
        name=message.task,
        queue=delivery.queue,
        attempt=delivery.state.failures + delivery.crashes + 1,
        failures=delivery.state.failures,
        crashes=delivery.crashes,
        delivery=delivery.fence.deliveries,
        fence=delivery.number,
        fire_ms=delivery.fire_ms or None,
        nominal_ms=int(nominal) if (nominal := message.headers.get(NOMINAL, "")).isdigit() else None,
        deadline=deadline,
        headers=message.headers,
    )
