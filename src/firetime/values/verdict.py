"""How an attempt ended, and what therefore becomes of the message: decided here, acted on elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Literal

import msgspec

from firetime.values.durations import Duration
from firetime.values.durations import delay_s as checked_delay
from firetime.values.errors import (
    FailedElsewhere,
    InvalidTaskPayload,
    TaskCrashed,
    TaskExecutionError,
    TaskMaxRetryExceeded,
    TaskNotFound,
    TaskRejected,
    Told,
    shown,
)
from firetime.values.message import Delivery, State
from firetime.values.options import TaskOptions
from firetime.values.state import newest, note, with_note

Ending = Literal[
    "returned",  # user code ended well
    "raised",  # it raised, ran past its timeout, or its value cannot be encoded
    "interrupted",  # the worker is stopping: given back
    "cancelled",  # somebody asked for it
    "lost",  # the lease ran out; another worker settles it
    "unknown",  # no such task here
    "crashed",  # out of crashes before it was started
    "vanished",  # the process that ran it has died, and the worker lives
    "unreadable",  # malformed, or its record is gone
    "failing",  # out of attempts already, and its failure handler has yet to end well
]


class Retry(Exception):
    """Raise it in a task to be run again after ``delay``: seconds or a timedelta (default: the task's backoff).

    It counts as a failure: ``max_retry`` bounds it. Raises ``InvalidOption`` for a delay that cannot be meant.
    """

    def __init__(self, delay: Duration | None = None, reason: str = "asked to be tried again") -> None:
        super().__init__(reason)
        self.delay_s = None if delay is None else checked_delay("delay", delay)


class Reject(Exception):
    """Raise it in a task to end it as a dead letter at once, whatever ``max_retry`` says."""

    def __init__(self, reason: str = "rejected") -> None:
        super().__init__(reason)
        self.reason = reason


class Outcome(msgspec.Struct, frozen=True):
    """How one attempt ended."""

    ending: Ending
    value: bytes | None = None
    """The encoded result, where one is kept."""
    error: BaseException | None = None
    duration_s: float = 0.0


class Complete(msgspec.Struct, frozen=True):
    """It is done."""

    value: bytes | None = None


class Cancel(msgspec.Struct, frozen=True):
    """It ends as cancelled."""


class RetryIn(msgspec.Struct, frozen=True):
    """It is tried again later."""

    delay_s: float
    state: State


class Bury(msgspec.Struct, frozen=True):
    """It becomes a dead letter, after its failure handler has been told."""

    reason: str
    error: BaseException
    state: State


class Release(msgspec.Struct, frozen=True):
    """It goes back to its lane; ``started`` tells whether user code saw it."""

    started: bool


class Forget(msgspec.Struct, frozen=True):
    """Another worker holds it now: nothing is settled."""


Verdict = Complete | Cancel | RetryIn | Bury | Release | Forget

DONE = Complete()
"""What nearly every delivery ends with: no value is kept."""

# The unknown task of a rolling deploy: 0.25 s, 0.4 s, 0.64 s ... 60 s. With as many old workers as new ones, each return
# is a coin's toss: of 32 one is still on its way after 4 s, of 1,000 one after 45 s; and nothing spins.
_FIRST_PUZZLED_S, _PUZZLED_GROWTH, _MOST_PUZZLED_S = 0.25, 1.6, 60.0
_MOST_GROWN = 12

_DEFAULT_BACKOFF = TaskOptions().backoff


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision depends on beside the delivery and its outcome."""

    lease_s: float
    unknown_s: float
    now_ms: Callable[[], int]
    """The server's clock, as nearly as the worker knows it."""


def decide(delivery: Delivery, outcome: Outcome, options: TaskOptions, rules: Rules) -> Verdict:
    """What becomes of the message."""
    match outcome.ending:
        case "returned":
            return DONE if outcome.value is None else Complete(outcome.value)
        case "cancelled":
            return Cancel()
        case "lost":
            return Forget()
        case "interrupted":
            return _after_interruption(delivery, options, rules)
        case "raised":
            return _after_any_error(delivery, outcome.error or TaskRejected("no error given"), options, rules)
        case "unknown":
            return _after_unknown(delivery, rules)
        case "crashed" | "vanished":
            return _after_crash(delivery, outcome, options, rules)
        case "unreadable":
            unreadable = _unreadable(delivery)
            return Bury(delivery.problem, unreadable, _moved_on(delivery, unreadable, rules))
        case "failing":
            return Bury(delivery.state.reason, _remembered(delivery), _moved_on(delivery, None, rules))


def handler_failed(bury: Bury, error: BaseException, rules: Rules) -> RetryIn:
    """The failure handler itself raised: it, and not the task, is tried again one lease later."""
    state = with_note(bury.state, note(error, rules.now_ms()))
    return RetryIn(rules.lease_s, msgspec.structs.replace(state, phase="failing", reason=bury.reason))


def handler_interrupted(bury: Bury) -> RetryIn:
    """The worker stops while the failure handler runs: the next worker calls it at once, and does not run the task."""
    return RetryIn(0.0, msgspec.structs.replace(bury.state, phase="failing", reason=bury.reason))


def _unreadable(delivery: Delivery) -> InvalidTaskPayload:
    said, error = f"{delivery.problem} message", delivery.error
    if error is None:
        return InvalidTaskPayload("", said, raw=delivery.raw)
    return type(error)("", f"{said}: {error.reason}", raw=delivery.raw)


def _remembered(delivery: Delivery) -> BaseException:
    """The error that ended the task, as far as its notes tell."""
    if delivery.state.reason == "crashed":
        return TaskCrashed(delivery.task, delivery.crashes)
    latest = newest(delivery.state)
    if latest is None:
        return InvalidTaskPayload("", f"{delivery.problem or delivery.state.reason} message", raw=delivery.raw)
    return TaskExecutionError(delivery.task, latest.type, latest.text, latest.traceback)


def _after_any_error(delivery: Delivery, error: BaseException, options: TaskOptions, rules: Rules) -> Verdict:
    try:
        return _after_error(delivery, error, options, rules)
    except Exception:  # noqa: BLE001 - user code: an error whose class cannot be asked for is a failure all the same
        told = TaskExecutionError(delivery.task, type(error).__name__, shown(error))
        return _after_error(delivery, told, options, rules)


def _after_error(delivery: Delivery, error: BaseException, options: TaskOptions, rules: Rules) -> Verdict:
    state = _moved_on(delivery, error, rules)
    state = msgspec.structs.replace(state, failures=state.failures + 1)
    judged = error.told if isinstance(error, FailedElsewhere) else judge(error, options)
    if judged.rejected is not None:
        return Bury("rejected", TaskRejected(judged.rejected), state)
    if not judged.retried:
        return Bury("failed", error, state)
    own = delivery.message.max_retry if delivery.message is not None else None
    if state.failures > (options.max_retry if own is None else own):
        return Bury("exhausted", TaskMaxRetryExceeded(delivery.task, state.failures, error), state)
    if judged.pause_s is not None:
        return RetryIn(judged.pause_s, state)
    return _after_pause(error, options, state, rules, times=state.failures)


def judge(error: BaseException, options: TaskOptions) -> Told:
    """What a task's rules say of an error; its words are left out. User code (the error's class) may raise here."""
    rejected = error.reason if isinstance(error, Reject) else None
    asked = isinstance(error, Retry)
    retried = asked or (isinstance(error, options.retry_on) and not isinstance(error, options.no_retry_on))
    pause_s = error.delay_s if isinstance(error, Retry) else None
    return Told(type="", text="", traceback="", retried=retried, pause_s=pause_s, rejected=rejected)


def tell(error: BaseException, options: TaskOptions, *, failures: int, lease_s: float) -> Told:
    """An error for the worker of another process: what needs the error itself is asked here, the backoff too."""
    noted = note(error, 0)
    try:
        judged = judge(error, options)
    except Exception:  # noqa: BLE001 - user code: an error whose class cannot be asked for is a failure all the same
        judged = judge(TaskExecutionError("", "", ""), options)
    pause_s = judged.pause_s
    if judged.retried and pause_s is None:
        with contextlib.suppress(Exception):  # one that fails: the worker pauses as if there were none
            pause_s = checked_delay("backoff", options.backoff.delay_s(failures=failures, error=error, lease_s=lease_s))
    words = {"type": noted.type, "text": noted.text, "traceback": noted.traceback}
    if judged.rejected is not None:
        # whatever it was given for a reason, lone surrogates too, has to travel
        words["rejected"] = str(judged.rejected).encode("utf-8", "backslashreplace").decode()
    return msgspec.structs.replace(judged, **words, pause_s=pause_s)


def _after_pause(error: BaseException, options: TaskOptions, state: State, rules: Rules, *, times: int) -> RetryIn:
    try:
        pause = options.backoff.delay_s(failures=times, error=error, lease_s=rules.lease_s)
        return RetryIn(checked_delay("backoff", pause), state)
    except Exception as failing:  # noqa: BLE001 - user code: a backoff that fails itself must not lose the task
        pause = _DEFAULT_BACKOFF.delay_s(failures=times, error=error, lease_s=rules.lease_s)
        return RetryIn(pause, with_note(state, note(failing, rules.now_ms())))


def _after_crash(delivery: Delivery, outcome: Outcome, options: TaskOptions, rules: Rules) -> Verdict:
    """Where only its own process vanished, that is known at once: no lease has to run out, but it counts the same."""
    crashes = delivery.crashes + (outcome.ending == "vanished")
    crashed = TaskCrashed(delivery.task, crashes, outcome.error.how if isinstance(outcome.error, TaskCrashed) else "")
    state = msgspec.structs.replace(_moved_on(delivery, crashed, rules), crashes=crashes)
    if outcome.ending == "crashed" or crashes > options.max_crashes:
        return Bury("crashed", crashed, state)
    return _after_pause(crashed, options, state, rules, times=crashes)


def _after_interruption(delivery: Delivery, options: TaskOptions, rules: Rules) -> Verdict:
    """Stopping costs nothing, but where no run may vanish the task was promised to start at most once."""
    if options.max_crashes > 0:
        return Release(started=True)
    error = TaskExecutionError(delivery.task, "interrupted", "its worker stopped, and it may be started only once")
    return Bury("interrupted", error, _moved_on(delivery, error, rules))


def _after_unknown(delivery: Delivery, rules: Rules) -> Verdict:
    state = _moved_on(delivery, None, rules)
    now_ms = rules.now_ms()
    seen_ms = state.first_seen_ms or now_ms
    state = msgspec.structs.replace(state, first_seen_ms=seen_ms, puzzled=state.puzzled + 1)
    if now_ms - seen_ms >= rules.unknown_s * 1000:
        error = TaskNotFound(delivery.task)
        return Bury("unknown", error, with_note(state, note(error, now_ms)))
    grown_s = _FIRST_PUZZLED_S * _PUZZLED_GROWTH ** min(state.puzzled - 1, _MOST_GROWN)
    return RetryIn(min(grown_s, _MOST_PUZZLED_S), state)


def _moved_on(delivery: Delivery, error: BaseException | None, rules: Rules) -> State:
    """The state with what the present entry's delivery count says carried along, and the error noted."""
    state = msgspec.structs.replace(delivery.state, crashes=delivery.crashes, deliveries=delivery.number)
    return state if error is None else with_note(state, note(error, rules.now_ms()))
