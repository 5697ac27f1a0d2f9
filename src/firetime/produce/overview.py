"""Questions about queues are answered from what Redis holds: read only, each bounded."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence

import msgspec

from firetime.produce.control import Look, look
from firetime.produce.desk import Desk
from firetime.store.clock import fire_ms
from firetime.store.keys import QueueKeys, queue_of
from firetime.values.errors import BrokerRefused, MessageNotFound
from firetime.values.ids import as_text
from firetime.values.states import LANES, PRIORITIES, Priority, Status


class TaskStats(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of one task, since the metrics were last deleted."""

    task: str
    runs: int
    failed: int
    mean_s: float


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """One queue now."""

    queue: str
    ready: int
    """Messages in the lanes that nobody has been given yet."""
    by_priority: dict[Priority, int]
    """Entries in each lane, running ones included."""
    running: int
    delayed: int
    dead: int
    paused: bool
    next_fire_ms: int | None
    leader: str
    """The token of who leads; empty when nobody does."""
    leader_epoch: int
    leader_since_ms: int | None
    workers: int
    slots: int
    """Tasks that the live workers can run at once."""
    predicted_wait_s: float | None
    """Mean run x waiting / slots, over all tasks; None while nothing has been run or nobody works."""
    mean_late_ms: float | None
    """By how much delayed tasks started late on average."""
    tasks: list[TaskStats]
    server_ms: int
    """When the server answered."""


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

    @property
    def works(self) -> bool:
        """Whether it runs tasks; a scheduler of its own has no slots."""
        return self.concurrency > 0


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says of itself."""

    kind: str
    """Redis or Valkey."""
    version: str
    maxmemory_policy: str
    """Empty where the server does not tell."""
    appendonly: bool
    replica: bool
    replicas: int
    """How many it feeds; of a cluster, one of its primaries."""
    answered_in_s: float


class Overview:
    """What a runner's queues look like: ``runner.stats()`` and the command line ask here."""

    def __init__(self, desk: Desk, gone_s: float) -> None:
        self._desk = desk
        self._gone_ms = round(gone_s * 1000)

    async def server(self) -> ServerFacts:
        """The server. Raises ``BrokerUnavailable``, and ``BrokerRefused`` for wrong credentials or an old version."""
        server = await self._desk.server()
        lines = (await server.ask("INFO")).decode("utf-8", "replace").splitlines()
        asked = time.monotonic()
        await server.ask("PING")
        answered = time.monotonic()
        facts = dict(line.split(":", 1) for line in lines if ":" in line)
        return ServerFacts(
            kind="Valkey" if "valkey_version" in facts else "Redis",
            version=facts.get("valkey_version") or facts.get("redis_version", ""),
            maxmemory_policy=facts.get("maxmemory_policy", ""),
            appendonly=facts.get("aof_enabled") == "1",
            replica=facts.get("role") == "slave",
            replicas=int(facts.get("connected_slaves") or 0),
            answered_in_s=answered - asked,
        )

    async def queue(self, name: str) -> QueueStats:
        """One queue."""
        keys, server = self._desk.keys(name), await self._desk.server()
        now_ms = await server.now_us() // 1000
        lengths = [int(await server.ask("XLEN", keys.lanes[letter])) for letter in LANES.values()]
        running = sum([await self._pending(keys, letter) for letter in LANES.values()])
        head = await server.ask("ZRANGE", keys.delayed, 0, 0, "WITHSCORES")
        lease = (await server.ask("GET", keys.leader) or b"").decode().split(" ")
        workers = [each for each in await self.workers(name) if each.works and each.seen_ms >= now_ms - self._gone_ms]
        metrics = await server.ask("HGETALL", keys.metrics)
        counters = _counters(metrics)
        tasks = _task_stats(counters)
        ready, slots = sum(lengths) - running, sum(each.concurrency for each in workers)
        return QueueStats(
            queue=name,
            ready=ready,
            by_priority=dict(zip(LANES, lengths, strict=True)),
            running=running,
            delayed=await server.ask("ZCARD", keys.delayed),
            dead=await server.ask("ZCARD", keys.dead),
            paused=await server.ask("EXISTS", keys.paused) == 1,
            next_fire_ms=fire_ms(head[1]) if head and math.isfinite(float(head[1])) else None,
            leader=lease[0],
            leader_epoch=int(lease[1]) if len(lease) == 3 else 0,
            leader_since_ms=int(lease[2]) if len(lease) == 3 else None,
            workers=len(workers),
            slots=slots,
            predicted_wait_s=_predicted_wait(tasks, ready, slots),
            mean_late_ms=_mean(counters, "@late"),
            tasks=tasks,
            server_ms=now_ms,
        )

    async def workers(self, queue: str) -> list[WorkerInfo]:
        """The workers of a queue that the register knows, the dead of the last minutes among them."""
        keys, server = self._desk.keys(queue), await self._desk.server()
        told = await server.ask("HGETALL", keys.workers)
        seen = await server.ask("ZRANGE", keys.workers_seen, 0, -1, "WITHSCORES")
        when = {seen[at]: int(float(seen[at + 1])) for at in range(0, len(seen), 2)}
        return _workers(told, when)

    async def queues(self) -> list[str]:
        """Every queue that has keys under this prefix, found by scanning: not for every second."""
        server, prefix = await self._desk.server(), self._desk.prefix
        return sorted({queue_of(key) async for key in server.keys_like(f"{prefix}:{{*}}:*")})

    async def delayed(self, queue: str, *, offset: int = 0, limit: int = 50) -> list[Look]:
        """A page of one queue's future, by fire-time."""
        return await self.future([queue], offset=offset, limit=limit)

    async def future(self, queues: Sequence[str], *, offset: int = 0, limit: int = 50) -> list[Look]:
        """A page of several queues' future, by fire-time. Far pages of more than one queue read all before them."""
        server, skipped = await self._desk.server(), offset if len(queues) == 1 else 0
        heads: list[tuple[float, str, bytes]] = []
        for queue in queues:
            key = self._desk.keys(queue).delayed
            flat = await server.ask("ZRANGE", key, skipped, offset + limit - 1, "WITHSCORES")
            heads += [(float(flat[at + 1]), queue, flat[at]) for at in range(0, len(flat), 2)]
        page = sorted(heads)[offset - skipped :][:limit]
        return [await self.look(queue, as_text(member[:-1])) for _, queue, member in page]

    async def in_lanes(self, queue: str, *, offset: int = 0, limit: int = 50) -> list[Look]:
        """The messages that are ready or running, oldest first, from the high lane down."""
        keys, server = self._desk.keys(queue), await self._desk.server()
        ids: list[str] = []
        for letter in PRIORITIES:
            missing = max(0, offset + limit - len(ids))
            entries = await server.ask("XRANGE", keys.lanes[letter], "-", "+", "COUNT", missing or 1)
            ids += [as_text(fields[1]) for _, fields in entries[:missing] if fields[:1] == [b"i"]]
        return [await self.look(queue, task_id) for task_id in ids[offset : offset + limit]]

    async def find(self, task_id: str, queues: Sequence[str]) -> Look:
        """A message whose queue is not known, in the first of these that knows it. Raises ``MessageNotFound``."""
        for queue in queues:
            found = await self.look(queue, task_id)
            if found.status is not Status.UNKNOWN:
                return found
        where = f"in {', '.join(queues)}" if queues else "here: there is no queue yet"
        raise MessageNotFound(task_id, f"{where}; a finished task without result_ttl leaves nothing behind")

    async def look(self, queue: str, task_id: str) -> Look:
        """Everything known of one message."""
        return await look(await self._desk.server(), self._desk.keys(queue), task_id, self._desk.house.codec)

    async def _pending(self, keys: QueueKeys, letter: str) -> int:
        server = await self._desk.server()
        try:
            return int((await server.ask("XPENDING", keys.lanes[letter], "workers"))[0])
        except BrokerRefused:
            # no group yet: no worker has ever looked at this lane
            return 0


