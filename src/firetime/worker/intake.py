"""Free slots draw deliveries in: bells tell which queues may have some, claims fetch them."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Mapping

from firetime.store.connect import CALL_S
from firetime.store.keys import QueueKeys
from firetime.values.errors import QueueError
from firetime.values.events import WorkerEvent
from firetime.work.claim import Claimer
from firetime.worker.road import Road
from firetime.worker.workshop import Health, Patience, Stir, Workshop

_BELL_S = 5
"""How long the server holds a blocking read before it says that nothing came; the client's deadline is later."""

_BELL_DEADLINE_S = _BELL_S + 5.0
_SOON = "0.05"

_CLAIM_S = 4 * CALL_S
"""Within so long a claim has ended, well or not: it may have to load its script, and to find its server."""


class _Source:
    """One queue as this worker draws from it."""

    def __init__(self, keys: QueueKeys, claimer: Claimer, patience: Patience) -> None:
        self.keys = keys
        self.claimer = claimer
        self.patience = patience
        self.not_before = 0.0
        """When it may be claimed from again after a failure, on the steady clock: other queues may do well meanwhile."""
        self.promising = True
        """Whether a claim may find something: not since one found the lanes empty, until a bell rings."""
        self.rung = False
        """Whether its bell rang and nobody has claimed since: no other worker hears of that message."""
        self.known = False
        """Whether a claim has succeeded before: groups that are missing after that have been deleted."""

    def due_in(self) -> float:
        """Seconds until a claim should be made: at once where it promises something, else to look for lost leases."""
        return max(0.0 if self.promising else self.claimer.sweep_due_in(), self.not_before - time.monotonic())


class Intake:
    """The claims of one worker over all its queues."""

    def __init__(
        self, shop: Workshop, road: Road, stir: Stir, health: Health, *, on_doubt: Callable[[str], None]
    ) -> None:
        self._shop = shop
        self._road = road
        self._stir = stir
        self._health = health
        self._on_doubt = on_doubt
        settings = shop.settings
        self._sources = [
            _Source(
                keys,
                Claimer(
                    shop.server,
                    keys,
                    shop.token,
                    shop.codec,
                    shop.clock,
                    lease_s=settings.lease,
                    sweep_s=settings.sweep_s,
                ),
                Patience(health, f"claim from {keys.queue}"),
            )
            for keys in shop.queues.values()
        ]
        self._by_bell: Mapping[bytes, _Source] = {each.keys.bell.encode(): each for each in self._sources}
        self.open = True

    @property
    def quiet(self) -> bool:
        """Whether the last claim of every queue found nothing more."""
        return not any(source.promising or source.claimer.in_flight for source in self._sources)

    def look_again(self) -> None:
        """Lets every queue be claimed from, whatever its bell says."""
        for source in self._sources:
            source.promising = True
        self._stir.notify()

    def close(self) -> None:
        """No more claims; one in flight is answered first."""
        self.open = False
        self._stir.notify()

    def put_off_sweeps(self) -> None:
        """After an outage: no sweeps for one lease."""
        for source in self._sources:
            source.claimer.connected_anew()

    def claim_in_flight(self, queue: str) -> bool:
        """Whether a claim of the queue waits for its answer."""
        return any(source.claimer.in_flight for source in self._sources if source.keys.queue == queue)

    async def claim_all(self) -> None:
        """Until closed: fills the free slots, queue by queue."""
        while self.open:
            source = self._next_source()
            free = self._road.slots.free()
            if free == 0 and await self._passed_on():
                continue
            if source is None or free == 0:
                wait_s = None if free == 0 else self._until_due()
                self._health.turns("claims", math.inf if wait_s is None else wait_s + _CLAIM_S)
                await self._stir.wait(wait_s)
                continue
            self._health.turns("claims", _CLAIM_S)
            # a bell that rings from here on may speak of what this claim comes too early for
            source.promising = source.rung = False
            try:
                claimed = await source.claimer.claim(
                    min(free, self._road.slots.half), may_sweep=not self._health.cut_off
                )
            except QueueError as error:
                source.promising = True
                error.kind = "fetch"
                self._on_doubt(source.keys.queue)
                source.not_before = time.monotonic() + source.patience.pause_s(error)
                continue
            source.patience.over()
            self._road.take(claimed)
            if claimed.stale:
                said = f"{claimed.stale} entries named by no message"
                self._shop.events.emit(WorkerEvent("stale", self._shop.token, source.keys.logical, said))
            if claimed.late:
                self._on_doubt(source.keys.queue)
            if claimed.remade and source.known:
                self._shop.events.emit(WorkerEvent("remade", self._shop.token, source.keys.logical))
            # it has seen all lanes, so that one whose group is missing from now on has lost it
            source.known |= claimed.drained and not claimed.paused
            if claimed.drained or claimed.paused:
                self._stir.notify()
            else:
                source.promising = True

    def _next_source(self) -> _Source | None:
        """The next queue in turn that promises something, or whose lost leases are to be looked for."""
        for number, source in enumerate(self._sources):
            if source.due_in() <= 0:
                # whoever was served goes to the end
                self._sources.append(self._sources.pop(number))
                return source
        return None

    def _until_due(self) -> float:
        # spread, so that a fleet started together does not sweep together
        return min(source.due_in() for source in self._sources) + random.uniform(0.001, 0.05)

    async def hear_bells(self) -> None:
        """Until closed: marks the queues whose bell rings while there are slots free."""
        async with asyncio.TaskGroup() as hearing:
            for group in self._shop.server.sharing_a_read(self._sources):
                hearing.create_task(self._hear(group))

    async def _hear(self, sources: tuple[_Source, ...]) -> None:
        patience = Patience(self._health, f"bell of {', '.join(source.keys.queue for source in sources)}")
        bells = [source.keys.bell for source in sources]
        line = self._shop.server.line(bells[0])
        bell_s: str | int = _BELL_S
        try:
            while self.open:
                if not self._listens(sources):
                    # how the server is, the claims tell as long as nobody needs to listen
                    patience.over()
                    patience.turns()
                    await self._stir.wait()
                    continue
                patience.turns(_BELL_DEADLINE_S + CALL_S)
                try:
                    heard = await line.ask("BLPOP", *bells, bell_s, deadline_s=_BELL_DEADLINE_S)
                    bell_s = _BELL_S
                except QueueError as error:
                    # the next answer comes soon, so that nobody waits for good news
                    bell_s, error.kind = _SOON, "fetch"
                    await patience.endure(error)
                    continue
                patience.over()
                if heard is not None:
                    await self._rung(self._by_bell[heard[0]])
        finally:
            await line.aclose()

    def _listens(self, sources: tuple[_Source, ...]) -> bool:
        """With one queue there is no need to hear its bell while it is being emptied anyway."""
        if not self._road.slots.free():
            return False
        first = sources[0]
        return len(sources) > 1 or not (first.promising or first.claimer.in_flight)

    async def _rung(self, source: _Source) -> None:
        if self.open and self._road.slots.free():
            source.promising = source.rung = True
            self._stir.notify()
        else:
            await self._pass_on(source)

    async def _passed_on(self) -> bool:
        """Whether a bell was heard while there were slots free, which another queue has filled since."""
        source = next((each for each in self._sources if each.rung), None)
        if source is None:
            return False
        source.rung = False
        await self._pass_on(source)
        return True

    async def _pass_on(self, source: _Source) -> None:
        """A bell was heard too late to act on it: another worker should."""
        try:
            await self._shop.server.run("ring", source.keys, {})
        except QueueError:
            # the bell rings again with the next message, and every worker looks at its sweep anyway
            return
