"""What the tasks of every system do: nothing but leave a mark. Each adapter registers them in its system's way."""

from __future__ import annotations

import asyncio
import os
import time

from bench.kinds import SLEEP_S
from bench.marks import PIDS, of_this_process

_marks = of_this_process()
_counts, _times_ns = _marks.counts, _marks.times_ns


class Again(Exception):
    """What the first run of a ``flaky`` task raises."""


def noop(number: int) -> None:
    """Leaves its mark."""
    _counts[number] += 1


plain = noop
"""The same, for the systems that run a ``def`` beside coroutines in a thread."""


def nap(number: int) -> None:
    """Blocks for 10 ms first."""
    time.sleep(SLEEP_S)
    _counts[number] += 1


async def sleep(number: int) -> None:
    """Waits for 10 ms first."""
    await asyncio.sleep(SLEEP_S)
    _counts[number] += 1


def flaky(number: int) -> None:
    """Fails the first time."""
    _counts[number] += 1
    if _counts[number] == 1:
        raise Again


def stamp(number: int) -> None:
    """Says when it started, and where."""
    _times_ns[number] = time.monotonic_ns()
    _times_ns[PIDS + number] = os.getpid()
    _counts[number] += 1
