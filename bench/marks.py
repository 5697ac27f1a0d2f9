"""Which tasks have run, and when: a shared file that every process maps, one byte and one time for each number."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

CAPACITY = 2_000_000
"""Numbers that one system may give its tasks in one round."""

_TIME_BYTES = 8
PIDS = CAPACITY // 2


class Marks:
    """Tasks write, whoever measures reads. A task's number is its argument, so a lost or doubled run shows."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), CAPACITY * (1 + _TIME_BYTES))
        self.counts = memoryview(self._map)[:CAPACITY]
        """Runs of each number."""
        self.times_ns = memoryview(self._map)[CAPACITY:].cast("Q")
        """When each ``stamp`` task started, on the machine's monotonic clock; 0: not yet. Then, from ``PIDS`` on, where."""

    @classmethod
    def make(cls, path: Path) -> Marks:
        """A new, empty file; its pages exist only once they are written."""
        with path.open("wb") as file:
            file.truncate(CAPACITY * (1 + _TIME_BYTES))
        return cls(path)

    def done(self, numbers: range, runs: int = 1) -> int:
        """How many of the numbers have run exactly so often."""
        return bytes(self.counts[numbers.start : numbers.stop]).count(runs)

    def progress(self, numbers: range, runs: int = 1) -> float:
        """The same with a share for those that have run less often."""
        counts = bytes(self.counts[numbers.start : numbers.stop])
        return sum(each * counts.count(each) for each in range(1, runs + 1)) / runs


def of_this_process() -> Marks:
    """The file named in ``$BENCH_MARKS``."""
    return Marks(Path(os.environ["BENCH_MARKS"]))
