"""For the tests of applications: run everything that is due, and travel in time, over the real scripts.

``drain(runner)`` runs what is ready, and what follows from it, to its end. ``VirtualClock(runner)`` moves the clock that
every script sees: ``await clock.advance(hours=24)`` runs a day of delays, retries and schedules in milliseconds. Leases,
results' and other times to live stay on the server's real clock. Both work on any server; the embedded one is at hand.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from firetime.produce.desk import Desk
from firetime.runner import TaskRunner
from firetime.store.clock import ServerClock
from firetime.store.keys import QueueKeys
from firetime.upkeep.beat import Beat
from firetime.upkeep.promote import Promoter
from firetime.values.errors import WrongContext
from firetime.worker import Worker

_NOBODY = "-"
"""The token of one who never leads: what it promotes is decided by the grace alone, which is none here."""


async def drain(runner: TaskRunner, *, delayed: bool = False) -> None:
    """Runs what is ready, and what that dispatches, until nothing is; with ``delayed`` also what is due later.

    With ``delayed`` it waits in real time; to skip the waiting use a ``VirtualClock``. The runner must not be started.
    """
    async with _working(runner, scheduler=delayed) as worker:
        while True:
            await worker.until_idle()
            if not delayed or not any([await runner.overview.delayed(queue, limit=1) for queue in runner.queues]):
                return
            await worker.until_news()


class VirtualClock:
    """The clock of one runner, as all its scripts see it.

    It stands where the server's clock stands and runs on with it; ``advance`` moves it forward. The runner must not
    be started: the virtual clock starts a worker when it needs one.
    """

    def __init__(self, runner: TaskRunner) -> None:
        self._runner = runner

    def now(self) -> datetime:
        """The virtual time, by this machine's clock; a test server runs on the same machine."""
        return datetime.now(UTC) + timedelta(microseconds=self._runner.clock_shift.us)

    async def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0, days: float = 0) -> None:
        """Moves time on, and runs on the way, each at its own time, everything that becomes due."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if span < timedelta(0):
            raise ValueError(f"advance by {span}: time only goes forward")
        await self.advance_to(self.now() + span)

    async def advance_to(self, moment: datetime) -> None:
        """Moves time on to an aware datetime, in the same way."""
        target_ms = int(moment.timestamp() * 1000)
        await self._runner.write_schedules()
        await drain(self._runner)
        while (due_ms := await self._next_due()) is not None and due_ms <= target_ms:
            self._move_to(due_ms)
            await self._promote_and_tick()
            await drain(self._runner)
        self._move_to(target_ms)

    def _move_to(self, at_ms: int) -> None:
        ahead_us = at_ms * 1000 - round(datetime.now(UTC).timestamp() * 1_000_000)
        self._runner.clock_shift.us = max(self._runner.clock_shift.us, ahead_us)

    async def _next_due(self) -> int | None:
        desk = self._runner.desk
        server = await desk.server()
        found: list[int] = []
        for queue in self._runner.queues:
            keys = desk.keys(queue)
            head = await server.ask("ZRANGE", keys.delayed, 0, 0, "WITHSCORES")
            slot = await server.ask("ZRANGE", keys.schedules_due, 0, 0, "WITHSCORES")
            found += [int(float(head[1]) // 4096)] if head else []
            found += [int(float(slot[1]))] if slot else []
        return min(found, default=None)

    async def _promote_and_tick(self) -> None:
        desk = self._runner.desk
        for queue in self._runner.queues:
            keys, clock = desk.keys(queue), ServerClock()
            await Beat(await desk.server(), keys, desk.house.codec, clock).tick()
            await self._promote(desk, keys, clock)

    async def _promote(self, desk: Desk, keys: QueueKeys, clock: ServerClock) -> None:
        promoter = Promoter(await desk.server(), keys, _NOBODY, clock, grace_s=0, batch=500)
        while (await promoter.tick()).moved:
            continue


@asynccontextmanager
async def _working(runner: TaskRunner, *, scheduler: bool) -> AsyncGenerator[Worker]:
    if runner.worker is not None:
        raise WrongContext("the runner is started already: testing works with one that is not")
    await runner.start(scheduler=scheduler)
    try:
        if runner.worker is not None:
            yield runner.worker
    finally:
        await runner.stop()
