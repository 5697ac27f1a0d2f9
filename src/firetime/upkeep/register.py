"""Workers say that they are there; those that stopped saying so are forgotten, with the consumers they left."""

from __future__ import annotations

import msgspec

from firetime.store.connect import Server
from firetime.store.keys import QueueKeys


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself."""

    worker: str
    host: str
    pid: int
    started_ms: int
    concurrency: int
    threads: int
    running: int
    version: str
    ailing: tuple[str, ...] = ()
    """Which of its parts do not do their work."""


class Register:
    """One queue's list of workers."""

    def __init__(self, server: Server, keys: QueueKeys, *, gone_s: float) -> None:
        self._server = server
        self._keys = keys
        self._gone_ms = round(gone_s * 1000)

    async def say_alive(self, about: About) -> int:
        """Returns how many workers serve the queue."""
        arguments: dict[str, str | bytes | int] = {
            "token": about.worker,
            "about": msgspec.json.encode(about),
            "fresh_ms": self._gone_ms,
        }
        count: int = await self._server.run("alive", self._keys, arguments)
        return count

    async def prune(self) -> tuple[int, int]:
        """Forgets the silent; returns how many workers and how many consumers. Never touches pending work."""
        workers, consumers = await self._server.run("prune", self._keys, {"gone_ms": self._gone_ms})
        return workers, consumers

    async def waiting(self) -> int:
        """How many messages stand in the queue's lanes, running ones included."""
        return sum([int(await self._server.ask("XLEN", lane)) for lane in self._keys.lanes.values()])
