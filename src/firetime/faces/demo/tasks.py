"""The tasks of the demo: one that does the real work, and those that show what may happen to a task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firetime import Fixed, Task, TaskRunner, current_task
from firetime.faces.demo.journal import Journal
from firetime.faces.demo.sources import Counts, measure

LEASE_S = 3.0
"""Short, so that the work of the killed worker is rescued soon; the default is 15 s."""

_KEEP_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """What the demo dispatches."""

    measure_file: Task[[str], Counts]
    on_time: Task[[], Any]
    fails_twice: Task[[], Any]
    fails_until_mended: Task[[], Any]
    only_once: Task[[], Any]


def make_runner(url: str) -> TaskRunner:
    """The runner of the demo, in workers and in the process that dispatches."""
    return TaskRunner(url, lease=LEASE_S, threads=2, shutdown=5.0)


def register(runner: TaskRunner, folder: Path) -> Tasks:
    """Registers the tasks; what they do is written into the folder's journal of this process."""
    journal = Journal(folder)

    @runner.task(result_ttl=_KEEP_S)
    def measure_file(path: str) -> Counts:
        with journal.run():
            return measure(Path(path))

    @runner.task(priority="high")
    async def on_time() -> None:
        with journal.run():
            pass

    @runner.task(priority="high", backoff=Fixed(0.2), max_retry=2)
    async def fails_twice() -> None:
        with journal.run():
            if current_task().failures < 2:
                raise ConnectionError("no answer yet")

    @runner.task(priority="high", backoff=Fixed(0.1), max_retry=1, result_ttl=_KEEP_S)
    async def fails_until_mended() -> str:
        with journal.run():
            if not mended(folder).exists():
                raise RuntimeError("always fails, until somebody mends it")
            return "mended"

    @runner.task(priority="high", unique_for="done")
    async def only_once() -> None:
        with journal.run():
            pass

    return Tasks(
        measure_file=measure_file,
        on_time=on_time,
        fails_twice=fails_twice,
        fails_until_mended=fails_until_mended,
        only_once=only_once,
    )


def mended(folder: Path) -> Path:
    """The file that lets the task work that always fails."""
    return folder / "mended"
