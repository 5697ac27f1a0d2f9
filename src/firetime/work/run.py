"""A delivery is run to its outcome; nothing else in firetime calls user code's tasks."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

import msgspec

from firetime.values.codec import Guarded
from firetime.values.definition import Definition, encode_value
from firetime.values.errors import InvalidTaskPayload, TaskExecutionError, TaskTimeout, shown
from firetime.values.message import Delivery
from firetime.values.verdict import Outcome
from firetime.work import current
from firetime.work.threads import Job, Threads

OnOutcome = Callable[[Delivery, Outcome], None]


def timeout_of(delivery: Delivery, definition: Definition) -> float | None:
    """The run's timeout in seconds: the message's own, else the task's; None for none."""
    own = delivery.message.timeout_s if delivery.message is not None else None
    return definition.options.timeout_s if own is None else own


class CoroutineRun:
    """One run of an ``async def`` task on the event loop."""

    __slots__ = ("_began", "_definition", "_ended_as", "_on_gone", "_on_outcome", "_settled", "delivery", "task")

    def __init__(
        self, delivery: Delivery, definition: Definition, on_outcome: OnOutcome, on_gone: Callable[[], None]
    ) -> None:
        self.delivery = delivery
        self.task: asyncio.Task[None] | None = None
        self._on_gone = on_gone
        self._definition = definition
        self._on_outcome = on_outcome
        self._began = False
        self._ended_as: Outcome | None = None
        self._settled = False

    async def run(self) -> None:
        """Calls the function and reports the outcome, once."""
        self._began = True
        delivery, definition = self.delivery, self._definition
        timeout_s = timeout_of(delivery, definition)
        started = time.monotonic()
        timer = None
        if timeout_s is not None:
            timer = asyncio.get_running_loop().call_later(timeout_s, self._time_is_over, timeout_s)
        current.enter(delivery, None if timeout_s is None else started + timeout_s)
        try:
            args, kwargs = definition.decode(_arguments(delivery))
            value = await definition.function(*args, **kwargs)
            outcome = _returned(delivery, definition, value, time.monotonic() - started, timeout_s)
        except BaseException as error:  # noqa: BLE001 - user code
            # whatever user code raises, SystemExit too, ends this task and never the worker
            outcome = _raised(delivery, error, time.monotonic() - started)
        if timer is not None:
            timer.cancel()
        self._on_gone()
        self._report(self._ended_as or outcome)

    def stop(self, outcome: Outcome) -> None:
        """Cancels the coroutine; when it has ended, that is its outcome, whatever it raised."""
        if self._ended_as is None:
            self._ended_as = outcome
            if self.task is not None:
                self.task.cancel()
            if not self._began:
                # cancelled before its first step, a coroutine never gets to say how it ended
                self._on_gone()
                self._report(outcome)

    def cancel(self) -> None:
        """Somebody asked for it."""
        self.stop(Outcome("cancelled"))

    def give_up(self) -> None:
        """It does not end although it was cancelled: it is settled as if it had, whatever its code still does."""
        self._report(self._ended_as or Outcome("interrupted"))

    def _time_is_over(self, timeout_s: float) -> None:
        late = Outcome("raised", error=TaskTimeout(self._definition.name, timeout_s), duration_s=timeout_s)
        self.stop(late)
        # settled now, whatever its code still does
        self._report(late)

    def _report(self, outcome: Outcome) -> None:
        if not self._settled:
            self._settled = True
            self._on_outcome(self.delivery, outcome)


