"""A message is shown: what it is, what it was called with, what went wrong."""

from __future__ import annotations

from typing import Any

import msgspec

from firetime.faces.cli.paper import away, console, facts, instant, printable
from firetime.produce.control import Look
from firetime.values.dead_letter import DeadLetter, dead_letter
from firetime.values.ids import as_text
from firetime.values.message import UNREADABLE, Note
from firetime.values.states import Status

_WHEN = {Status.DELAYED: "due", Status.READY: "ready since", Status.RUNNING: "ready since", Status.DEAD: "died"}


def letter_of(look: Look) -> DeadLetter:
    """What is known of a message in any state, in the form that dead letters have."""
    return dead_letter(
        task_id=look.task_id,
        queue=look.queue,
        message=look.message,
        raw=look.raw,
        state=look.state,
        crashes=look.crashes,
        died_ms=look.fire_ms if look.status is Status.DEAD else None,
    )


def look_document(look: Look) -> dict[str, Any]:
    """A message as JSON has it."""
    document = letter_document(letter_of(look))
    message = look.message
    return document | {
        "status": look.status,
        "fire_ms": look.fire_ms if look.status is not Status.DEAD else None,
        "unique_key": message.unique_key if message is not None else None,
        "group": message.group if message is not None and message.group else None,
        "max_retry": message.max_retry if message is not None else None,
        "timeout_s": message.timeout_s if message is not None else None,
        "result": _value(look.value),
    }


def letter_document(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON has it; bytes that are no text are escaped."""
    document: dict[str, Any] = msgspec.to_builtins(letter)
    return document | {
        "raw": as_text(letter.raw),
        "fields": [as_text(field) for field in letter.fields],
        "errors": [{name: getattr(note, name) for name in Note.__struct_fields__} for note in letter.errors],
    }


def call_text(letter: DeadLetter) -> str:
    """The call as it was dispatched, or the bytes there are of one that cannot be read."""
    if not letter.task:
        return printable(as_text(letter.raw)) or "(no record)"
    words = [_json(value) for value in letter.args]
    words += [f"{name}={_json(value)}" for name, value in letter.kwargs.items()]
    return printable(f"{letter.task}({', '.join(words)})")


def show_look(look: Look, now_ms: int) -> None:
    """Prints a message in full."""
    message = look.message
    also: list[tuple[str, str]] = []
    if look.status in _WHEN:
        also.append((_WHEN[look.status], _when(look.fire_ms, now_ms)))
    if message is not None and message.unique_key is not None:
        also.append(("unique key", message.unique_key))
    if message is not None and message.group:
        also.append(("member of group", message.group))
    if look.value is not None:
        also.append(("result", _json(_value(look.value))))
    _show(letter_of(look), look.status.value, also, now_ms)


def show_letter(letter: DeadLetter, now_ms: int) -> None:
    """Prints a dead letter in full."""
    _show(letter, "dead", [("died", _when(letter.died_ms, now_ms))], now_ms)


def _show(letter: DeadLetter, status: str, also: list[tuple[str, str]], now_ms: int) -> None:
    reason = f" ({letter.reason})" if letter.reason and status == "dead" else ""
    rows = [
        ("id", letter.id),
        ("call", call_text(letter) if letter.task else ""),
        ("queue", letter.queue),
        ("status", f"{status}{reason}"),
        *also,
        ("priority", letter.priority if letter.task else ""),
        ("headers", _json(letter.headers) if letter.headers else ""),
        ("failures", str(letter.failures or "")),
        ("crashes", str(letter.crashes or "")),
        ("raw", as_text(letter.raw)),
    ]
    grid = facts()
    for name, value in rows:
        if value:
            grid.add_row(name, printable(value))
    out = console()
    out.print(grid)
    for note in letter.errors:
        heading = f"{_when(note.at_ms, now_ms)}: {printable(note.type)}: {printable(note.text)}"
        out.print(f"\n{heading}", style="bold", soft_wrap=True)
        out.print(printable(note.traceback).rstrip(), soft_wrap=True)


def _when(at_ms: int | None, now_ms: int) -> str:
    return f"{instant(at_ms, now_ms)}, {away(at_ms, now_ms)}"


def _value(encoded: bytes | None) -> Any:
    """A result: what the codec of firetime wrote is JSON."""
    if encoded is None:
        return None
    try:
        return msgspec.json.decode(encoded)
    except UNREADABLE:
        return as_text(encoded)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
