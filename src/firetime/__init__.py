"""firetime: run this task now, or at its fire-time, once, on any worker, and never lose it."""

from firetime.produce.group import Group
from firetime.produce.result import Handle
from firetime.produce.task import Dispatcher, Task
from firetime.runner import TaskRunner
from firetime.values.backoff import Backoff, Exponential, Fixed, Linear, Reclaim
from firetime.values.codec import Codec, JsonCodec
from firetime.values.dead_letter import DeadLetter
from firetime.values.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DelayTooShort,
    DuplicateTask,
    FiretimeError,
    InvalidOption,
    InvalidTaskPayload,
    LeaseLost,
    LoopBlocked,
    MessageNotFound,
    NotReplicated,
    QueueError,
    QueueFull,
    RestartNeeded,
    ResultNotReady,
    RunnerAlreadyStarted,
    TaskAlreadyDispatched,
    TaskCancelled,
    TaskCrashed,
    TaskExecutionError,
    TaskMaxRetryExceeded,
    TaskNotFound,
    TaskRejected,
    TaskTimeout,
    TaskUnlockFailed,
    UniqueForRequired,
    UntrustedMessage,
    WrongContext,
)
from firetime.values.seal import Encrypted, Signed
from firetime.values.settings import Settings
from firetime.values.states import CancelAnswer, Status
from firetime.values.verdict import Reject, Retry
from firetime.values.version import __version__
from firetime.work.current import CurrentTask, current_task

__all__ = [
    "Backoff",
    "BrokerRefused",
    "BrokerUnavailable",
    "CancelAnswer",
    "Codec",
    "CurrentTask",
    "DeadLetter",
    "DelayTooShort",
    "Dispatcher",
    "DuplicateTask",
    "Encrypted",
    "Exponential",
    "FiretimeError",
    "Fixed",
    "Group",
    "Handle",
    "InvalidOption",
    "InvalidTaskPayload",
    "JsonCodec",
    "LeaseLost",
    "Linear",
    "LoopBlocked",
    "MessageNotFound",
    "NotReplicated",
    "QueueError",
    "QueueFull",
    "Reclaim",
    "Reject",
    "RestartNeeded",
    "ResultNotReady",
    "Retry",
    "RunnerAlreadyStarted",
    "Settings",
    "Signed",
    "Status",
    "Task",
    "TaskAlreadyDispatched",
    "TaskCancelled",
    "TaskCrashed",
    "TaskExecutionError",
    "TaskMaxRetryExceeded",
    "TaskNotFound",
    "TaskRejected",
    "TaskRunner",
    "TaskTimeout",
    "TaskUnlockFailed",
    "UniqueForRequired",
    "UntrustedMessage",
    "WrongContext",
    "__version__",
    "current_task",
]
