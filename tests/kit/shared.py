"""What tests share: a server of each kind, a cluster, and what sentinels watch over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.cluster import Cluster
from tests.kit.sentinels import Sentinels
from tests.kit.servers import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

Lent = ServerProcess | Cluster | Sentinels

FLEETS = ("sentinel", "cluster")
"""What is more than one server."""


class Shared:
    """One of each kind, started when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: dict[str, Lent] = {}

    def __getitem__(self, kind: str) -> Lent:
        if kind not in self._started:
            self._started[kind] = self._made(kind)
        return self._started[kind].start()

    def stop(self) -> None:
        for server in self._started.values():
            server.stop()

    def _made(self, kind: str) -> Lent:
        folder = self._folder / kind
        if kind == "cluster":
            return Cluster(folder)
        if kind == "sentinel":
            return Sentinels(folder)
        return ServerProcess(kind, folder)
