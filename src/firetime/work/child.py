"""A process of its own runs one task after the other: errands come in over a line, reports go out."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType

import msgspec

from firetime.values.definition import Definition
from firetime.values.errors import InvalidTaskPayload, TaskExecutionError, Told
from firetime.values.message import Delivery
from firetime.values.verdict import Outcome, tell
from firetime.work.run import call_here
from firetime.work.whereabouts import SCRIPT, Whereabouts, arrive, become_child

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LENGTH = struct.Struct("!Q")
READY = b""


class Errand(msgspec.Struct, frozen=True):
    """One run, as it is handed over: in JSON, for the message's arguments are JSON already."""

    delivery: Delivery
    lease_s: float


class Report(msgspec.Struct, frozen=True):
    """How it ended."""

    duration_s: float
    value: bytes | None = None
    error: Told | None = None


errand_encoder = msgspec.json.Encoder()
_errand_decoder = msgspec.json.Decoder(Errand)
_report_encoder = msgspec.msgpack.Encoder()
report_decoder = msgspec.msgpack.Decoder(Report)


def send(line: socket.socket, frame: bytes) -> None:
    """One frame. Raises ``OSError`` when nobody is at the other end."""
    line.sendall(_LENGTH.pack(len(frame)) + frame)


def receive(line: socket.socket) -> bytes | None:
    """The next frame; None when the other end is gone."""
    head = _exactly(line, _LENGTH.size)
    return None if head is None else _exactly(line, _LENGTH.unpack(head)[0])


def main(line_fd: int, lifeline_fd: int, parent: int) -> None:
    """The whole life of a child process; the first frame says where the tasks are, the rest are errands."""
    become_child()
    _end_with(parent, lifeline_fd)
    # Ctrl-C and a supervisor's SIGTERM may reach the whole family: the worker decides what ends here. A handler that
    # does nothing, and not SIG_IGN, which the programs that a task starts would inherit
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _nothing)
    with socket.socket(fileno=line_fd) as line:
        line.set_inheritable(False)
        tasks = _arrived(line)
        with suppress(OSError):  # the worker is gone
            while (frame := receive(line)) is not None:
                send(line, _done(_errand_decoder.decode(frame), tasks))


def _arrived(line: socket.socket) -> Mapping[str, Definition]:
    where = msgspec.json.decode(receive(line) or b"", type=Whereabouts)
    try:
        tasks = arrive(where)
    except BaseException as error:  # noqa: BLE001 - user code: whatever importing it raises, the worker is to hear of it
        sys.excepthook(type(error), error, error.__traceback__)
        send(line, f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace"))
        sys.exit(1)
    send(line, READY)
    return tasks


def _done(errand: Errand, tasks: Mapping[str, Definition]) -> bytes:
    delivery = errand.delivery
    definition = tasks.get(delivery.task)
    if definition is None:
        reason = "it is not registered when its module is imported, so that no process can run it"
        told = Told(type=InvalidTaskPayload.__name__, text=f"{delivery.task}: {reason}", traceback="", retried=True)
        return _report_encoder.encode(Report(0.0, error=told))
    return _report_encoder.encode(_report(errand, definition, call_here(delivery, definition)))


def _report(errand: Errand, definition: Definition, outcome: Outcome) -> Report:
    if outcome.ending == "returned":
        return Report(outcome.duration_s, outcome.value)
    error = outcome.error or TaskExecutionError(definition.name, outcome.ending, "")
    failures = errand.delivery.state.failures + 1
    told = tell(error, definition.options, failures=failures, lease_s=errand.lease_s)
    # a script has another name here than in the worker
    own = {"type": told.type.replace(SCRIPT, "__main__"), "traceback": told.traceback.replace(SCRIPT, "__main__")}
    return Report(outcome.duration_s, error=msgspec.structs.replace(told, **own))


def _exactly(line: socket.socket, length: int) -> bytes | None:
    parts: list[bytes] = []
    while length > 0:
        part = line.recv(min(length, 1 << 20))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Hears a signal and goes on."""


def _end_with(parent: int, lifeline_fd: int) -> None:
    """This process ends when its worker does, however that ends: nobody would hear of what it does."""
    os.set_inheritable(lifeline_fd, False)  # noqa: FBT003 - theirs
    threading.Thread(target=_watch, args=(lifeline_fd,), name="firetime-lifeline", daemon=True).start()
    if sys.platform == "linux":
        # the thread above needs the GIL, which a task may hold for long: the kernel does not
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended before that
            os._exit(1)


def _watch(lifeline_fd: int) -> None:
    with suppress(OSError):
        os.read(lifeline_fd, 1)
    os._exit(1)
