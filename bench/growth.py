"""How firetime's cost grows: with messages waiting, workers, queues and payloads. Flat where it should be flat."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from bench.marks import Marks
from bench.processes import Broken, Place
from bench.server import Server
from bench.systems import BY_NAME
from bench.table import number
from bench.track import Track

WAITING = (1_000, 10_000, 100_000, 1_000_000)
WORKERS = (1, 2, 4, 8)
QUEUES = (1, 10, 100)
PAYLOADS = {"100 B": 100, "10 KiB": 10 * 1024, "1 MiB": 1024 * 1024 - 512}
"""The largest message that is accepted has 1 MiB, with its envelope."""

ROUNDS = 3
_MOST_DRAINED = 20_000


@dataclass(frozen=True, slots=True)
class Point:
    """One line of the table: what is asked of firetime."""

    title: str
    waiting: int
    drained: int
    workers: int = 1
    variant: str = ""
    rounds: int = ROUNDS
    chunk: int = 1000


def points() -> Iterator[Point]:
    """Every line."""
    for waiting in WAITING:
        drained = min(waiting, _MOST_DRAINED)
        yield Point(f"{waiting:,} waiting", waiting, drained, rounds=1 if waiting >= WAITING[-1] else ROUNDS)
    for workers in WORKERS:
        yield Point(f"{workers} worker{'s' * (workers > 1)}", 24_000, 24_000, workers=workers)
    for queues in QUEUES:
        yield Point(f"{queues} queue{'s' * (queues > 1)}, in turn", 10_000, 10_000, variant=f"queues={queues}")
    for title, size in PAYLOADS.items():
        count = max(40, min(10_000, 30 * 1024 * 1024 // size))
        yield Point(f"payload {title}", count, count, variant=f"payload={size}", chunk=max(1, min(1000, count // 4)))


HEADING = [
    "firetime with",
    "messages",
    "drained",
    "dispatch /s",
    "drain /s",
    "client us a dispatch",
    "server us a dispatch",
    "worker us a task",
    "server us a task",
    "server B a message",
]


_COLUMNS = ("bulk", "drain", "dispatch_cpu", "dispatch_server", "drain_cpu", "drain_server", "bytes")


def grow(place: Place, server: Server, say: Callable[[str], None]) -> list[list[str]]:
    """The table, its heading first."""
    marks = Marks.make(place.marks)
    lines = [HEADING]
    for point in points():
        began = time.monotonic()
        try:
            measured = [_measure(place, server, marks, point) for _ in range(point.rounds)]
            figures = [median(column) for column in zip(*measured, strict=True)]
            cells = [number(each, 1 if 2 <= column <= 5 else 0) for column, each in enumerate(figures)]
        except Broken as error:
            cells = [str(error), *[""] * (len(HEADING) - 4)]
        lines.append([point.title, f"{point.waiting:,}", f"{point.drained:,}", *cells])
        say(f"growth  {point.title:22} {time.monotonic() - began:5.1f} s")
    return lines


def _measure(place: Place, server: Server, marks: Marks, point: Point) -> list[float]:
    server.empty()
    track = Track(place, server, marks, replace(BY_NAME["firetime"], variant=point.variant))
    figures = track.filled_and_drained(point.waiting, point.drained, point.workers, point.chunk)
    return [figures[key] for key in _COLUMNS]
