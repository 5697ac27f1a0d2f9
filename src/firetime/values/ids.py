"""Ids that sort by the time they were made: UUID version 7 (RFC 9562, section 5.7), monotonic within a process."""

from __future__ import annotations

import re
import secrets
import threading
import time

from firetime.values.errors import InvalidOption
from firetime.values.forks import in_a_child

NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
"""What queue names, prefixes, task ids and task names may consist of."""

_COUNTER_STEP = 1 << 32


class _Source:
    """Where a process's ids come from."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A forked child that went on from its parent's counter would make the parent's ids."""
        self._lock = threading.RLock()
        self._drawing = False
        self._last_ms = 0
        self._latest = 0

    def next(self) -> int:
        """A number of 128 bits that is greater than the last one of this process."""
        with self._lock:
            now_ms = time.time_ns() // 1_000_000
            if self._drawing:
                # a signal handler, or a finalizer, has interrupted this very thread below
                return _first_of(max(now_ms, self._last_ms))
            self._drawing = True
            try:
                if now_ms > self._last_ms:
                    self._last_ms = now_ms
                    self._latest = _first_of(now_ms)
                else:
                    self._latest += _COUNTER_STEP
                return self._latest
            finally:
                self._drawing = False


def _first_of(now_ms: int) -> int:
    """48 bits of milliseconds, version 7, 12 random bits, variant 2, a counter of 30 bits, 32 random bits.

    The counter starts at random with its highest bit free, so that no millisecond can overflow it (RFC 9562, 6.2); random
    bits are drawn once a millisecond, for each costs as much as the rest of an id.
    """
    random = secrets.randbits(12 + 29 + 32)
    upper, counter, tail = random >> 61, random >> 32 & (1 << 29) - 1, random & (1 << 32) - 1
    return now_ms << 80 | 7 << 76 | upper << 64 | 2 << 62 | counter << 32 | tail


_source = _Source()
in_a_child(_source, _Source.restart)


def new_id() -> str:
    """A fresh id: 32 hex digits, later ones sort after earlier ones of the same process."""
    return f"{_source.next():032x}"


def new_token() -> str:
    """A random name for one worker, sender or leader; never the host's name, which collides."""
    return secrets.token_hex(8)


def is_utf8(text: str) -> bool:
    """Whether text can be written at all: lone surrogates, as ``os.fsdecode`` makes them, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(word: bytes) -> str:
    """An id or a name out of Redis; what somebody else wrote there may be any bytes, and must not stop its reader."""
    return word.decode("utf-8", "backslashreplace")


def is_text(word: bytes) -> bool:
    """Whether ``as_text`` gives what encodes to the same bytes again."""
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def checked_name(what: str, value: str) -> str:
    """``value`` when it may name a queue, prefix, task or id; ``InvalidOption`` otherwise."""
    if not isinstance(value, str) or NAME.fullmatch(value) is None:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(what, value, "1 to 100 of the characters A-Z a-z 0-9 _ . : -")
    return value
