"""What stands under the keys of one queue, or of one shard, is read as it is; the overview adds it up."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from firetime.store.clock import fire_ms
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.values.errors import BrokerRefused
from firetime.values.ids import as_text
from firetime.values.message import UNREADABLE


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it told the register."""

    worker: str
    host: str = ""
    pid: int = 0
    started_ms: int = 0
    concurrency: int = 0
    threads: int = 0
    running: int = 0
    version: str = ""
    seen_ms: int = 0
    ailing: tuple[str, ...] = ()
    """Which of its parts do not do their work, as it told itself."""

    @property
    def works(self) -> bool:
        """Whether it runs tasks; a scheduler of its own has no slots."""
        return self.concurrency > 0


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """One reading."""

    queue: str
    lengths: dict[str, int]
    """Entries in each lane, by its letter, running ones included."""
    running: int
    delayed: int
    dead: int
    paused: bool
    next_fire_ms: int | None
    leader: str
    leader_epoch: int
    leader_since_ms: int | None
    counters: Counter[str]
    workers: list[WorkerInfo]

    @property
    def ready(self) -> int:
        """Messages in the lanes that nobody has been given yet."""
        return sum(self.lengths.values()) - self.running


async def read_gauge(server: Server, keys: QueueKeys) -> Gauge:
    """Reads it in some 15 calls, each bounded."""
    lengths = {letter: int(await server.ask("XLEN", lane)) for letter, lane in keys.lanes.items()}
    running = sum([await _pending(server, lane) for lane in keys.lanes.values()])
    head = await server.ask("ZRANGE", keys.delayed, 0, 0, "WITHSCORES")
    lease = (await server.ask("GET", keys.leader) or b"").decode().split(" ")
    return Gauge(
        queue=keys.queue,
        lengths=lengths,
        running=running,
        delayed=await server.ask("ZCARD", keys.delayed),
        dead=await server.ask("ZCARD", keys.dead),
        paused=await server.ask("EXISTS", keys.paused) == 1,
        next_fire_ms=fire_ms(head[1]) if head and math.isfinite(float(head[1])) else None,
        leader=lease[0],
        leader_epoch=int(lease[1]) if len(lease) == 3 else 0,
        leader_since_ms=int(lease[2]) if len(lease) == 3 else None,
        counters=_counters(await server.ask("HGETALL", keys.metrics)),
        workers=await read_workers(server, keys),
    )


async def read_workers(server: Server, keys: QueueKeys) -> list[WorkerInfo]:
    """The register of one queue, or of one shard."""
    told = await server.ask("HGETALL", keys.workers)
    seen = await server.ask("ZRANGE", keys.workers_seen, 0, -1, "WITHSCORES")
    return _workers(told, {seen[at]: int(float(seen[at + 1])) for at in range(0, len(seen), 2)})


def together(registers: Iterable[list[WorkerInfo]]) -> list[WorkerInfo]:
    """Each worker once, as it was last heard by any shard."""
    latest: dict[str, WorkerInfo] = {}
    for worker in (each for register in registers for each in register):
        if (known := latest.get(worker.worker)) is None or worker.seen_ms > known.seen_ms:
            latest[worker.worker] = worker
    return list(latest.values())


async def _pending(server: Server, lane: str) -> int:
    try:
        return int((await server.ask("XPENDING", lane, "workers"))[0])
    except BrokerRefused:
        # no group yet: no worker has ever looked at this lane
        return 0


def _counters(metrics: Sequence[bytes]) -> Counter[str]:
    """What counts; a field that somebody else wrote does not."""
    pairs = zip(metrics[::2], metrics[1::2], strict=True)
    return Counter({as_text(name): int(value) for name, value in pairs if value.lstrip(b"-").isdigit()})


def _workers(told: list[bytes], seen_ms: dict[bytes, int]) -> list[WorkerInfo]:
    """Who told of himself in a way that can be read."""
    found: list[WorkerInfo] = []
    for token, about in zip(told[::2], told[1::2], strict=True):
        with contextlib.suppress(*UNREADABLE):
            worker = msgspec.json.decode(about, type=WorkerInfo)
            found.append(msgspec.structs.replace(worker, seen_ms=seen_ms.get(token, 0)))
    return found