class ThreadRun(Job):
    """One run of a ``def`` task in a thread."""

    __slots__ = ("_definition", "_loop", "_on_outcome", "_settled", "_threads", "_timer", "delivery", "outcome")

    def __init__(self, delivery: Delivery, definition: Definition, threads: Threads, on_outcome: OnOutcome) -> None:
        super().__init__()
        self.delivery = delivery
        self.outcome: Outcome | None = None
        self._definition = definition
        self._threads = threads
        self._on_outcome = on_outcome
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._settled = False

    def work(self) -> None:
        """In the thread: calls the function."""
        timeout_s = timeout_of(self.delivery, self._definition)
        if timeout_s is not None:
            self._loop.call_soon_threadsafe(self._arm, timeout_s)
        self.outcome = call_here(self.delivery, self._definition)

    def ended(self) -> None:
        """On the event loop, after ``work``."""
        if self._timer is not None:
            self._timer.cancel()
        self._report(self.outcome or Outcome("interrupted"))

    def stop(self, outcome: Outcome) -> None:
        """A thread cannot be stopped: its outcome is given up, and the slot counted as leaked until it ends.

        Where its work has ended just now, that outcome is on its way, and counts.
        """
        if self._threads.withdraw_one(self) or self._threads.abandon(self):
            self._report(outcome)

    def cancel(self) -> None:
        """Somebody asked for it: that works as long as no thread has started it."""
        if self._threads.withdraw_one(self):
            self._report(Outcome("cancelled"))

    def give_up(self) -> None:
        """Its work has ended, and the event loop has not come to hear of it."""
        self._report(self.outcome or Outcome("interrupted"))

    def _arm(self, timeout_s: float) -> None:
        if not self._settled:
            self._timer = self._loop.call_later(timeout_s, self._time_is_over, timeout_s)

    def _time_is_over(self, timeout_s: float) -> None:
        self.stop(Outcome("raised", error=TaskTimeout(self._definition.name, timeout_s), duration_s=timeout_s))

    def _report(self, outcome: Outcome) -> None:
        if not self._settled:
            self._settled = True
            self._on_outcome(self.delivery, outcome)


def sealed(delivery: Delivery, outcome: Outcome, codec: Guarded) -> Outcome:
    """The outcome with its value as it is stored."""
    if outcome.value is None:
        return outcome
    value = codec.wrap(outcome.value, "result", delivery.fence.queue, delivery.task_id)
    return msgspec.structs.replace(outcome, value=value)


def call_here(delivery: Delivery, definition: Definition) -> Outcome:
    """Calls a ``def`` task's function in this thread, until it ends: nobody can stop it here."""
    timeout_s = timeout_of(delivery, definition)
    started = time.monotonic()
    current.enter(delivery, None if timeout_s is None else started + timeout_s)
    try:
        args, kwargs = definition.decode(_arguments(delivery))
        value = definition.function(*args, **kwargs)
        _refuse_coroutine(definition, value)
        return _returned(delivery, definition, value, time.monotonic() - started, timeout_s)
    except BaseException as error:  # noqa: BLE001 - user code
        return _raised(delivery, error, time.monotonic() - started)
    finally:
        current.leave()


def _arguments(delivery: Delivery) -> Any:
    if delivery.message is None:
        raise InvalidTaskPayload("", "no message to run")
    return delivery.message.args


def _returned(
    delivery: Delivery, definition: Definition, value: object, duration_s: float, timeout_s: float | None
) -> Outcome:
    if timeout_s is not None and duration_s > timeout_s:
        # it held the event loop, or the interpreter, so that the timer could not strike in time
        return Outcome("raised", error=TaskTimeout(definition.name, timeout_s), duration_s=duration_s)
    kept = delivery.message is not None and delivery.message.result_ms > 0
    return Outcome("returned", encode_value(definition.name, value) if kept else None, None, duration_s)


def _refuse_coroutine(definition: Definition, value: object) -> None:
    """A function that only gives a coroutine has done nothing yet; its task must not end as done."""
    if inspect.iscoroutine(value):
        value.close()
        raise InvalidTaskPayload(definition.name, "its function gives a coroutine: make it async def, to be awaited")


def _raised(delivery: Delivery, error: BaseException, duration_s: float) -> Outcome:
    if not isinstance(error, Exception):
        # SystemExit, KeyboardInterrupt, a coroutine that cancelled itself: failures like any other to the retry rules
        failure = TaskExecutionError(delivery.task, type(error).__name__, shown(error))
        failure.__cause__ = error
        return Outcome("raised", error=failure, duration_s=duration_s)
    return Outcome("raised", error=error, duration_s=duration_s)
