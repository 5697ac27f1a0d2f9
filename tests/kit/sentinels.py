"""A primary, its replica and three sentinels that watch over them, on loopback."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Self

from redis.exceptions import RedisError

from tests.kit.child import Child
from tests.kit.cluster import node_client
from tests.kit.ports import free_port
from tests.kit.servers import ServerProcess, ServerUnusable, binary

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = "firetime"
_QUORUM = 2
_START_S = 30.0
_POLL_S = 0.01


class Sentinels:
    """A primary and a replica under three sentinels.

    ``down_after_s``: how long a primary is silent before a sentinel thinks it down. Under load a short one makes failovers of
    primaries that are well.
    """

    kind = "sentinel"

    def __init__(self, folder: Path, *, down_after_s: float = 10, append_only: bool = False) -> None:
        self._folder = folder
        self._down_after_s = down_after_s
        self._append_only = append_only
        self.servers: list[ServerProcess] = []
        """The first primary and its first replica."""
        self.ports: list[int] = []
        """Of the sentinels."""
        self._watching: list[Child] = []

    @property
    def url(self) -> str:
        """Names the sentinels."""
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in self.ports) + f"/{SERVICE}"

    @property
    def data_urls(self) -> list[str]:
        """The primary."""
        return [self.primary().url]

    @property
    def running(self) -> bool:
        return bool(self._watching)

    @property
    def answering(self) -> bool:
        return any(server.answering for server in self.servers)

    def start(self) -> Self:
        """Returns when the replica is in step, and every sentinel knows the others and the replica."""
        if self._watching:
            return self
        primary, replica = (
            ServerProcess("valkey9", self._folder / name, append_only=self._append_only, config=config)
            for name, config in (("a", _REPLICATION), ("b", dict(_REPLICATION)))
        )
        self.servers = [primary, replica]
        primary.start()
        replica.config["replicaof"] = f"127.0.0.1 {primary.port}"
        replica.start()
        # what sentinels decide must outlive the restart of a server: they rewrite its configuration, of which there is no file
        del replica.config["replicaof"]
        self.ports = [free_port() for _ in range(3)]
        names = [secrets.token_hex(20) for _ in self.ports]
        self._watching = [self._sentinel(number, names) for number in range(3)]
        self._wait(self._all_see_it, "the sentinels do not see what they watch over")
        return self

    def stop(self) -> None:
        for sentinel in self._watching:
            sentinel.close()
        for server in self.servers:
            server.kill()
        self._watching, self.servers = [], []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def primary(self) -> ServerProcess:
        """The one that most sentinels take for the primary."""
        ports = [self._ask(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE) for port in self.ports]
        named = [int(told[1]) for told in ports]
        port = max(named, key=named.count)
        return next(server for server in self.servers if server.port == port)

    def replica(self) -> ServerProcess:
        """The other one."""
        primary = self.primary()
        return next(server for server in self.servers if server != primary)

    def fail_over(self) -> None:
        """Asks for a failover, as an operator does; returns at once."""
        self._ask(self.ports[0], "SENTINEL", "FAILOVER", SERVICE)

    def _all_see_it(self) -> bool:
        try:
            facts = [self._ask(port, "SENTINEL", "MASTER", SERVICE) for port in self.ports]
            with node_client(self.servers[1].port) as redis:
                in_step = redis.execute_command("ROLE")[3] == b"connected"
        except (RedisError, OSError):
            return False
        told = [dict(zip(each[::2], each[1::2], strict=True)) for each in facts]
        known = [(each[b"num-other-sentinels"], each[b"num-slaves"], each[b"flags"]) for each in told]
        return in_step and known == [(b"2", b"1", b"master")] * 3

    def _wait(self, reached: Any, otherwise: str) -> None:
        give_up = time.monotonic() + _START_S
        while not reached():
            if time.monotonic() > give_up:
                raise ServerUnusable(f"{otherwise} after {_START_S:g} s")
            time.sleep(_POLL_S)

    @staticmethod
    def _ask(port: int, *words: Any) -> Any:
        with node_client(port) as redis:
            return redis.execute_command(*words, NEVER_DECODE=True)

    def _sentinel(self, number: int, names: list[str]) -> Child:
        folder = self._folder / f"sentinel-{number}"
        folder.mkdir(parents=True)
        watched = self.servers[0].port
        # known from the first moment: otherwise they introduce themselves over the primary, once every 2 s
        others = [
            f"sentinel known-sentinel {SERVICE} 127.0.0.1 {self.ports[other]} {names[other]}"
            for other in range(3)
            if other != number
        ]
        lines = [
            f"port {self.ports[number]}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"sentinel myid {names[number]}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {watched} {_QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {int(self._down_after_s * 1000)}",
            f"sentinel failover-timeout {SERVICE} 6000",
            f"sentinel known-replica {SERVICE} 127.0.0.1 {self.servers[1].port}",
            *others,
        ]
        file = folder / "sentinel.conf"
        file.write_text("\n".join(lines) + "\n")
        return Child([binary("valkey9"), file, "--sentinel"], output=folder / "sentinel.log")


_REPLICATION = {
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
}
