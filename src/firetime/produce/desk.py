"""What a runner's dispatches share: for each event loop its own connections, outboxes and ear for endings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from firetime.produce.blocking import Portal
from firetime.produce.draft import House
from firetime.produce.send import Answers, NumberedCalls, Outbox
from firetime.produce.watch import EndedWatch
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.values.message import Parcel


class Counter:
    """One event loop's side of the desk."""

    def __init__(self, server: Server, prefix: str, *, deadline_s: float, max_length: int, min_replicas: int) -> None:
        self.server = server
        self.watch = EndedWatch(server)
        self._prefix = prefix
        self._deadline_s = deadline_s
        self._max_length = max_length
        self._min_replicas = min_replicas
        self._outboxes: dict[str, Outbox] = {}
        self._calls: dict[str, NumberedCalls] = {}

    def outbox(self, queue: str) -> Outbox:
        """Where this loop's messages to a queue leave."""
        found = self._outboxes.get(queue)
        if found is None:
            keys = QueueKeys(self._prefix, queue)
            found = Outbox(
                self.server,
                keys,
                deadline_s=self._deadline_s,
                max_length=self._max_length,
                min_replicas=self._min_replicas,
            )
            self._outboxes[queue] = found
        return found

    def calls(self, queue: str) -> NumberedCalls:
        """This loop's other numbered calls to a queue."""
        found = self._calls.get(queue)
        if found is None:
            keys = QueueKeys(self._prefix, queue)
            found = self._calls[queue] = NumberedCalls(self.server, keys, min_replicas=self._min_replicas)
        return found

    async def aclose(self) -> None:
        """Drops the connections."""
        await self.watch.aclose()
        await self.server.aclose()


class Desk:
    """Takes messages from any event loop, thread or forked child of a process."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Server]],
        prefix: str,
        house: House,
        *,
        deadline_s: float,
        max_length: int,
        min_replicas: int,
    ) -> None:
        self.prefix = prefix
        self.house = house
        self.deadline_s = deadline_s
        self.portal = Portal(on_fork=self._begin_anew)
        self._connect = connect
        self._max_length = max_length
        self._min_replicas = min_replicas
        self._counters: dict[asyncio.AbstractEventLoop, Counter] = {}

    def _begin_anew(self) -> None:
        # neither sockets nor numbers are shared with the parent of a fork
        self._counters = {}

    async def counter(self) -> Counter:
        """The running loop's counter."""
        loop = asyncio.get_running_loop()
        found = self._counters.get(loop)
        if found is None:
            self._forget_closed_loops()
            server = await self._connect()
            found = Counter(
                server,
                self.prefix,
                deadline_s=self.deadline_s,
                max_length=self._max_length,
                min_replicas=self._min_replicas,
            )
            # somebody else of this loop may have been quicker
            found = self._counters.setdefault(loop, found)
        return found

    def _forget_closed_loops(self) -> None:
        # a program that calls asyncio.run() again and again leaves one behind each time
        for loop in [loop for loop in tuple(self._counters) if loop.is_closed()]:
            if (counter := self._counters.pop(loop, None)) is not None:
                counter.server.sever()

    async def server(self) -> Server:
        """The running loop's connections."""
        return (await self.counter()).server

    def keys(self, queue: str) -> QueueKeys:
        """The keys of a queue."""
        return QueueKeys(self.prefix, queue)

    async def send(self, queue: str, parcels: Sequence[Parcel]) -> Answers:
        """Sends messages of one queue."""
        return await (await self.counter()).outbox(queue).send(parcels)

    async def aclose(self) -> None:
        """Drops the running loop's connections."""
        found = self._counters.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.aclose()
