"""A message out of attempts, as failure handlers and operators see it."""

from __future__ import annotations

from typing import Any

import msgspec

from firetime.values.message import UNREADABLE, Message, Note, State
from firetime.values.netstring import read_netstrings
from firetime.values.states import PRIORITIES, Priority


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a message that will not be run again by itself."""

    id: str
    queue: str
    task: str
    """The task's name; empty when the message cannot be read."""
    args: list[Any]
    kwargs: dict[str, Any]
    """Arguments as plain JSON values: the task's types are not needed to look at them."""
    priority: Priority
    headers: dict[str, str]
    reason: str
    """exhausted, failed, rejected, crashed, unknown, malformed or record lost."""
    failures: int
    crashes: int
    errors: list[Note]
    """The first and the last errors, oldest first: type, text, traceback, time in ms on the server's clock."""
    died_ms: int | None = None
    """When it became a dead letter, in ms on the server's clock."""
    raw: bytes = b""
    """The stored bytes of a message that cannot be read."""
    fields: list[bytes] = []
    """The fields of a stream entry that somebody else wrote."""


def dead_letter(
    *,
    task_id: str,
    queue: str,
    message: Message | None,
    raw: bytes,
    state: State,
    reason: str = "",
    crashes: int | None = None,
    died_ms: int | None = None,
) -> DeadLetter:
    """The view of a message for people."""
    args, kwargs = _arguments(message)
    foreign = task_id.startswith("malformed-")
    return DeadLetter(
        id=task_id,
        queue=queue,
        task=message.task if message is not None else "",
        args=args,
        kwargs=kwargs,
        priority=PRIORITIES.get(message.lane, "normal") if message is not None else "normal",
        headers=message.headers if message is not None else {},
        reason=reason or state.reason,
        failures=state.failures,
        crashes=state.crashes if crashes is None else crashes,
        errors=[*state.first, *state.last],
        died_ms=died_ms,
        raw=b"" if message is not None else raw,
        fields=read_netstrings(raw) if foreign and message is None else [],
    )


def _arguments(message: Message | None) -> tuple[list[Any], dict[str, Any]]:
    if message is None:
        return [], {}
    try:
        return msgspec.json.decode(message.args, type=tuple[list[Any], dict[str, Any]])
    except UNREADABLE:
        return [], {}
