"""What a runner's dispatches share: for each event loop its own connections, outboxes and ear for endings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from firetime.produce.blocking import Portal
from firetime.produce.direct import Direct
from firetime.produce.draft import House
from firetime.produce.pause import keep_paused
from firetime.produce.send import Answers, NumberedCalls, Outbox
from firetime.produce.watch import EndedWatch
from firetime.produce.whereabouts import how_many_in_use
from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.values.message import Parcel
from firetime.values.shards import Shards


class Counter:
    """One event loop's side of the desk."""

    def __init__(
        self,
        server: Server,
        keys: Callable[[str], QueueKeys],
        *,
        deadline_s: float,
        max_length: Callable[[str], int],
        min_replicas: int,
    ) -> None:
        self.server = server
        self.watch = EndedWatch(server)
        self._keys = keys
        self._deadline_s = deadline_s
        self._max_length = max_length
        self._min_replicas = min_replicas
        self._outboxes: dict[str, Outbox] = {}
        self._calls: dict[str, NumberedCalls] = {}

    def outbox(self, queue: str) -> Outbox:
        """Where this loop's messages to a queue leave."""
        found = self._outboxes.get(queue)
        if found is None:
            room = self._max_length(queue)
            found = Outbox(
                self.server,
                self._keys(queue),
                deadline_s=self._deadline_s,
                max_length=room,
                min_replicas=self._min_replicas,
            )
            self._outboxes[queue] = found
        return found

    def calls(self, queue: str) -> NumberedCalls:
        """This loop's other numbered calls to a queue."""
        found = self._calls.get(queue)
        if found is None:
            found = NumberedCalls(self.server, self._keys(queue), min_replicas=self._min_replicas)
            self._calls[queue] = found
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
        address: Address | None,
        shift: Shift,
        shards: Shards,
        min_replicas: int,
    ) -> None:
        self.prefix = prefix
        self.shards = shards
        self.queue_of = shards.queue_of()
        """Name of a shard -> its queue: looked up for each handle, and therefore made beforehand."""
        self.house = house
        self.deadline_s = deadline_s
        self.portal = Portal(on_fork=self._begin_anew)
        self.direct: Direct | None = None
        """What sends for code without an event loop; None where a server that moves is followed by an event loop's."""
        if address is not None and address.kind == "single" and not min_replicas:
            self.direct = Direct(address, shift, self.keys, deadline_s=deadline_s, max_length=self.room)
        self._connect = connect
        self._max_length = max_length
        self._min_replicas = min_replicas
        self._counters: dict[asyncio.AbstractEventLoop, Counter] = {}

    def _begin_anew(self) -> None:
        # neither sockets nor numbers are shared with the parent of a fork; what is forgotten here is no longer among the
        # servers that are severed after one, and which of the two comes first depends on what was imported first
        for counter in self._counters.values():
            counter.server.sever()
        self._counters = {}
        if self.direct is not None:
            self.direct.begin_anew()

    async def counter(self) -> Counter:
        """The running loop's counter."""
        loop = asyncio.get_running_loop()
        found = self._counters.get(loop)
        if found is None:
            self._forget_closed_loops()
            server = await self._connect()
            found = Counter(
                server,
                self.keys,
                deadline_s=self.deadline_s,
                max_length=self.room,
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
        """The keys of a queue, or of one shard."""
        return QueueKeys(self.prefix, queue, self.shards.logical(queue))

    async def all_keys(self, queue: str) -> list[QueueKeys]:
        """The keys of a queue's home and of each of its shards, also of those still in use from when it had more."""
        formerly = [self.keys(name) for name in self.shards.former_names(queue)]
        still = await how_many_in_use(await self.server(), formerly) if formerly else 0
        return [*map(self.keys, self.shards.names(queue)), *formerly[:still]]

    async def served(self, queues: Iterable[str]) -> dict[str, QueueKeys]:
        """What a worker of these queues serves, by name; new shards of a paused queue are closed as well."""
        found: dict[str, QueueKeys] = {}
        for queue in queues:
            if len(places := await self.all_keys(queue)) > 1:
                await keep_paused(await self.server(), places)
            found |= {keys.queue: keys for keys in places}
        return found

    def keys_for(self, queue: str, task_id: str) -> list[QueueKeys]:
        """The keys among which a message is that is known by its queue and id, the likeliest first."""
        return [self.keys(name) for name in self.shards.names_for(queue, task_id)]

    def room(self, queue: str) -> int:
        """How many messages may wait in a queue, or in one shard; 0: no limit."""
        return self.shards.share(queue, self._max_length)

    async def send(self, queue: str, parcels: Sequence[Parcel]) -> Answers:
        """Sends messages of one queue."""
        counter = self._counters.get(asyncio.get_running_loop()) or await self.counter()
        return await counter.outbox(queue).send(parcels)

    async def aclose(self) -> None:
        """Drops the running loop's connections, and those of code without one."""
        if self.direct is not None:
            self.direct.close()
        found = self._counters.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.aclose()
