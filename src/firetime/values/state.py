"""The state of a message as Redis keeps it: two counters that scripts may move, then JSON that they never read.

``<crashes> <deliveries> {json}``: an edge that puts a message back carries the counters along by itself, because a
new stream entry starts counting deliveries anew.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

import msgspec

from firetime.values.errors import FailedElsewhere
from firetime.values.message import UNREADABLE, Note, State

KEPT_NOTES = 9
"""How many of the first and of the last errors are kept."""

MOST_TRACEBACK = 16 * 1024
"""Bytes kept of a traceback: its end, which names the cause."""

_MOST_TEXT = 4 * 1024
_decoder = msgspec.json.Decoder(State)
_encoder = msgspec.json.Encoder()
FRESH = State()


def read_state(raw: bytes | None, opened: Callable[[bytes], bytes] | None = None) -> State:
    """The state out of its stored form; fresh when there is none, or when somebody else wrote something there.

    ``opened`` opens the seal of what stands behind the counters, which scripts write as ``{}`` where they begin anew.
    """
    if not raw:
        return FRESH
    try:
        crashes, deliveries, body = raw.split(b" ", 2)
        if opened is not None and body != b"{}":
            body = opened(body)
        counted = {"crashes": int(crashes), "deliveries": int(deliveries)}
        return msgspec.structs.replace(_decoder.decode(body), **counted)
    except (ValueError, *UNREADABLE):
        return FRESH


def write_state(state: State, sealed: Callable[[bytes], bytes] | None = None) -> bytes:
    """The stored form; ``sealed`` seals what is more than counters."""
    body = _encoder.encode(msgspec.structs.replace(state, crashes=0, deliveries=0))
    if sealed is not None:
        body = sealed(body)
    return b"%d %d %b" % (state.crashes, state.deliveries, body)


def note(error: BaseException, at_ms: int) -> Note:
    """An error as it is kept. A failing ``str()`` of user code's error must not lose the failure itself."""
    if isinstance(error, FailedElsewhere):
        return Note(error.cause_type, error.cause_text, error.traceback, at_ms)
    try:
        text = str(error)[:_MOST_TEXT]
        trace = "".join(traceback.format_exception(error))[-MOST_TRACEBACK:]
    except BaseException as failing:  # noqa: BLE001 - str() of an error is user code
        text = trace = f"<its text raised {type(failing).__name__}>"
    text = _printable(text)[:_MOST_TEXT].decode("utf-8", "ignore")
    trace = _printable(trace)[-MOST_TRACEBACK:].decode("utf-8", "ignore")
    return Note(_type_name(error), text, trace, at_ms)


def with_note(state: State, added: Note) -> State:
    """The state with one more error: the first nine and the last nine are kept."""
    if len(state.first) < KEPT_NOTES:
        return msgspec.structs.replace(state, first=(*state.first, added))
    return msgspec.structs.replace(state, last=(*state.last, added)[-KEPT_NOTES:])


def newest(state: State) -> Note | None:
    """The latest error noted, if any."""
    notes = state.last or state.first
    return notes[-1] if notes else None


def _type_name(error: BaseException) -> str:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return _printable(name)[:_MOST_TEXT].decode("utf-8", "ignore")


def _printable(text: str) -> bytes:
    # lone surrogates, as os.fsdecode makes them, have no UTF-8 form
    return text.encode("utf-8", "backslashreplace")
