"""The wall clock of this process, moved from outside while it runs; its steady clock is left alone.

Moved is what Python code sees: ``time.time``, ``time.time_ns``, ``datetime.now``. It has to be called before the modules
that are to see it are imported. ``true_us`` still tells the machine's time.
"""

from __future__ import annotations

import datetime as dt
import mmap
import struct
import time
from pathlib import Path
from typing import Any

_SHIFT = struct.Struct("d")
_REAL = dt.datetime


def true_us() -> int:
    """The machine's own time, in microseconds since 1970: the server's, too, which runs on this machine."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000


def move(path: Path, seconds: float) -> None:
    """From now on the process that lives by this file sees its clock moved by so much."""
    with path.open("r+b") as file:
        file.write(_SHIFT.pack(seconds))


def make(path: Path) -> None:
    """A file to live by, with a clock that is right."""
    path.write_bytes(_SHIFT.pack(0.0))


def live_by(path: Path) -> None:
    """This process sees the time as the file says."""
    with path.open("rb") as file:
        shared = mmap.mmap(file.fileno(), _SHIFT.size, prot=mmap.PROT_READ)

    def shift_s() -> float:
        moved: float = _SHIFT.unpack_from(shared)[0]
        return moved

    time.time = lambda: true_us() / 1e6 + shift_s()
    time.time_ns = lambda: true_us() * 1000 + round(shift_s() * 1e9)
    dt.datetime = _Moved  # type: ignore[misc]


class _Kin(type):
    """Real instants count as instances of the class that has taken their place."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL)


class _Moved(dt.datetime, metaclass=_Kin):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return _REAL.fromtimestamp(time.time(), tz)