def _task_stats(counters: dict[str, int]) -> list[TaskStats]:
    names = sorted(name[:-6] for name in counters if name.endswith("_count") and f"{name[:-6]}_sum" in counters)
    return [
        TaskStats(
            task=name,
            runs=counters[f"{name}_count"],
            failed=counters.get(f"{name}_failed", 0),
            mean_s=counters[f"{name}_sum"] / max(1, counters[f"{name}_count"]) / 1_000_000,
        )
        for name in names
        if name not in ("@late", "delayed_tasks_schedule")
    ]


def _predicted_wait(tasks: list[TaskStats], waiting: int, slots: int) -> float | None:
    runs = sum(task.runs for task in tasks)
    if not runs or not slots:
        return None
    return sum(task.mean_s * task.runs for task in tasks) / runs * waiting / slots


def _mean(counters: dict[str, int], name: str) -> float | None:
    count = counters.get(f"{name}_count", 0)
    return counters.get(f"{name}_sum", 0) / count if count else None


def _counters(metrics: list[bytes]) -> dict[str, int]:
    """What counts; a field that somebody else wrote does not."""
    pairs = zip(metrics[::2], metrics[1::2], strict=True)
    return {as_text(name): int(value) for name, value in pairs if value.lstrip(b"-").isdigit()}


def _workers(told: list[bytes], seen_ms: dict[bytes, int]) -> list[WorkerInfo]:
    """Who told of himself in a way that can be read."""
    found: list[WorkerInfo] = []
    for token, about in zip(told[::2], told[1::2], strict=True):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            worker = msgspec.json.decode(about, type=WorkerInfo)
            found.append(msgspec.structs.replace(worker, seen_ms=seen_ms.get(token, 0)))
    return found
