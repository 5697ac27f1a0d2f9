"""For the tests of applications: run everything that is due, and travel in time, over the real scripts.

``drain(runner)`` runs what is ready, and what follows from it, to its end. ``VirtualClock(runner)`` moves the clock that
every script sees: ``await clock.advance(hours=24)`` runs a day of delays, retries and schedules in milliseconds. Leases
and times to live (results, remembered ids) stay on the server's real clock, and so does whatever a task does itself:
``asyncio.sleep``, its ``timeout``. Both work on any server; the embedded one is at hand.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from firetime.runner import TaskRunner
from firetime.store.clock import ServerClock, fire_ms
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.upkeep.beat import Beat
from firetime.upkeep.promote import Promoter
from firetime.values.durations import LATEST_MS, epoch_ms
from firetime.values.errors import InvalidOption, WrongContext
from firetime.worker.worker import Worker

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_ASK_S = 0.05
"""How often whoever waits in real time looks whether there is still something to wait for."""

_NOBODY = "-"
"""The token of one who never leads: what it promotes is decided by the grace alone, which is none here."""


async def drain(runner: TaskRunner, *, delayed: bool = False) -> None:
    """Runs what is ready, and what that dispatches, until nothing is; with ``delayed`` also what is due later.

    With ``delayed`` it waits in real time; to skip the waiting use a ``VirtualClock``. The runner must not be started:
    ``WrongContext``.
    """
    async with _working(runner, scheduler=delayed) as worker:
        while True:
            # looked at before as well: what becomes due in between is not delayed any more, and not idle yet
            waits = await _any_delayed(runner)
            await worker.until_idle()
            waits = waits or await _any_delayed(runner)
            if not delayed or not waits:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_ASK_S):
                    await worker.until_news()


class VirtualClock:
    """The clock of one runner, as all its scripts see it.

    It shows the server's time and runs on with it until it is moved, forward and never back. While it ``advance``s it stands
    still at each instant until all that is due then has taken place. Only this runner sees it move: another one on the
    same queues goes by the real time. The runner must not be started: the virtual clock starts its worker while it
    advances.
    """

    def __init__(self, runner: TaskRunner) -> None:
        self._runner = runner
        self._shift = runner.clock_shift
        self._clock = ServerClock()
        self._attended_ms = 0

    def now(self) -> datetime:
        """The virtual time, by this machine's clock; a server of tests runs on the same machine."""
        real_us = datetime.now(UTC) - _EPOCH
        return _EPOCH + timedelta(microseconds=self._shift.seen_us(real_us // _US))

    async def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Moves time on, and runs on the way, each at its own time, everything that becomes due.

        Also what is ready now. Raises ``InvalidOption`` for a step back, ``WrongContext`` when the runner is started.
        """
        span = _forward(days=days, hours=hours, minutes=minutes, seconds=seconds)
        await self._advance(lambda now_us: now_us + span // _US)

    async def advance_to(self, moment: datetime) -> None:
        """Moves time on to an aware datetime, in the same way."""
        target_us = epoch_ms("moment", moment) * 1000
        if target_us < await self._now_us():
            raise InvalidOption("moment", moment, "an instant to come: time never goes back")
        await self._advance(lambda _: target_us)

    async def skip(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Moves time on as if nobody had worked meanwhile: what became due waits, slots are missed.

        The next ``advance``, also by nothing, is the end of that outage.
        """
        span = _forward(days=days, hours=hours, minutes=minutes, seconds=seconds)
        _check_not_started(self._runner)
        await self._runner.write_schedules()
        self._shift.us += span // _US
        self._attended_ms = await self._now_us() // 1000

    async def _advance(self, target: Callable[[int], int]) -> None:
        async with _working(self._runner, scheduler=False) as worker, self._standing_still() as now_us:
            target_us = target(now_us)
            if target_us > LATEST_MS * 1000:
                raise InvalidOption("advance", target_us // 1_000_000, "a time before the year 2200")
            await self._runner.write_schedules()
            await worker.until_idle()
            while (due_us := min(dues := await self._dues(), default=target_us + 1)) <= target_us:
                self._move_to(due_us)
                for take_place in dues[due_us]:
                    await take_place()
                await worker.until_idle()
            self._move_to(target_us)

    @asynccontextmanager
    async def _standing_still(self) -> AsyncGenerator[int]:
        """Time passes only where it is moved; afterwards it runs on from there."""
        # whole milliseconds, as fire-times are: what is sent now for an hour later is due in an hour, to the microsecond
        now_us = self._shift.stopped_us = -(-await self._now_us() // 1000) * 1000
        try:
            yield now_us
        finally:
            stopped_us, self._shift.stopped_us = self._shift.stopped_us, None
            self._shift.us += stopped_us - await self._now_us()

    def _move_to(self, at_us: int) -> None:
        self._shift.stopped_us = max(self._shift.stopped_us or 0, at_us)

    async def _now_us(self) -> int:
        return await (await self._runner.desk.server()).now_us()

    async def _dues(self) -> dict[int, list[Callable[[], Awaitable[None]]]]:
        """When something is due next in each queue, in us, and what then takes place."""
        server = await self._runner.desk.server()
        found: defaultdict[int, list[Callable[[], Awaitable[None]]]] = defaultdict(list)
        for keys in [each for queue in self._runner.queues for each in await self._runner.desk.all_keys(queue)]:
            if slot := await server.ask("ZRANGE", keys.schedules_due, 0, 0, "WITHSCORES"):
                found[int(float(slot[1])) * 1000].append(partial(self._tick, server, keys))
            if head := await server.ask("ZRANGE", keys.delayed, 0, 0, "WITHSCORES"):
                found[fire_ms(head[1]) * 1000].append(partial(self._promote, server, keys))
        return found

    async def _promote(self, server: Server, keys: QueueKeys) -> None:
        promoter = Promoter(server, keys, _NOBODY, self._clock, grace_s=0, batch=500)
        while (await promoter.tick()).moved:
            continue

    async def _tick(self, server: Server, keys: QueueKeys) -> None:
        beat = Beat(server, keys, self._runner.desk.house.codec, self._clock)
        beaten = await beat.tick(attended_ms=self._attended_ms)
        if beaten.unreadable:
            raise beaten.unreadable[0]


@asynccontextmanager
async def _working(runner: TaskRunner, *, scheduler: bool) -> AsyncGenerator[Worker]:
    _check_not_started(runner)
    await runner.start(scheduler=scheduler)
    try:
        if runner.worker is not None:
            yield runner.worker
    finally:
        await runner.stop()


async def _any_delayed(runner: TaskRunner) -> bool:
    return any([await runner.overview.delayed(queue, limit=1) for queue in runner.queues])


def _forward(**spans: float) -> timedelta:
    try:
        span = timedelta(**spans)
    except (OverflowError, TypeError, ValueError):
        span = timedelta(-1)
    if span < timedelta(0):
        raise InvalidOption("advance", spans, "a step forward, in days, hours, minutes and seconds")
    return span


def _check_not_started(runner: TaskRunner) -> None:
    if runner.worker is not None:
        raise WrongContext("the runner is started already: testing works with one that is not")
