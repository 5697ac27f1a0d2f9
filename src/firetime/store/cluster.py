"""A cluster: each call goes to the node that has the queue's slot, and follows it when it moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from firetime.store.address import Address, Node
from firetime.store.clock import Shift
from firetime.store.connect import CALL_S, Line, Server
from firetime.store.replies import NoScript, Redirected
from firetime.store.scripts import Argument, Script
from firetime.store.wire import AsyncConnection
from firetime.values.errors import BrokerRefused, BrokerUnavailable, QueueError

_MOST_HOPS = 5
"""How often one call follows a slot before it gives up for now."""

_LEARN_S = 1.0
"""How long one node is asked for the map before the next one is, in seconds."""


class _NodeServer(Server):
    """One node of the cluster."""

    _in_cluster = True

    def __init__(self, address: Address, shift: Shift, node: Node) -> None:
        super().__init__(address, shift)
        self.node = node

    def connection_options(self) -> dict[str, Any]:
        return self.address.connection_options(self.node)

    async def exchange(
        self, connection: AsyncConnection, words: Sequence[Argument], deadline_s: float, replicas: int = 0
    ) -> Any:
        try:
            return await super().exchange(connection, words, deadline_s, replicas)
        except NoScript as error:
            error.node = self.node
            raise
        except Redirected as error:
            if not error.node[0]:
                # a node that does not know its own address means the one by which it was reached
                error.node = (self.node[0], error.node[1])
            raise

    async def ask_once(self, *words: Argument, deadline_s: float, replicas: int) -> Any:
        """One command for a slot that is on its way here."""
        connection = self.own_connection()
        try:
            await self.exchange(connection, ("ASKING",), deadline_s)
            return await self.exchange(connection, words, deadline_s, replicas)
        finally:
            self.disown(connection)
            await connection.disconnect(nowait=True)


class ClusterServer(Server):
    """The primaries of a cluster, as one event loop sees them."""

    try_s = 2.0
    _in_one_place = False

    def __init__(self, address: Address, shift: Shift) -> None:
        super().__init__(address, shift)
        self._nodes: dict[Node, _NodeServer] = {}
        self._primaries: list[Node] = []
        self._known: set[Node] = set(address.nodes)
        """Who may be asked for the map: those of the address, and all nodes of the last map."""
        self._learning = asyncio.Lock()
        self._owners: dict[int, Node] = {}
        """Slot -> node, as far as known."""

    async def ask(self, *words: Argument, deadline_s: float = CALL_S, replicas: int = 0) -> Any:
        slot = slot_of(words)
        clock = asyncio.get_running_loop().time
        expires = clock() + deadline_s
        for _ in range(_MOST_HOPS):
            node = await self.node_of(slot)
            try:
                return await node.ask(*words, deadline_s=expires - clock(), replicas=replicas)
            except Redirected as to:
                if to.once:
                    return await self._ask_once(to, words, expires - clock(), replicas)
                self.moved(to)
            except BrokerUnavailable:
                self.forget()
                raise
        raise BrokerUnavailable(f"slot {slot} keeps moving")

    async def _ask_once(self, to: Redirected, words: tuple[Argument, ...], deadline_s: float, replicas: int) -> Any:
        try:
            return await self._node(to.node).ask_once(*words, deadline_s=deadline_s, replicas=replicas)
        except Redirected:
            # it has arrived, or goes back, this moment
            raise BrokerUnavailable(f"slot {to.slot} is moving") from None

    def line(self, key: str = "") -> Line:
        return _ClusterLine(self, slot_of(("GET", key)) if key else None)

    async def keys_like(self, pattern: str) -> AsyncIterator[str]:
        await self.node_of(None)
        for primary in tuple(self._primaries):
            async for key in self._node(primary).keys_like(pattern):
                yield key

    async def aclose(self) -> None:
        await super().aclose()
        for node in self._nodes.values():
            await node.aclose()

    def sever(self) -> None:
        for node in self._nodes.values():
            node.sever()
        super().sever()

    async def node_of(self, slot: int | None) -> _NodeServer:
        """The node that has a slot; any primary for None."""
        async with self._learning:
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
        self._known.add(to.node)
        if to.node not in self._primaries:
            self._primaries.append(to.node)

    def forget(self) -> None:
        """Something is wrong with the map: the next call learns it anew."""
        self._owners = {}

    async def load(self, called: Script, missing: NoScript) -> None:
        # while a slot moves that may be the node it moves to
        if missing.node is not None:
            await self._node(missing.node).ask("SCRIPT", "LOAD", called.source)

    async def _learn(self) -> None:
        reason = "it has no nodes"
        # in any order: one that has been cut off from the others goes on telling what was
        for node in random.sample(sorted(self._known), len(self._known)):
            try:
                told = await self._node(node).ask("CLUSTER", "SLOTS", deadline_s=_LEARN_S)
            except QueueError as error:
                reason = error.reason if isinstance(error, BrokerUnavailable) else str(error)
                continue
            owners: dict[int, Node] = {}
            known = set(self.address.nodes)
            for first, last, *serving in told:
                primary, *replicas = (_where(each, node) for each in serving)
                owners.update(dict.fromkeys(range(first, last + 1), primary))
                known.update((primary, *replicas))
            if owners:
                self._owners, self._known = owners, known
                self._primaries = sorted(set(owners.values()))
                return
        raise BrokerUnavailable(f"no node of the cluster answers: {reason}")

    def _node(self, node: Node) -> _NodeServer:
        found = self._nodes.get(node)
        if found is None:
            if self._closed:
                # whoever was cut off by the closing may not begin anew with the next node
                raise BrokerRefused("this runner is closed")
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
            if not error.once:
                self._cluster.moved(error)
            return BrokerUnavailable(f"slot {error.slot} {'is moving' if error.once else 'has moved'} to another node")
        if isinstance(error, BrokerUnavailable):
            self._cluster.forget()
        return error


def _where(told: Any, asked: Node) -> Node:
    """A node out of CLUSTER SLOTS; one that knows no address of its own means the one by which it was asked."""
    return (told[0] or b"").decode() or asked[0], int(told[1])


def slot_of(words: tuple[Argument, ...] | list[Argument]) -> int | None:
    """The slot of a command's first key; None for commands without one."""
    from redis.crc import key_slot

    command = words[0]
    if command in ("EVAL", "EVALSHA"):
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
