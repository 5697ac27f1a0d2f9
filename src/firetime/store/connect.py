"""Calls go out and replies come back, over as few connections as there are calls at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.keys import QueueKeys
from firetime.store.replies import NoScript, refused, unreachable
from firetime.store.scripts import Argument, Script, script
from firetime.store.wire import AsyncConnection
from firetime.values.errors import BrokerRefused

OLDEST = (6, 2)
"""The oldest Redis that has what the scripts need (XPENDING with IDLE, XAUTOCLAIM's kin, ZRANGE in scripts)."""

CALL_S = 5.0
"""How long one call may take before its connection is dropped, in seconds."""


class Server:
    """A server as seen from one event loop. Connections are made when first needed and kept."""

    def __init__(self, address: Address, shift: Shift | None = None) -> None:
        self.address = address
        self.shift = shift or Shift()
        self._options: dict[str, Any] | None = None
        self._idle: list[AsyncConnection] = []
        self._busy: set[AsyncConnection] = set()
        self._verified = False
        self._closed = False

    async def run(
        self,
        name: str,
        keys: QueueKeys,
        arguments: Mapping[str, Argument],
        rest: Sequence[Argument] = (),
        *,
        more_keys: Sequence[str] = (),
        deadline_s: float = CALL_S,
        **named_keys: str,
    ) -> Any:
        """One script call. Raises ``QueueError`` kinds: ``BrokerUnavailable``, ``BrokerRefused``, ``QueueFull``."""
        called = script(name)
        if "shift_us" in called.argument_names:
            arguments = {"shift_us": self.shift.us, **arguments}
        words = called.request(keys, arguments, rest, more_keys=more_keys, **named_keys)
        try:
            return await self.ask(*words, deadline_s=deadline_s)
        except NoScript:
            return await self._load_and_ask(called, words, deadline_s)

    async def _load_and_ask(self, called: Script, words: list[Argument], deadline_s: float) -> Any:
        await self.ask("SCRIPT", "LOAD", called.source)
        return await self.ask(*words, deadline_s=deadline_s)

    async def ask(self, *words: Argument, deadline_s: float = CALL_S) -> Any:
        """One command; replies come as the client's parser gives them: bytes, ints, lists, None."""
        connection = self._idle.pop() if self._idle else self._new_connection()
        self._busy.add(connection)
        try:
            return await self.exchange(connection, words, deadline_s)
        finally:
            self._busy.discard(connection)
            await self._put_back(connection)

    def line(self) -> Line:
        """A connection of its own, for blocking reads and subscriptions."""
        return Line(self)

    async def aclose(self) -> None:
        """Drops every connection; calls in flight fail."""
        self._closed = True
        for connection in (*self._idle, *self._busy):
            await connection.disconnect(nowait=True)
        self._idle.clear()

    async def connected(self, connection: AsyncConnection, deadline_s: float) -> None:
        """Sees to it that the connection is up, and once that the server is one that will do."""
        if connection.is_connected:
            return
        from redis.exceptions import AuthenticationError, RedisError, ResponseError

        try:
            async with asyncio.timeout(deadline_s):
                await connection.connect()
                if not self._verified:
                    await self._verify(connection)
        except (AuthenticationError, ResponseError) as error:
            raise refused(str(error)) from None
        except (RedisError, OSError) as error:
            if "AUTH" in str(error) or "invalid username-password" in str(error):
                raise refused(str(error)) from None
            raise unreachable(str(self.address), error, sent=False) from None

    async def _verify(self, connection: AsyncConnection) -> None:
        await connection.send_packed_command(packed(("INFO", "server")), check_health=False)
        told = cast(bytes, await connection.read_response(disable_decoding=True))
        check_version(told.decode("utf-8", "replace"))
        self._verified = True

    def own_connection(self) -> AsyncConnection:
        """A new connection for one user; dropped with the others by ``aclose``."""
        connection = self._new_connection()
        self._busy.add(connection)
        return connection

    async def exchange(self, connection: AsyncConnection, words: Sequence[Argument], deadline_s: float) -> Any:
        """One command and its reply over one connection; past the deadline the connection is dropped as dead."""
        from redis.exceptions import RedisError, ResponseError

        await self.connected(connection, deadline_s)
        try:
            async with asyncio.timeout(deadline_s):
                await connection.send_packed_command(packed(words), check_health=False)
                return await connection.read_response(disable_decoding=True)
        except ResponseError as error:
            raise refused(str(error)) from None
        except (RedisError, OSError) as error:
            passing = refused(str(error)) if str(error).startswith(("LOADING", "READONLY", "MASTERDOWN")) else None
            raise passing or unreachable(str(self.address), error, sent=True) from None

    def _new_connection(self) -> AsyncConnection:
        if self._closed:
            raise BrokerRefused("this runner is closed")
        if self._options is None:
            self._options = self.address.connection_options()
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
        """The next message of a subscription made by ``ask``; None when none came within ``deadline_s``.

        Raises ``BrokerUnavailable`` when the connection is lost: what was published meanwhile is lost with it.
        """
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(deadline_s):
                return await self._connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except TimeoutError:
            return None
        except (RedisError, OSError, AttributeError) as error:
            await self.aclose()
            raise unreachable(str(self._server.address), error, sent=False) from None

    async def aclose(self) -> None:
        """Drops the connection; the next ``ask`` makes a new one."""
        await self._connection.disconnect(nowait=True)


def packed(words: Sequence[Argument]) -> bytes:
    """A command in the wire protocol; hiredis packs in C what the client packs in Python."""
    import hiredis

    return cast(bytes, hiredis.pack_command(tuple(words)))  # type: ignore[arg-type] # pyright: ignore[reportUnknownMemberType, reportArgumentType]


def check_version(info: str) -> None:
    """Raises ``BrokerRefused`` when INFO tells of a server older than 6.2."""
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    version = facts.get("redis_version", "0")
    parts = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if tuple(parts) < OLDEST:
        raise BrokerRefused(f"the server is Redis {version}; firetime needs Redis 6.2 or newer, or Valkey")
