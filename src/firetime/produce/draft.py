"""A call of a task becomes a message with its address: where, under which id, when."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from firetime.produce.spread import Spread
from firetime.values.codec import Guarded
from firetime.values.definition import Definition, encode_call
from firetime.values.errors import DelayTooShort, InvalidTaskPayload, UniqueForRequired
from firetime.values.ids import is_utf8, new_id
from firetime.values.message import Message, Parcel, lane_of
from firetime.values.options import DispatchOptions, TaskOptions

_NO_TASK = TaskOptions()
_NO_HEADERS: dict[str, str] = {}


class House(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner asks of every message."""

    codec: Guarded
    max_payload: int
    """Bytes of a record."""
    remember_s: float
    """How long an explicit id is remembered after its end."""
    min_delay_s: float
    spread: Spread | None = None
    """None where no queue has shards."""


def draft(
    task: Definition | str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: DispatchOptions, house: House
) -> Parcel:
    """The message of one dispatch. A task given by its name only is sent unchecked: its code is elsewhere.

    Raises ``InvalidTaskPayload``, ``UniqueForRequired``, ``DelayTooShort``.
    """
    name = task if isinstance(task, str) else task.name
    defaults = _NO_TASK if isinstance(task, str) else task.options
    encoded = encode_call(name, args, kwargs) if isinstance(task, str) else task.encode(args, kwargs)
    if options.delay_s is not None and options.delay_s < house.min_delay_s:
        raise DelayTooShort(options.delay_s, house.min_delay_s)
    unique_for = defaults.unique_for if options.unique_for is None else options.unique_for
    if options.unique_key is not None and unique_for is None:
        raise UniqueForRequired(name)
    result_s = defaults.result_s if options.result_s is None else options.result_s
    message = Message(
        task=name,
        args=msgspec.Raw(encoded),
        lane=lane_of(options.priority or defaults.priority),
        unique_key=None if unique_for is None else _unique_key(task, args, kwargs, options),
        unique_ms=_unique_ms(unique_for),
        result_ms=_ms(result_s),
        remember_ms=_ms(house.remember_s) if options.task_id is not None else 0,
        max_retry=options.max_retry,
        timeout_s=options.timeout_s,
        headers=options.headers or _NO_HEADERS,
    )
    queue, task_id = options.queue or defaults.queue, options.task_id or new_id()
    if house.spread is not None:
        explicit = options.task_id is not None
        queue, task_id = house.spread.place(queue, task_id, key=message.unique_key, explicit=explicit)
    on_conflict = options.on_conflict or defaults.on_conflict
    record = record_of(message, queue, bound_to(message, task_id, on_conflict), house)
    return Parcel(
        queue=queue,
        task_id=task_id,
        message=message,
        record=record,
        explicit_id=options.task_id is not None,
        delay_us=round(options.delay_s * 1_000_000) if options.delay_s else 0,
        at_ms=options.at_ms,
        on_conflict=on_conflict,
    )


def record_of(message: Message, queue: str, task_id: str, house: House) -> bytes:
    """The message as it is kept, sealed for its queue and id. Raises ``InvalidTaskPayload`` for one that is too large."""
    record = house.codec.encode(message, queue, task_id)
    if len(record) > house.max_payload:
        reason = f"its message has {len(record)} bytes, more than max_payload={house.max_payload}"
        raise InvalidTaskPayload(message.task, reason)
    return record


def bound_to(message: Message, task_id: str, on_conflict: str) -> str:
    """The id that a record is sealed for: none where it may go out under the id of the message it replaces."""
    return "" if message.unique_key is not None and on_conflict == "replace" else task_id


def _unique_key(
    task: Definition | str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: DispatchOptions
) -> str:
    name = task if isinstance(task, str) else task.name
    if options.unique_key is not None:
        return f"{name}:{options.unique_key}"
    if not isinstance(task, str) and task.options.unique_key is not None:
        key = f"{name}:{task.options.unique_key(*args, **kwargs)}"
        if not is_utf8(key):
            raise InvalidTaskPayload(name, f"its unique key {key!r} has no UTF-8 form")
        return key
    return f"{name}:{hashlib.sha256(_bound(task, args, kwargs)).hexdigest()[:32]}"


def _bound(task: Definition | str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """The arguments with their names and defaults, so that f(1) and f(shop=1) are the same call."""
    if isinstance(task, str):
        return encode_call(task, args, dict(sorted(kwargs.items())))
    bound = task.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return encode_call(task.name, (), bound.arguments)


def _unique_ms(unique_for: float | Literal["done"] | None) -> int:
    return 0 if unique_for is None or unique_for == "done" else _ms(unique_for)


def _ms(duration_s: float) -> int:
    # what is asked for at all is kept for a millisecond at least: 0 means "not at all"
    return max(1, round(duration_s * 1000)) if duration_s > 0 else 0
