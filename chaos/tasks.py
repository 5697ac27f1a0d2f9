"""The tasks of the load: each tells the journal that it started and how it ended, whatever ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from chaos.journal import Journal
from chaos.plan import QUEUES, Plan, runner_settings
from firetime import CurrentTask, Fixed, TaskRunner, current_task
from firetime.values.dead_letter import DeadLetter
from firetime.values.events import Event, TaskEvent

TICK_S = 1.0
"""How often the recurring task runs."""

DOOMED_RUNS = 2
MANY_CRASHES = 1000
"""Workers are killed all the time here: no task may become a dead letter for that, or nothing would be proved."""


def make_runner(url: str, plan: Plan) -> TaskRunner:
    """The runner of a process of the run, without tasks."""
    return TaskRunner(url, queues=QUEUES, **runner_settings(plan))


_LIVES: dict[str, Any] = {"max_crashes": MANY_CRASHES, "max_retry": 5, "backoff": Fixed(0.2)}


def register(runner: TaskRunner, journal: Journal | None = None) -> None:
    """Registers the tasks; who only dispatches them needs no journal for their runs."""
    runs = Runs(journal)
    for function, own in (
        (runs.plain, {}),
        (runs.thread, {}),
        (runs.flaky, {}),
        (runs.doomed, {"max_retry": DOOMED_RUNS - 1, "backoff": Fixed(0.1)}),
        (runs.overdue, {"max_retry": 0, "timeout": 0.2}),
        (runs.unique, {"unique_for": "done", "unique_key": _key}),
        (runs.long, {}),
        (runs.long_thread, {}),
        (runs.kept, {"delete_on_ack": False}),
        (runs.block, {}),
        (runs.kill, {"max_crashes": 1}),
    ):
        runner.task(**{**_LIVES, **own})(function)
    runner.every(TICK_S, name="tick")(runner.task(**_LIVES, queue=QUEUES[0])(runs.tick))


class Runs:
    """What the tasks do."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal

    @contextmanager
    def _run(self, number: int) -> Generator[CurrentTask]:
        now, journal = current_task(), self._journal
        if journal is None:
            raise RuntimeError("a process that only dispatches was given a task to run")
        times = now.failures, now.crashes, now.fire_ms or 0, now.nominal_ms or 0
        journal.tell("s", now.id, number, now.name, now.queue, now.fence, *times)
        how = "stopped"
        try:
            yield now
            how = "good"
        except Exception:
            how = "failed"
            raise
        finally:
            journal.tell("e", now.id, now.fence, how)

    async def plain(self, n: int) -> None:
        with self._run(n):
            pass

    def thread(self, n: int) -> None:
        with self._run(n):
            pass

    async def flaky(self, n: int, times: int) -> None:
        with self._run(n) as now:
            _fail_the_first(times, now)

    async def doomed(self, n: int) -> None:
        with self._run(n):
            raise ValueError("this one always fails")

    async def overdue(self, n: int) -> None:
        with self._run(n):
            await asyncio.sleep(60)

    async def unique(self, n: int, key: str, times: int) -> None:
        with self._run(n) as now:
            await asyncio.sleep(0.005)
            _fail_the_first(times, now)

    async def long(self, n: int, seconds: float) -> None:
        with self._run(n):
            await asyncio.sleep(seconds)

    def long_thread(self, n: int, seconds: float) -> None:
        with self._run(n):
            time.sleep(seconds)

    async def kept(self, n: int) -> None:
        with self._run(n):
            pass

    async def block(self, n: int, seconds: float) -> None:
        with self._run(n):
            time.sleep(seconds)  # that is the point

    async def kill(self, n: int) -> None:
        with self._run(n):
            os.kill(os.getpid(), signal.SIGKILL)

    async def tick(self) -> None:
        with self._run(0):
            pass


def _key(n: int, key: str, times: int) -> str:
    return key


def tell_all(runner: TaskRunner, journal: Journal) -> None:
    """What the server said to settlements, and whom the failure handler was told of, goes into the journal too."""

    def tell(event: Event) -> None:
        if isinstance(event, TaskEvent) and event.what in ("settled", "refused"):
            what = "refused" if event.what == "refused" else type(event.verdict).__name__
            journal.tell("t", event.delivery.task_id, event.delivery.number, what)

    runner.events.subscribe(tell)

    @runner.on_failed
    def buried(letter: DeadLetter, error: BaseException) -> None:
        journal.tell("d", letter.id, letter.reason)


def _fail_the_first(times: int, now: CurrentTask) -> None:
    if now.failures < times:
        raise ConnectionError("not yet")
