"""Everything that can go wrong, as one family: each error says what is wrong and what to do, and keeps its facts."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["fetch", "settle", "renew", "unlock", "election", "scheduler", "handler", "control", "loop"]
"""Which part of a worker met an infrastructure error."""


def shown(error: BaseException | None) -> str:
    """``repr()`` of an error, which is user code and may fail itself."""
    try:
        return repr(error)
    except BaseException as failing:  # noqa: BLE001 - user code: whatever it raises, the error is told of
        return f"<{type(error).__name__}, whose text raised {type(failing).__name__}>"


class FiretimeError(Exception):
    """The root of the family: catch it to catch everything firetime raises on purpose.

    ``kind`` is set on infrastructure errors only: the part of the worker that met the trouble.
    """

    kind: Kind | None = None


class TaskNotFound(FiretimeError):
    """A message names a task that is not registered here."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no task {name!r} here; is the module that defines it imported?")
        self.name = name


class DuplicateTask(FiretimeError, ValueError):
    """Two functions were registered under one name; the second registration raises this."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a task named {name!r} is registered already; give one of them another name=")
        self.name = name


class InvalidOption(FiretimeError, ValueError):
    """An option, argument or setting has a value that cannot be meant."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name}={value!r}: expected {expected}")
        self.name = name
        self.value = value
        self.expected = expected


class TaskAlreadyDispatched(FiretimeError):
    """The unique key, or the explicit task id, is held by another message; ``task_id`` is the holder's id."""

    def __init__(self, task_id: str, *, key: str | None = None) -> None:
        what = f"unique key {key!r} is held by" if key else "there is already a task with the id"
        super().__init__(f"{what} {task_id!r}; pass on_conflict='return' to get its handle instead")
        self.task_id = task_id
        self.key = key


class UniqueForRequired(FiretimeError, ValueError):
    """A ``unique_key`` was given without saying for how long it is held."""

    def __init__(self, task: str) -> None:
        super().__init__(f"task {task!r} has a unique_key but no unique_for; give seconds, or unique_for='done'")
        self.task = task


class DelayTooShort(FiretimeError, ValueError):
    """A delay is under the ``min_delay`` of the runner (only raised where one is set)."""

    def __init__(self, delay_s: float, min_delay_s: float) -> None:
        super().__init__(f"delay of {delay_s} s is under min_delay={min_delay_s} s; dispatch it now, or later")
        self.delay_s = delay_s
        self.min_delay_s = min_delay_s


class InvalidTaskPayload(FiretimeError, ValueError):
    """Arguments do not fit the task, cannot be encoded, are too large, or a stored message cannot be read."""

    def __init__(self, task: str, reason: str, *, raw: bytes | None = None) -> None:
        super().__init__(f"task {task!r}: {reason}" if task else reason)
        self.task = task
        self.reason = reason
        self.raw = raw


class UntrustedMessage(InvalidTaskPayload):
    """A record, result or schedule is not sealed as it must be: unsigned, changed, moved, or of a key nobody has here."""


class TaskMaxRetryExceeded(FiretimeError):
    """A task failed once more than ``max_retry`` allows; ``error`` is what the last run raised."""

    def __init__(self, task: str, failures: int, error: BaseException | None = None) -> None:
        super().__init__(f"task {task!r} failed {failures} times and has no retry left: {shown(error)}")
        self.task = task
        self.failures = failures
        self.error = error


class TaskCrashed(FiretimeError):
    """The workers, or processes, that ran a task vanished more often than ``max_crashes`` allows.

    ``how`` tells of the last one where it is known: a task's own process is seen to die, a worker only to be silent.
    """

    def __init__(self, task: str, crashes: int, how: str = "") -> None:
        times = "once" if crashes == 1 else f"{crashes} times"
        text = f"its worker, or its process, vanished {times} (killed, out of memory or frozen)"
        if how:
            text = f"its process {how}" if crashes == 1 else f"its worker or process vanished {times}; it {how}"
        super().__init__(f"task {task!r}: {text}")
        self.task = task
        self.crashes = crashes
        self.how = how


class TaskExecutionError(FiretimeError):
    """A task ended with an error; ``cause_type``, ``cause_text`` and ``traceback`` tell what its last run raised."""

    def __init__(self, task: str, cause_type: str, cause_text: str, traceback: str = "") -> None:
        super().__init__(f"task {task!r} failed: {cause_type}: {cause_text}")
        self.task = task
        self.cause_type = cause_type
        self.cause_text = cause_text
        self.traceback = traceback


class FailedElsewhere(TaskExecutionError):
    """What a task raised in a process of its own: errors do not travel, what the worker has to know of them does."""

    def __init__(self, task: str, told: Told) -> None:
        super().__init__(task, told.type, told.text, told.traceback)
        self.told = told


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An error as another process tells it: its words, and what the task's own rules said of it there."""

    type: str
    text: str
    traceback: str
    retried: bool
    """Whether ``retry_on`` and ``no_retry_on`` allow another run."""
    pause_s: float | None = None
    """What ``Retry`` asked for, else what the task's backoff said; None: the worker decides."""
    rejected: str | None = None
    """The reason of a ``Reject``."""


