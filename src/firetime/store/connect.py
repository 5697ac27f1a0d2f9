"""Calls go out and replies come back, over as few connections as there are calls at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from firetime.store.address import Address
from firetime.store.clock import ServerClock, Shift
from firetime.store.deadlines import Deadlines
from firetime.store.keys import QueueKeys
from firetime.store.replies import NoScript, read_failure, unreachable
from firetime.store.request import check_version, words_of
from firetime.store.scripts import Argument, Script
from firetime.store.wire import AsyncConnection, drop, has_ended, packed, read_info, replicated, sever
from firetime.values.errors import BrokerRefused, BrokerUnavailable, NotReplicated
from firetime.values.forks import in_a_child

T = TypeVar("T")

MOST_CONNECTIONS = 64
"""Calls that one event loop has in flight at once; more wait for their turn. Lines come on top."""

CALL_S = 5.0
"""How long one call may take before its connection is dropped, in seconds."""


class Server:
    """A server as seen from one event loop. Connections are made when first needed and kept."""

    try_s = CALL_S
    """How long one try of a call that will be repeated may take, in seconds."""

    _in_one_place, _in_cluster = True, False

    def __init__(self, address: Address, shift: Shift | None = None) -> None:
        self.address = address
        self.shift = shift or Shift()
        self._options: dict[str, Any] | None = None
        self._idle: list[AsyncConnection] = []
        self._busy: set[AsyncConnection] = set()
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._deadlines = Deadlines()
        self._verified = False
        self._closed = False
        in_a_child(self, Server.sever)

    async def run(
        self,
        name: str,
        keys: QueueKeys,
        arguments: Mapping[str, Argument],
        rest: Sequence[Argument] = (),
        *,
        more_keys: Sequence[str] = (),
        deadline_s: float = CALL_S,
        replicas: int = 0,
        **named_keys: str,
    ) -> Any:
        """One script call. Raises ``QueueError`` kinds: ``BrokerUnavailable``, ``BrokerRefused``, ``QueueFull``.

        With ``replicas`` it is answered once so many have what it wrote; ``NotReplicated`` when they have not in time.
        """
        called, words = words_of(self.shift, name, keys, arguments, rest, more_keys=more_keys, named_keys=named_keys)
        try:
            return await self.ask(*words, deadline_s=deadline_s, replicas=replicas)
        except NoScript as error:
            await self.load(called, error)
        try:
            return await self.ask(*words, deadline_s=deadline_s, replicas=replicas)
        except NoScript as error:
            # another server answers by now, as in a failover, or while a slot moves: nothing was done
            raise BrokerUnavailable(f"the script is gone again: {error}") from None

    async def load(self, called: Script, missing: NoScript) -> None:
        """Gives the script to the server that has missed it."""
        await self.ask("SCRIPT", "LOAD", called.source)

    async def ask(self, *words: Argument, deadline_s: float = CALL_S, replicas: int = 0) -> Any:
        """One command; replies come as the client's parser gives them: bytes, ints, lists, None. ``replicas``: see ``run``."""
        left_s = await self._take_room(deadline_s)
        try:
            connection = self._idle.pop() if self._idle else self._new_connection()
            self._busy.add(connection)
            try:
                if has_ended(connection):
                    await connection.disconnect(nowait=True)
                return await self.exchange(connection, words, left_s, replicas)
            finally:
                self._busy.discard(connection)
                await self._put_back(connection)
        finally:
            self._room.release()

    async def _take_room(self, deadline_s: float) -> float:
        """Waits for its turn, which comes late where many calls wait for a silent server; what is left of the deadline."""
        if not self._room.locked():
            await self._room.acquire()
            return deadline_s
        clock = asyncio.get_running_loop().time
        asked = clock()
        try:
            async with asyncio.timeout(deadline_s):
                await self._room.acquire()
        except TimeoutError:
            reason = f"{MOST_CONNECTIONS} calls to {self.address} are in flight, and none ended within {deadline_s:g} s"
            raise BrokerUnavailable(reason) from None
        return deadline_s - (clock() - asked)

    def sharing_a_read(self, each_of_a_queue: Sequence[T]) -> list[tuple[T, ...]]:
        """In which groups one blocking read may wait on the keys of several queues."""
        return [tuple(each_of_a_queue)] if self._in_one_place else [(each,) for each in each_of_a_queue]

    def line(self, key: str = "") -> Line:
        """A connection of its own, for blocking reads of ``key`` (and others beside it) and for subscriptions."""
        return Line(self)

    async def keys_like(self, pattern: str) -> AsyncIterator[str]:
        """Every key that matches, by scanning; some may come twice."""
        cursor: Any = b"0"
        while True:
            cursor, keys = await self.ask("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            for key in keys:
                yield key.decode()
            if cursor == b"0":
                return

    async def now_us(self, *, deadline_s: float = CALL_S) -> int:
        """Its time, as scripts see it, in microseconds since 1970."""
        seconds, micros = await self.ask("TIME", deadline_s=deadline_s)
        return self.shift.seen_us(int(seconds) * 1_000_000 + int(micros))

    async def aclose(self) -> None:
        """Drops every connection; calls in flight fail."""
        self._closed = True
        self._deadlines.close()
        for connection in (*self._idle, *self._busy):
            await drop(connection)
        self._idle.clear()

    def sever(self) -> None:
        """Drops every connection without its event loop: that is closed, or is the parent's of a forked child."""
        for connection in (*self._idle, *self._busy):
            sever(connection)

    async def locate(self, connection: AsyncConnection) -> None:
        """Points a connection that is down at the server, where that can move."""

    async def connected(self, connection: AsyncConnection, deadline_s: float) -> None:
        """Sees to it that the connection is up, and once that the server is one that will do."""
        if connection.is_connected:
            return
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(deadline_s):
                await self.locate(connection)
                await connection.connect()
                await self.inspect(connection)
        except BaseException as error:
            # also of a call that was cancelled: the next one would take half a connection for a whole one
            await connection.disconnect(nowait=True)
            if not isinstance(error, (RedisError, OSError)):
                raise
            raise read_failure(str(self.address), error, sent=False)[0] from None

    async def inspect(self, connection: AsyncConnection) -> None:
        """Looks over, once, whether the server at the end of a new connection will do."""
        if not self._verified:
            check_version(await read_info(connection, "server"))
            self._verified = True

    def own_connection(self) -> AsyncConnection:
        """A new connection for one user; dropped with the others by ``aclose``."""
        connection = self._new_connection()
        self._busy.add(connection)
        return connection

    def disown(self, connection: AsyncConnection) -> None:
        """Its user has dropped it."""
        self._busy.discard(connection)

    async def exchange(
        self, connection: AsyncConnection, words: Sequence[Argument], deadline_s: float, replicas: int = 0
    ) -> Any:
        """One command and its reply over one connection; past the deadline the connection is dropped as dead."""
        from redis.exceptions import RedisError

        if not connection.is_connected:
            began = time.monotonic()
            await self.connected(connection, deadline_s)
            deadline_s -= time.monotonic() - began
        self._deadlines.begin(connection, deadline_s)
        error: Exception | None = None
        try:
            if replicas:
                return await replicated(connection, words, replicas, deadline_s)
            await connection.send_packed_command(packed(words), check_health=False)
            return await connection.read_response(disable_decoding=True)
        except NotReplicated:
            # it may have been replaced, and its replicas follow another: the next call looks for the server anew
            await connection.disconnect(nowait=True)
            raise
        except (RedisError, OSError) as lost:
            error = lost
        finally:
            late = self._deadlines.over(connection)
        met = TimeoutError("its time is over") if late else error
        failure, of_no_use = read_failure(str(self.address), met, sent=True, in_cluster=self._in_cluster)
        if of_no_use or replicas:
            # with replicas a second answer is still to come
            await connection.disconnect(nowait=True)
        raise failure

    def connection_options(self) -> dict[str, Any]:
        """How its connections are made."""
        return self.address.connection_options()

    def _new_connection(self) -> AsyncConnection:
        if self._closed:
            raise BrokerRefused("this runner is closed")
        if self._options is None:
            self._options = self.connection_options()
        options = dict(self._options)
        made = options.pop("connection_class")(**options)
        return cast(AsyncConnection, made)

    async def _put_back(self, connection: AsyncConnection) -> None:
        if self._closed:
            await connection.disconnect(nowait=True)
        else:
            self._idle.append(connection)


class Line:
    """One connection for reads that wait: bells, wake streams, channels. Not for two readers at once."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = server.own_connection()

    async def ask(self, *words: Argument, deadline_s: float = CALL_S) -> Any:
        """One command whose reply may take ``deadline_s``; past that the connection is dropped as dead."""
        return await self._server.exchange(self._connection, words, deadline_s)

    async def say(self, *words: Argument, deadline_s: float = CALL_S) -> None:
        """Sends a command whose reply ``listen`` will hear, among what is published."""
        from redis.exceptions import RedisError

        await self._server.connected(self._connection, deadline_s)
        try:
            await self._connection.send_packed_command(packed(words), check_health=False)
        except (RedisError, OSError) as error:
            raise unreachable(str(self._server.address), error, sent=True) from None

    async def listen(self, deadline_s: float) -> Any:
        """The next message of a subscription made by ``say``; None when none came within ``deadline_s``.

        Raises ``BrokerUnavailable`` when the connection is lost: what was published meanwhile is lost with it; and
        ``BrokerRefused`` when the user may not listen.
        """
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(deadline_s):
                return await self._connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except TimeoutError:
            return None
        except (RedisError, OSError, AttributeError) as error:
            await self.aclose()
            raise read_failure(str(self._server.address), error, sent=False)[0] from None

    async def aclose(self) -> None:
        """Drops the connection; the next ``ask`` makes a new one."""
        await self._connection.disconnect(nowait=True)

    async def end(self) -> None:
        """Drops the connection for good."""
        self._server.disown(self._connection)
        await self.aclose()


async def read_clock(server: Server, *, deadline_s: float = CALL_S) -> ServerClock:
    """The server's clock, from its first answer. Raises ``QueueError`` kinds when there is none in time."""
    clock, sent = ServerClock(), time.monotonic()
    now_us = await server.now_us(deadline_s=deadline_s)
    clock.observe(now_us, sent=sent, received=time.monotonic())
    return clock
