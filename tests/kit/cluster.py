"""A cluster of real servers on loopback: three primaries, each with a replica."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.kit.ports import free_port
from tests.kit.servers import ServerProcess, ServerUnusable

if TYPE_CHECKING:
    from pathlib import Path

_SLOTS = 16384
_PRIMARIES = 3
_START_S = 30.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Node:
    """One server of the cluster."""

    name: str
    """By which the cluster knows it."""
    server: ServerProcess
    bus_port: int

    def ask(self, *words: Any) -> Any:
        """One command to this very node, over a connection of its own."""
        with node_client(self.server.port) as redis:
            return redis.execute_command(*words)

    @property
    def answers(self) -> bool:
        return self.server.answering


class Cluster:
    """Three primaries and three replicas, which hold one shared key space.

    ``timeout_s`` is the cluster-node-timeout. A replica takes over about 2 s after its primary has been silent for so long;
    under load a short one takes over from primaries that are well.
    """

    kind = "cluster"

    def __init__(self, folder: Path, *, timeout_s: float = 10, append_only: bool = False) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._append_only = append_only
        self.nodes: list[Node] = []

    @property
    def url(self) -> str:
        """Names all of them."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.server.port}" for node in self.nodes)

    @property
    def data_urls(self) -> list[str]:
        """The primaries."""
        return [node.server.url for node in self.primaries()]

    @property
    def running(self) -> bool:
        return bool(self.nodes)

    @property
    def answering(self) -> bool:
        return any(node.answers for node in self.nodes)

    def start(self) -> Self:
        """Returns when all slots are served and all replicas are in step."""
        if self.nodes:
            return self
        for attempt in range(3):
            self._make_nodes(attempt)
            try:
                for node in self.nodes:
                    node.server.start()
            except ServerUnusable:  # a port was taken
                self.stop()
                continue
            self.wait_until_whole()
            return self
        raise ServerUnusable("no cluster could be started: its ports were taken three times")

    def stop(self) -> None:
        for node in self.nodes:
            node.server.kill()
        self.nodes = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- who is who

    def primaries(self) -> list[Node]:
        """Those that say so themselves."""
        return [node for node in self.nodes if node.answers and _role(node) == "master"]

    def owner(self, key: str) -> Node:
        """The primary that has a key's slot, as most of the nodes that answer see it."""
        slot = key_slot(key.encode())
        votes: dict[int, int] = {}
        for node in self.nodes:
            if node.answers:
                for first, last, primary, *_ in node.ask("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        votes[primary[1]] = votes.get(primary[1], 0) + 1
        port = max(votes, key=lambda each: votes[each])
        return next(node for node in self.nodes if node.server.port == port)

    def replica_of(self, primary: Node) -> Node:
        """Its replica."""
        for node in self.nodes:
            if node.answers and node != primary:
                role = node.ask("ROLE")
                if role[0] == b"slave" and role[2] == primary.server.port:
                    return node
        raise LookupError(f"node {primary.server.port} has no replica")

    def wait_until_whole(self, within_s: float = _START_S) -> None:
        """Until each node that runs sees every slot served, and every replica is in step with its primary."""
        give_up = time.monotonic() + within_s
        waiting = list(self.nodes)
        while waiting := [node for node in waiting if node.answers and not _is_whole(node)]:
            if time.monotonic() > give_up:
                said = waiting[0].ask("CLUSTER", "NODES").decode()
                raise ServerUnusable(f"the cluster is not whole after {within_s:g} s; one node sees:\n{said}")
            time.sleep(_POLL_S)

    # --- how it is made

    def _make_nodes(self, attempt: int) -> None:
        """Every node knows all others from the first moment, by a file as it would have written it itself.

        That takes no time; making their acquaintance (CLUSTER MEET, ADDSLOTS, REPLICATE) takes seconds.
        """
        self.nodes = []
        for number in range(2 * _PRIMARIES):
            bus_port = free_port()
            config = self._config(bus_port)
            server = ServerProcess(
                "valkey9", self._folder / f"{attempt}-{number}", append_only=self._append_only, config=config
            )
            server.port = free_port()
            self.nodes.append(Node(secrets.token_hex(20), server, bus_port))
        for me in self.nodes:
            lines = [self._line(number, itself=node == me) for number, node in enumerate(self.nodes)]
            me.server.folder.mkdir(parents=True)
            text = "\n".join([*lines, f"vars currentEpoch {_PRIMARIES} lastVoteEpoch 0", ""])
            (me.server.folder / "nodes.conf").write_text(text)

    def _config(self, bus_port: int) -> dict[str, str]:
        return {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": str(int(self._timeout_s * 1000)),
            "cluster-port": str(bus_port),
            # by default a primary waits 5 s for more replicas before it sends its data to the first one, and a replica
            # that never had any is never promoted: "Disconnected from primary for longer than allowed"
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
        }

    def _line(self, number: int, *, itself: bool) -> str:
        node = self.nodes[number]
        primary = number % _PRIMARIES
        is_primary = number < _PRIMARIES
        flags = ("myself," if itself else "") + ("master" if is_primary else "slave")
        of = "-" if is_primary else self.nodes[primary].name
        first, last = _SLOTS * primary // _PRIMARIES, _SLOTS * (primary + 1) // _PRIMARIES - 1
        slots = f" {first}-{last}" if is_primary else ""
        where = f"127.0.0.1:{node.server.port}@{node.bus_port}"
        return f"{node.name} {where} {flags} {of} 0 0 {primary + 1} connected{slots}"


def node_client(port: int) -> Redis:
    """A plain client of one server; it makes no second attempts."""
    return Redis(port=port, protocol=2, socket_timeout=10, socket_connect_timeout=10, retry=Retry(NoBackoff(), 0))


def _role(node: Node) -> str:
    try:
        return str(node.ask("ROLE")[0].decode())
    except (RedisError, OSError):
        return "gone"


def _is_whole(node: Node) -> bool:
    try:
        told = node.ask("CLUSTER", "INFO").decode()
        role = node.ask("ROLE")
    except (RedisError, OSError):
        return False
    in_step = role[0] == b"master" or role[3] == b"connected"
    return in_step and "cluster_state:ok" in told and f"cluster_slots_ok:{_SLOTS}" in told
