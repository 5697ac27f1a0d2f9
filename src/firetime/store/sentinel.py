"""A server that sentinels watch over: each new connection asks them where it is now."""

from __future__ import annotations

from typing import Any, cast

from firetime.store.address import Node
from firetime.store.connect import CALL_S, Server
from firetime.store.wire import AsyncConnection
from firetime.values.errors import BrokerUnavailable, QueueError

_SENTINEL_S = 1.0
"""How long one sentinel is asked before the next one is."""


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

    _asked: list[_Sentinel] | None = None

    async def locate(self, connection: AsyncConnection) -> None:
        """Points the connection at the primary that the first sentinel to answer names."""
        host, port = await self._primary()
        moved = cast(Any, connection)
        moved.host, moved.port = host, port

    async def aclose(self) -> None:
        for sentinel in self._asked or ():
            await sentinel.aclose()
        await super().aclose()

    async def _primary(self) -> Node:
        if self._asked is None:
            self._asked = [_Sentinel(self, node) for node in self.address.nodes]
        reason = "none of them knows it"
        for sentinel in tuple(self._asked):
            try:
                told = await sentinel.ask(
                    "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.address.service, deadline_s=min(_SENTINEL_S, CALL_S)
                )
            except QueueError as error:
                reason = str(error)
                continue
            if told:
                # whoever answered is asked first from now on
                self._asked.remove(sentinel)
                self._asked.insert(0, sentinel)
                return told[0].decode(), int(told[1])
        raise BrokerUnavailable(f"no sentinel says where {self.address.service!r} is: {reason}")
