"""A cluster: each call goes to the node that has the queue's slot, and follows it when it moves."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from firetime.store.address import Address, Node
from firetime.store.clock import Shift
from firetime.store.connect import CALL_S, Line, Server
from firetime.store.replies import Redirected
from firetime.store.scripts import Argument, Script
from firetime.values.errors import BrokerUnavailable, QueueError

_MOST_HOPS = 5
"""How often one call follows a slot before it gives up for now."""


class _NodeServer(Server):
    """One node of the cluster."""

    def __init__(self, address: Address, shift: Shift, node: Node) -> None:
        super().__init__(address, shift)
        self.node = node

    def connection_options(self) -> dict[str, Any]:
        return self.address.connection_options(self.node)

    async def ask_once(self, *words: Argument, deadline_s: float) -> Any:
        """One command for a slot that is on its way here."""
        connection = self.own_connection()
        try:
            await self.exchange(connection, ("ASKING",), deadline_s)
            return await self.exchange(connection, words, deadline_s)
        finally:
            self.disown(connection)
            await connection.disconnect(nowait=True)


class ClusterServer(Server):
    """The primaries of a cluster, as one event loop sees them."""

    _in_one_place = False

    def __init__(self, address: Address, shift: Shift) -> None:
        super().__init__(address, shift)
        self._nodes: dict[Node, _NodeServer] = {}
        self._primaries: list[Node] = []
        self._owners: dict[int, Node] = {}
        """Slot -> node, as far as known."""

    async def ask(self, *words: Argument, deadline_s: float = CALL_S) -> Any:
        slot = slot_of(words)
        for _ in range(_MOST_HOPS):
            node = await self.node_of(slot)
            try:
                return await node.ask(*words, deadline_s=deadline_s)
            except Redirected as moved:
                if moved.once:
                    return await self._node(moved.node).ask_once(*words, deadline_s=deadline_s)
                self.moved(moved)
            except BrokerUnavailable:
                self.forget()
                raise
        raise BrokerUnavailable(f"slot {slot} keeps moving")

    def line(self, key: str = "") -> Line:
        return _ClusterLine(self, slot_of(("GET", key)) if key else None)

    async def keys_like(self, pattern: str) -> AsyncIterator[str]:
        await self.node_of(None)
        for primary in tuple(self._primaries):
            async for key in self._node(primary).keys_like(pattern):
                yield key

    async def aclose(self) -> None:
        for node in self._nodes.values():
            await node.aclose()
        await super().aclose()

    async def node_of(self, slot: int | None) -> _NodeServer:
        """The node that has a slot; any primary for None."""
        if not self._owners:
            await self._learn()
        owner = random.choice(self._primaries) if slot is None else self._owners.get(slot)
        if owner is None:
            self.forget()
            raise BrokerUnavailable(f"no node of the cluster has slot {slot} now")
        return self._node(owner)

    def moved(self, to: Redirected) -> None:
        """A slot has moved; the others are asked for anew when they are met."""
        self._owners[to.slot] = to.node

    def forget(self) -> None:
        """Something is wrong with the map: the next call learns it anew."""
        self._owners = {}

    async def _load_and_ask(self, called: Script, words: list[Argument], deadline_s: float) -> Any:
        node = await self.node_of(slot_of(words))
        await node.ask("SCRIPT", "LOAD", called.source)
        return await self._ask_loaded(words, deadline_s)

    async def _learn(self) -> None:
        reason = "it has no nodes"
        for node in [*self._primaries, *self.address.nodes]:
            try:
                told = await self._node(node).ask("CLUSTER", "SLOTS")
            except QueueError as error:
                reason = str(error)
                continue
            owners: dict[int, Node] = {}
            for first, last, primary, *_replicas in told:
                owner = (primary[0].decode() or node[0], int(primary[1]))
                owners.update(dict.fromkeys(range(first, last + 1), owner))
            if owners:
                self._owners = owners
                self._primaries = sorted(set(owners.values()))
                return
        raise BrokerUnavailable(f"no node of the cluster answers: {reason}")

    def _node(self, node: Node) -> _NodeServer:
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = _NodeServer(self.address, self.shift, node)
        return found


class _ClusterLine(Line):
    """A line to the node that has a slot, or to any; made anew where the slot is when the old one fails."""

    def __init__(self, cluster: ClusterServer, slot: int | None) -> None:  # its own lines are made when needed
        self._cluster = cluster
        self._slot = slot
        self._line: Line | None = None

    async def ask(self, *words: Argument, deadline_s: float = CALL_S) -> Any:
        return await self._over_own(lambda line: line.ask(*words, deadline_s=deadline_s))

    async def say(self, *words: Argument, deadline_s: float = CALL_S) -> None:
        await self._over_own(lambda line: line.say(*words, deadline_s=deadline_s))

    async def listen(self, deadline_s: float) -> Any:
        return await self._over_own(lambda line: line.listen(deadline_s))

    async def aclose(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.end()

    async def _over_own(self, use: Callable[[Line], Awaitable[Any]]) -> Any:
        try:
            if self._line is None:
                self._line = (await self._cluster.node_of(self._slot)).line()
            return await use(self._line)
        except QueueError as error:
            raise await self._failed(error) from None

    async def _failed(self, error: QueueError) -> QueueError:
        await self.aclose()
        if isinstance(error, Redirected):
            self._cluster.moved(error)
            return BrokerUnavailable("the slot has moved to another node")
        if isinstance(error, BrokerUnavailable):
            self._cluster.forget()
        return error


def slot_of(words: tuple[Argument, ...] | list[Argument]) -> int | None:
    """The slot of a command's first key; None for commands without one."""
    from redis.crc import key_slot

    command = words[0]
    if command == "EVALSHA":
        key = words[3]
    elif command == "XREAD":
        key = words[words.index("STREAMS") + 1]
    elif command == "XINFO":
        key = words[2]
    elif command in _WITHOUT_KEY:
        return None
    else:
        key = words[1]
    return int(key_slot(key if isinstance(key, bytes) else str(key).encode()))


_WITHOUT_KEY = {"CLUSTER", "CONFIG", "DBSIZE", "INFO", "PING", "SCAN", "SCRIPT", "SUBSCRIBE", "TIME", "WAIT"}
