"""Messages that were sent are looked at and called back; every answer tells what was found, in one script call."""

from __future__ import annotations

import msgspec

from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.values.codec import Guarded
from firetime.values.errors import InvalidTaskPayload
from firetime.values.message import Message, State
from firetime.values.states import CancelAnswer, RescheduleAnswer, Status

_CANCEL_ANSWERS = {
    b"cancelled": CancelAnswer.CANCELLED,
    b"requested": CancelAnswer.REQUESTED,
    b"finished": CancelAnswer.FINISHED,
    b"not found": CancelAnswer.NOT_FOUND,
}
_RESCHEDULE_ANSWERS = {
    b"rescheduled": RescheduleAnswer.RESCHEDULED,
    b"ready": RescheduleAnswer.READY,
    b"running": RescheduleAnswer.RUNNING,
    b"finished": RescheduleAnswer.FINISHED,
    b"not found": RescheduleAnswer.NOT_FOUND,
}
_ENDED = {b"done": Status.DONE, b"cancelled": Status.CANCELLED}


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a message found."""

    task_id: str
    queue: str
    status: Status
    message: Message | None
    """None when it is gone, or cannot be read: then ``raw`` is what there is."""
    raw: bytes
    state: State
    fire_ms: int | None
    """When it is or was due, ready or (a dead letter) dead: ms on the server's clock."""
    crashes: int = 0
    value: bytes | None = None
    """The encoded result."""
    value_problem: str = ""
    """Why the result cannot be trusted; ``value`` is then what is stored."""


async def look(server: Server, keys: QueueKeys, task_id: str, codec: Guarded) -> Look:
    """Where a message is and what is known of it."""
    told = await server.run("status", keys, {"id": task_id}, ended=keys.ended(task_id), result=keys.result(task_id))
    status, when, record, stored_state, deliveries, outcome, value = told
    state = codec.read_state(stored_state, keys.queue, task_id)
    value, problem = _opened(value, keys.queue, task_id, codec)
    return Look(
        task_id=task_id,
        queue=keys.logical,
        status=_status(status, outcome, value),
        message=read_message(record, codec, keys.queue, task_id),
        raw=record or b"",
        state=state,
        fire_ms=int(float(when)) if when else None,
        crashes=state.crashes + max(0, deliveries - 1),
        value=value,
        value_problem=problem,
    )


async def cancel(server: Server, keys: QueueKeys, task_id: str, codec: Guarded, *, remember_s: float) -> CancelAnswer:
    """Takes a waiting message back, or asks a running one to stop. A group that loses a member so is given up."""
    record = await server.ask("HGET", keys.tasks, task_id)
    message = read_message(record, codec, keys.queue, task_id)
    answer = await server.run(
        "cancel",
        keys,
        {
            "id": task_id,
            "unique_key": (message.unique_key or "") if message else "",
            "remember_ms": max(1, round(remember_s * 1000)),
            "control_channel": keys.control_channel,
            "ended_channel": keys.ended_channel,
        },
        ended=keys.ended(task_id),
    )
    if answer == b"cancelled" and message is not None and message.group:
        await server.ask("DEL", keys.group(message.group))
    return _CANCEL_ANSWERS[answer]


async def reschedule(
    server: Server, keys: QueueKeys, task_id: str, codec: Guarded, *, kind: str, time: int
) -> RescheduleAnswer:
    """Moves a delayed message: ``kind`` "in" and microseconds from now, or "at" and milliseconds since 1970."""
    message = read_message(await server.ask("HGET", keys.tasks, task_id), codec, keys.queue, task_id)
    arguments: dict[str, str | bytes | int] = {
        "id": task_id,
        "kind": kind,
        "time": time,
        "unique_key": (message.unique_key or "") if message else "",
        "hold_ms": message.unique_ms if message else 0,
    }
    answer, _fire_ms = await server.run("reschedule", keys, arguments, ended=keys.ended(task_id))
    return _RESCHEDULE_ANSWERS[answer]


def _status(status: bytes, outcome: bytes | None, value: bytes | None) -> Status:
    if status != b"ended":
        return Status(status.decode())
    word = (outcome or b"").split(b" ")
    ended = _ENDED.get(word[0], Status.DONE)
    kept_a_value = b"value" in word
    return Status.EXPIRED if ended is Status.DONE and kept_a_value and value is None else ended


def _opened(value: bytes | None, queue: str, task_id: str, codec: Guarded) -> tuple[bytes | None, str]:
    try:
        return (None if value is None else codec.unwrap(value, "result", queue, task_id)), ""
    except InvalidTaskPayload as error:
        return value, error.reason


def read_message(record: bytes | None, codec: Guarded, queue: str, task_id: str) -> Message | None:
    """The message of a record; None when there is none, or when it cannot be read."""
    if not record:
        return None
    try:
        return codec.decode(record, queue, task_id)
    except InvalidTaskPayload:
        return None
