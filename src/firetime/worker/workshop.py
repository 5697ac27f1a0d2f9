"""What the parts of one worker share."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firetime.store.clock import ServerClock
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.upkeep.lease import Held
from firetime.values.codec import Guarded
from firetime.values.dead_letter import DeadLetter
from firetime.values.definition import Definition
from firetime.values.errors import QueueError
from firetime.values.events import Events, Trouble, WorkerEvent
from firetime.values.settings import Settings
from firetime.work.whereabouts import Whereabouts
from firetime.worker.hooks import Hooks

FailureHandler = Callable[[DeadLetter, BaseException], Awaitable[Any] | Any]
"""Told of a message out of attempts before it becomes a dead letter; raising makes firetime tell it again later."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """One worker's tools and surroundings."""

    token: str
    """The worker's name: its consumer, its candidacy, its entry in the register."""
    settings: Settings
    server: Server
    queues: Mapping[str, QueueKeys]
    tasks: Mapping[str, Definition]
    codec: Guarded
    events: Events
    failure_handlers: list[FailureHandler]
    hooks: Hooks
    restore_schedules: Callable[[str], Awaitable[None]]
    """Writes the schedules that code declares for a queue, those that are there no more: the server has lost data."""
    whereabouts: Callable[[], Whereabouts | None]
    """How another process gets to the tasks. Raises ``InvalidOption`` where it cannot."""
    clock: ServerClock = field(default_factory=ServerClock)
    held: Held = field(default_factory=Held)


class Stir:
    """Wakes whoever waits for something to have changed. Look first, then wait: nothing comes between the two."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        """Something has changed."""
        if self._waiters:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Until the next change, or until time is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return


class Health:
    """Which loops of a worker cannot do their work now. Trouble is told when it begins and when it is over."""

    def __init__(
        self, shop: Workshop, *, on_back: Callable[[], None], on_outage_over: Callable[[], None] = lambda: None
    ) -> None:
        self._shop = shop
        self._on_back = on_back
        self._on_outage_over = on_outage_over
        self._down: dict[str, tuple[float, str]] = {}
        """Loop -> since when, and why."""
        self._due: dict[str, float] = {}
        """Loop -> when it will have turned again, at the latest."""

    @property
    def troubled(self) -> frozenset[str]:
        """The loops that are in trouble."""
        return frozenset(self._down)

    @property
    def cut_off(self) -> bool:
        """Whether the server may be away, or has just come back: a loop that always talks to it is in trouble."""
        return any(map(_sees_outages, self._down))

    def turns(self, loop: str, within_s: float) -> None:
        """A loop turns, and will have done so again within that time; ``inf``: it waits for what may never come."""
        self._due[loop] = time.monotonic() + within_s

    def failing_for(self, least_s: float) -> dict[str, str]:
        """The loops that have failed for so long, and why; from any thread."""
        now = time.monotonic()
        return {
            loop: f"has failed for {now - since:.1f} s: {why}"
            for loop, (since, why) in tuple(self._down.items())
            if now - since >= least_s
        }

    def stuck(self, loop_turned: float) -> dict[str, str]:
        """The loops that should have turned by ``loop_turned``, when the event loop did; from any thread."""
        late = {loop: loop_turned - due for loop, due in tuple(self._due.items())}
        return {loop: f"should have turned {late_s:.1f} s ago" for loop, late_s in late.items() if late_s > 0}

    def lost(self, loop: str, error: QueueError) -> None:
        """A loop has failed."""
        if loop not in self._down:
            first = not self._down
            echo = any(_alike(loop, other) for other in self._down)
            self._down[loop] = time.monotonic(), str(error)
            if first:
                self._shop.events.emit(WorkerEvent("disconnected", self._shop.token, detail=str(error)))
            self._shop.events.emit(Trouble(error, echo))

    def back(self, loop: str) -> None:
        """A loop has succeeded."""
        if loop in self._down:
            del self._down[loop]
            if _sees_outages(loop):
                self._on_outage_over()
            self._on_back()
            if not self._down:
                self._shop.events.emit(WorkerEvent("reconnected", self._shop.token))


def _alike(loop: str, other: str) -> bool:
    # "claim from one", "claim from another": with many queues an outage must not fill the log
    return loop.partition(" ")[0] == other.partition(" ")[0]


def _sees_outages(loop: str) -> bool:
    # a subscription may be cut for being idle, again and again, and a bell is not listened to while there is enough to do
    return loop.startswith(("claim", "renewal"))


class Patience:
    """How one loop bears an outage: with growing pauses, spread so that a fleet does not return in one instant."""

    def __init__(self, health: Health, loop: str) -> None:
        self._health = health
        self._loop = loop
        self._pause_s = _FIRST_PAUSE_S

    async def endure(self, error: QueueError) -> None:
        """Tells, and waits a while before the next try: 0.05 s at first, at most 1 s."""
        await asyncio.sleep(self.pause_s(error))

    def pause_s(self, error: QueueError) -> float:
        """Tells, and says how long to wait."""
        self.lost(error)
        return self.next_s()

    def lost(self, error: QueueError) -> None:
        """Tells."""
        self._health.lost(self._loop, error)

    def next_s(self) -> float:
        """How long to wait now; longer the next time."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return pause_s * random.uniform(0.5, 1.0)

    def turns(self, within_s: float = math.inf) -> None:
        """It turns, and will have done so again within that time, unless it waits for what may never come."""
        self._health.turns(self._loop, within_s)

    def over(self) -> None:
        """The loop has succeeded."""
        self._pause_s = _FIRST_PAUSE_S
        self._health.back(self._loop)
