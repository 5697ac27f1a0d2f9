"""What can be set for a task and for one dispatch of it: frozen values, checked where they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from firetime.values.backoff import Backoff, Exponential, as_backoff
from firetime.values.durations import Duration, delay_s, epoch_ms, seconds
from firetime.values.errors import InvalidOption, UniqueForRequired
from firetime.values.ids import checked_name, is_utf8
from firetime.values.states import LANES, Priority

OnConflict = Literal["raise", "return", "replace"]
"""What a dispatch does when its unique key is held."""

RunIn = Literal["thread", "process"]
"""Where a ``def`` task runs."""

UniqueFor = Duration | Literal["done"]
"""How long a unique key is held past the fire-time; ``"done"``: until the task ends, however long that takes."""


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a task; ``TaskRunner.task`` documents each."""

    queue: str = "default"
    priority: Priority = "normal"
    max_retry: int = 3
    backoff: Backoff = Exponential()
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    no_retry_on: tuple[type[BaseException], ...] = ()
    timeout_s: float | None = None
    unique_for: float | Literal["done"] | None = None
    unique_key: Callable[..., object] | None = None
    on_conflict: OnConflict = "raise"
    result_s: float = 0.0
    max_crashes: int = 3
    delete_on_ack: bool = True
    run_in: RunIn = "thread"


class DispatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one dispatch says otherwise than its task; None: as the task has it."""

    queue: str | None = None
    priority: Priority | None = None
    delay_s: float | None = None
    at_ms: int | None = None
    task_id: str | None = None
    max_retry: int | None = None
    timeout_s: float | None = None
    result_s: float | None = None
    unique_for: float | Literal["done"] | None = None
    unique_key: str | None = None
    on_conflict: OnConflict | None = None
    headers: dict[str, str] | None = None


PLAIN = DispatchOptions()
"""A dispatch as the task has it."""


def task_options(task: str, given: dict[str, Any]) -> TaskOptions:
    """Options of a task from what the user wrote (names as ``TaskRunner.task`` takes them)."""
    checked = _checked(given, TaskOptions)
    if "unique_key" in checked and not callable(checked["unique_key"]):
        raise InvalidOption("unique_key", given["unique_key"], "a function of the task's arguments")
    if "unique_key" in checked and "unique_for" not in checked:
        raise UniqueForRequired(task)
    return TaskOptions(**checked)


def dispatch_options(given: dict[str, Any]) -> DispatchOptions:
    """Options of one dispatch from what the user wrote (names as ``Task.options`` takes them)."""
    checked = _checked(given, DispatchOptions)
    if "delay_s" in checked and "at_ms" in checked:
        raise InvalidOption("at", given["at"], "either delay= or at=, not both")
    if "unique_key" in checked:
        checked["unique_key"] = _text("unique_key", str(checked["unique_key"]))
    return DispatchOptions(**checked)


def _renamed(name: str) -> str:
    return {"timeout": "timeout_s", "result_ttl": "result_s", "delay": "delay_s", "at": "at_ms"}.get(name, name)


def _checked(given: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    known = sorted(name for name in _CHECKS if _renamed(name) in kind.__struct_fields__)
    for name, value in given.items():
        if name not in known:
            raise InvalidOption(name, value, "one of the options " + ", ".join(known))
    return {_renamed(name): _CHECKS[name](name, value) for name, value in given.items() if value is not None}


def _text(name: str, value: str) -> str:
    if not is_utf8(value):
        raise InvalidOption(name, value, "text that has a UTF-8 form")
    return value


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidOption(name, value, "a whole number of at least 0")
    return value


def _positive(name: str, value: Any) -> float:
    number = seconds(name, value)
    if number == 0:
        raise InvalidOption(name, value, "more than 0 seconds (leave it out for no limit)")
    return number


def _unique_for(name: str, value: Any) -> float | str:
    return "done" if value == "done" else _positive(name, value)


def _one_of(*allowed: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in allowed:
            raise InvalidOption(name, value, "one of " + ", ".join(map(repr, allowed)))
        return str(value)

    return check


def _exceptions(name: str, value: Any) -> tuple[type[BaseException], ...]:
    kinds: list[Any] = list(value if hasattr(value, "__iter__") else [value])
    found = tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseException))
    if len(found) != len(kinds):
        raise InvalidOption(name, value, "an exception type, or a tuple of them")
    return found


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(name, value, "True or False")
    return value


def _headers(name: str, value: object) -> dict[str, str]:
    try:
        headers = msgspec.convert(value, dict[str, str])
    except msgspec.ValidationError:
        raise InvalidOption(name, value, "a dict of str to str") from None
    for word in (*headers, *headers.values()):
        _text(name, word)
    return headers


def _at(name: str, value: Any) -> int:
    if not isinstance(value, datetime):
        raise InvalidOption(name, value, "an aware datetime")
    return epoch_ms(name, value)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "queue": checked_name,
    "priority": _one_of(*LANES),
    "max_retry": _count,
    "backoff": lambda _, value: as_backoff(value),
    "retry_on": _exceptions,
    "no_retry_on": _exceptions,
    "timeout": _positive,
    "unique_for": _unique_for,
    "unique_key": lambda _, value: value,
    "on_conflict": _one_of(*get_args(OnConflict)),
    "result_ttl": seconds,
    "max_crashes": _count,
    "delete_on_ack": _flag,
    "run_in": _one_of(*get_args(RunIn)),
    "delay": delay_s,
    "at": _at,
    "task_id": checked_name,
    "headers": _headers,
}
