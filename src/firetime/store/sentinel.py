"""A server that sentinels watch over: each new connection asks them where it is now, and a standing one now and then."""

from __future__ import annotations

import time
from typing import Any, cast

from firetime.store.address import Node
from firetime.store.connect import CALL_S, Server
from firetime.store.wire import AsyncConnection, read_info
from firetime.values.errors import BrokerRefused, BrokerUnavailable, QueueError

_SENTINEL_S = 1.0
"""How long one sentinel is asked before the next one is."""

_NEWS_S = 1.0
"""How long a connection is used before the sentinels are asked whether it still leads to the primary, in seconds.

After a failover that somebody asked for, the old primary stays one for about 10 s, until the sentinels demote it
(SENTINEL_PUBLISH_PERIOD * 4 and the next INFO), and all that it accepts meanwhile is lost.
"""
_NO_NEWS_S = 10.0
"""The same when none of them answered: what is connected stays so."""


class _Sentinel(Server):
    """One of the sentinels."""

    def __init__(self, watched: SentinelServer, node: Node) -> None:
        super().__init__(watched.address, watched.shift)
        self._node = node
        self._verified = True

    def connection_options(self) -> dict[str, Any]:
        return self.address.sentinel_options(self._node)


class SentinelServer(Server):
    """The primary of a service. After a failover connections fail, and the next ones go to the new primary."""

    try_s = 2.0
    _asked: list[_Sentinel] | None = None
    _named: Node | None = None
    """The primary, when they were last asked."""
    _ask_at = 0.0
    """When they are asked next, on the steady clock."""

    async def connected(self, connection: AsyncConnection, deadline_s: float) -> None:
        if connection.is_connected and await self._has_moved(connection):
            await connection.disconnect(nowait=True)
        await super().connected(connection, deadline_s)

    async def locate(self, connection: AsyncConnection) -> None:
        """Points the connection at the primary that the first sentinel to answer names."""
        self._named = await self._primary()
        moved = cast(Any, connection)
        moved.host, moved.port = self._named

    async def inspect(self, connection: AsyncConnection) -> None:
        """Sentinels learn of a failover one after the other: the server says itself what it is.

        https://redis.io/docs/latest/develop/reference/sentinel-clients/ asks with ROLE, which takes rights of its own.
        """
        await super().inspect(connection)
        if "role:master" not in await read_info(connection, "replication"):
            raise BrokerUnavailable(f"what the sentinels name for {self.address.service!r} is a replica now")

    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self._asked or ():
            await sentinel.aclose()

    def sever(self) -> None:
        for sentinel in self._asked or ():
            sentinel.sever()
        super().sever()

    async def _has_moved(self, connection: AsyncConnection) -> bool:
        if (now := time.monotonic()) >= self._ask_at:
            self._ask_at = now + _NEWS_S
            try:
                self._named = await self._primary()
            except QueueError:
                self._ask_at = now + _NO_NEWS_S
        led = cast(Any, connection)
        return self._named is not None and (led.host, led.port) != self._named

    async def _primary(self) -> Node:
        if self._closed:
            raise BrokerRefused("this runner is closed")
        if self._asked is None:
            self._asked = [_Sentinel(self, node) for node in self.address.nodes]
        reason = "none of them knows it"
        for sentinel in tuple(self._asked):
            try:
                told = await sentinel.ask(
                    "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.address.service, deadline_s=min(_SENTINEL_S, CALL_S)
                )
            except QueueError as error:
                reason = error.reason if isinstance(error, BrokerUnavailable) else str(error)
                continue
            if told:
                # whoever answered is asked first from now on
                self._asked.remove(sentinel)
                self._asked.insert(0, sentinel)
                return told[0].decode(), int(told[1])
        raise BrokerUnavailable(f"no sentinel says where {self.address.service!r} is: {reason}")
