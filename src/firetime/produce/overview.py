"""Questions about queues are answered from what Redis holds: read only, each bounded."""

from __future__ import annotations

from typing import Any

import msgspec

from firetime.produce.control import Look, look
from firetime.produce.desk import Desk
from firetime.store.keys import QueueKeys
from firetime.values.states import LANES, PRIORITIES, Priority


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


class Overview:
    """What a runner's queues look like: ``runner.stats()`` and the command line ask here."""

    def __init__(self, desk: Desk, gone_s: float) -> None:
        self._desk = desk
        self._gone_ms = round(gone_s * 1000)

    async def queue(self, name: str) -> QueueStats:
        """One queue."""
        keys, server = self._desk.keys(name), await self._desk.server()
        seconds, micros = await server.ask("TIME")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        lengths = [int(await server.ask("XLEN", keys.lanes[letter])) for letter in LANES.values()]
        running = sum([await self._pending(keys, letter) for letter in LANES.values()])
        head = await server.ask("ZRANGE", keys.delayed, 0, 0, "WITHSCORES")
        lease = (await server.ask("GET", keys.leader) or b"").decode().split(" ")
        workers = [each for each in await self.workers(name) if each.seen_ms >= now_ms - self._gone_ms]
        metrics = await server.ask("HGETALL", keys.metrics)
        counters = {metrics[at].decode(): int(metrics[at + 1]) for at in range(0, len(metrics), 2)}
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
            next_fire_ms=int(float(head[1]) // 4096) if head else None,
            leader=lease[0],
            leader_epoch=int(lease[1]) if len(lease) == 3 else 0,
            leader_since_ms=int(lease[2]) if len(lease) == 3 else None,
            workers=len(workers),
            slots=slots,
            predicted_wait_s=_predicted_wait(tasks, ready, slots),
            mean_late_ms=_mean(counters, "late"),
            tasks=tasks,
            server_ms=now_ms,
        )

    async def workers(self, queue: str) -> list[WorkerInfo]:
        """The workers of a queue that the register knows, the dead of the last minutes among them."""
        keys, server = self._desk.keys(queue), await self._desk.server()
        told = await server.ask("HGETALL", keys.workers)
        seen = await server.ask("ZRANGE", keys.workers_seen, 0, -1, "WITHSCORES")
        when = {seen[at]: int(float(seen[at + 1])) for at in range(0, len(seen), 2)}
        return [_worker(told[at + 1], when.get(told[at], 0)) for at in range(0, len(told), 2)]

    async def queues(self) -> list[str]:
        """Every queue that has keys under this prefix, found by scanning: not for every second."""
        server, prefix = await self._desk.server(), self._desk.prefix
        found: set[str] = set()
        cursor: Any = b"0"
        while True:
            cursor, keys = await server.ask("SCAN", cursor, "MATCH", f"{prefix}:{{*}}:*", "COUNT", 1000)
            found |= {key.decode().split("{")[1].split("}")[0] for key in keys}
            if cursor == b"0":
                return sorted(found)

    async def delayed(self, queue: str, *, offset: int = 0, limit: int = 50) -> list[Look]:
        """A page of the future, by fire-time."""
        keys, server = self._desk.keys(queue), await self._desk.server()
        members = await server.ask("ZRANGE", keys.delayed, offset, offset + limit - 1)
        return [await self.look(queue, member[:-1].decode()) for member in members]

    async def in_lanes(self, queue: str, *, limit: int = 50) -> list[Look]:
        """The oldest messages that are ready or running, from the high lane down."""
        keys, server = self._desk.keys(queue), await self._desk.server()
        found: list[Look] = []
        for letter in PRIORITIES:
            entries = await server.ask("XRANGE", keys.lanes[letter], "-", "+", "COUNT", max(1, limit - len(found)))
            for _, fields in entries[: limit - len(found)]:
                if fields[:1] == [b"i"]:
                    found.append(await self.look(queue, fields[1].decode("utf-8", "backslashreplace")))
        return found

    async def look(self, queue: str, task_id: str) -> Look:
        """Everything known of one message."""
        return await look(await self._desk.server(), self._desk.keys(queue), task_id, self._desk.house.codec)

    async def _pending(self, keys: QueueKeys, letter: str) -> int:
        from firetime.values.errors import BrokerRefused

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
        if name not in ("late", "delayed_tasks_schedule")
    ]


def _predicted_wait(tasks: list[TaskStats], waiting: int, slots: int) -> float | None:
    runs = sum(task.runs for task in tasks)
    if not runs or not slots:
        return None
    return sum(task.mean_s * task.runs for task in tasks) / runs * waiting / slots


def _mean(counters: dict[str, int], name: str) -> float | None:
    count = counters.get(f"{name}_count", 0)
    return counters.get(f"{name}_sum", 0) / count if count else None


def _worker(told: bytes, seen_ms: int) -> WorkerInfo:
    return msgspec.structs.replace(msgspec.json.decode(told, type=WorkerInfo), seen_ms=seen_ms)