class TaskTimeout(FiretimeError, TimeoutError):
    """A run took longer than the task's ``timeout``."""

    def __init__(self, task: str, timeout_s: float) -> None:
        super().__init__(f"task {task!r} ran longer than its timeout of {timeout_s} s")
        self.task = task
        self.timeout_s = timeout_s


class TaskRejected(FiretimeError):
    """A task asked, by raising ``Reject``, to be moved to the dead letters at once."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TaskCancelled(FiretimeError):
    """The task whose result was asked for has been cancelled."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id!r} was cancelled")
        self.task_id = task_id


class LeaseLost(FiretimeError):
    """A delivery's lease ran out, so another worker may run the task; this worker's outcome is not settled."""

    kind: Kind | None = "renew"

    def __init__(self, task: str, task_id: str) -> None:
        super().__init__(f"task {task!r} ({task_id}): the lease ran out; another worker settles it")
        self.task = task
        self.task_id = task_id


class LoopBlocked(FiretimeError):
    """A worker's event loop has not turned for ``blocked_s`` seconds; ``stack`` is where it stands.

    ``task`` is empty where it was no task, but a hook, or a library that the program runs beside the worker.
    """

    kind: Kind | None = "loop"

    def __init__(self, task: str, task_id: str, blocked_s: float, stack: str) -> None:
        self.task = task
        self.task_id = task_id
        self.blocked_s = blocked_s
        self.stack = stack
        advice = "make it a def task, or await where it waits" if task else "it is no task"
        super().__init__(
            f"{self.culprit} has blocked the event loop for {blocked_s:.1f} s ({advice}); it stands at\n{stack}"
        )

    @property
    def culprit(self) -> str:
        """Who it is, for people."""
        return f"task {self.task!r} ({self.task_id})" if self.task else "something"


class TaskUnlockFailed(FiretimeError):
    """A unique key could not be freed because it names another holder by now."""

    kind: Kind | None = "unlock"

    def __init__(self, key: str, task_id: str) -> None:
        super().__init__(f"unique key {key!r} no longer belongs to {task_id!r}")
        self.key = key
        self.task_id = task_id


class RestartNeeded(FiretimeError):
    """A worker has stopped, as ``stop()`` does, so that its process can be started anew; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this process is to be started anew: {reason}")
        self.reason = reason


class RunnerAlreadyStarted(FiretimeError, RuntimeError):
    """``start()`` was called on a runner that is starting or running."""

    def __init__(self) -> None:
        super().__init__("this runner is started already; stop() it first, or make a second TaskRunner")


class ResultNotReady(FiretimeError, TimeoutError):
    """The result did not come within the time asked; ``status`` is where the task was then."""

    def __init__(self, task_id: str, status: str, reason: str) -> None:
        super().__init__(f"no result of {task_id!r} ({status}): {reason}")
        self.task_id = task_id
        self.status = status


class WrongContext(FiretimeError, RuntimeError):
    """A call was made where it cannot work: a blocking twin inside an event loop, ``current_task()`` outside a task."""


class QueueError(FiretimeError):
    """The queue, or the server under it, refused or did not answer."""


class QueueFull(QueueError):
    """The queue holds ``max_length`` messages, or the server has no memory left; nothing was accepted."""

    def __init__(self, queue: str, reason: str) -> None:
        super().__init__(f"queue {queue!r} takes no more: {reason}")
        self.queue = queue
        self.reason = reason


class BrokerUnavailable(QueueError, ConnectionError):
    """The server could not be reached, or did not answer, within the deadline.

    ``maybe_accepted`` is true when a request went out and no reply came: the message may run all the same.
    """

    def __init__(self, reason: str, *, maybe_accepted: bool = False) -> None:
        fate = "it may have been accepted all the same" if maybe_accepted else "nothing was accepted"
        super().__init__(f"{reason}; {fate}")
        self.reason = reason
        self.maybe_accepted = maybe_accepted


class NotReplicated(BrokerUnavailable):
    """The server has accepted it, but not ``wanted`` of its replicas (``min_replicas``) within the deadline; ``reached`` have.

    It stays accepted and will run, unless this server is lost before a replica has it. ``maybe_accepted`` is true.
    """

    def __init__(self, wanted: int, reached: int) -> None:
        super().__init__(f"{reached} of {wanted} replicas have confirmed it in time", maybe_accepted=True)
        self.wanted = wanted
        self.reached = reached


class BrokerRefused(QueueError):
    """The server answered with an error that trying again does not mend: credentials, rights, version, a script."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class MessageNotFound(QueueError):
    """There is no message of that id in that state."""

    def __init__(self, task_id: str, where: str = "here") -> None:
        super().__init__(f"no message {task_id!r} {where}")
        self.task_id = task_id
