"""Signals come in and ask a process to stop: the first gently, the second at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Protocol, Self

from firetime.values.errors import BrokerUnavailable, RestartNeeded
from firetime.values.log import say
from firetime.worker.worker import Worker

_log = logging.getLogger("firetime.worker")
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 5.0
_SAY_S = 60.0
"""How often the log is told again that there is no server."""


class StopSignals:
    """SIGTERM and SIGINT, while it is open. A third does what it did before: it ends the process.

    ``hear`` is called in the event loop with 1, then with 2. Only the main thread of a process is sent signals: opened
    in another one, it hears none.
    """

    def __init__(self, hear: Callable[[int], None]) -> None:
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()
        self._count = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._take(number)
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()

    async def or_asked(self, *works: Coroutine[Any, Any, None]) -> None:
        """Until one of the works has ended, whose error is raised, or until the first signal; the rest is cancelled."""
        waits = [asyncio.ensure_future(work) for work in (*works, self._until_asked())]
        try:
            ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for each in ended:
            each.result()

    @property
    def asked(self) -> bool:
        """Whether a signal has come."""
        return self._asked.is_set()

    async def _until_asked(self) -> None:
        await self._asked.wait()

    def _take(self, number: signal.Signals) -> None:
        before = signal.getsignal(number)
        try:
            self._loop.add_signal_handler(number, self._came, number)
        except (NotImplementedError, RuntimeError, ValueError):
            # Windows has no such loops; and the next line, too, works in the main thread only
            try:
                signal.signal(number, self._interrupted)
            except ValueError:
                return
        self._before[number] = before

    def _interrupted(self, number: int, _frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._came, signal.Signals(number))

    def _came(self, number: signal.Signals) -> None:
        self._count += 1
        more = "stopping; a second signal cancels what runs" if self._count == 1 else "cancelling what runs"
        say(_log, logging.INFO, "%s: %s", number.name, more)
        self._asked.set()
        self._hear(self._count)
        if self._count == 2:
            self._give_back()

    def _give_back(self) -> None:
        while self._before:
            number, before = self._before.popitem()
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                self._loop.remove_signal_handler(number)
            if before is not None:
                signal.signal(number, before)


class Runs(Protocol):
    """The side of a runner that a process works by."""

    @property
    def worker(self) -> Worker | None: ...
    @property
    def address(self) -> str: ...
    async def start(self, *, workers: bool = True, scheduler: bool = True) -> None: ...
    async def aclose(self) -> None: ...


async def run_until_asked(runner: Runs, *, workers: bool, scheduler: bool, until_idle: bool) -> None:
    """Starts as soon as there is a server, works until a signal (or until idle), and stops as ``stop()`` does.

    Raises ``RestartNeeded`` after the same end, when its process has done its part.
    """

    def hear(count: int) -> None:
        if count == 2 and runner.worker is not None:
            runner.worker.hurry()

    spent = ""
    with StopSignals(hear) as signals:
        try:
            await signals.or_asked(_start_when_there(runner, workers=workers, scheduler=scheduler))
            if (worker := runner.worker) is not None:
                over = [worker.until_stopped(), worker.until_spent(), *([worker.until_idle()] if until_idle else [])]
                await signals.or_asked(*over)
                spent = worker.spent
        finally:
            await runner.aclose()
    if spent and not signals.asked:
        raise RestartNeeded(spent)


async def _start_when_there(runner: Runs, *, workers: bool, scheduler: bool) -> None:
    """Supervisors start things in any order: a server that is away is waited for, one that refuses is an error."""
    loop = asyncio.get_running_loop()
    pause_s, say_at = _FIRST_PAUSE_S, 0.0
    while True:
        try:
            return await runner.start(workers=workers, scheduler=scheduler)
        except BrokerUnavailable as error:
            if loop.time() >= say_at:
                say_at = loop.time() + _SAY_S
                say(_log, logging.WARNING, "waiting for a server: %s", error.reason)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
