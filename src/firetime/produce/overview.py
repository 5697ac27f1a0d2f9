"""Questions about queues are answered from what Redis holds: read only, each bounded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from firetime.produce.control import Look, look
from firetime.produce.desk import Desk
from firetime.produce.gauge import Gauge, WorkerInfo, read_gauge, read_workers, together
from firetime.produce.whereabouts import first_that
from firetime.store.keys import QueueKeys, queue_of
from firetime.values.errors import MessageNotFound
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
    """Whether all of it is, with every shard."""
    next_fire_ms: int | None
    leader: str
    """The token of who leads (of a queue with shards its home); empty when nobody does."""
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
    shards: list[str] = []
    """The names of its home and its shards, where it is spread; ``stats`` tells of each by its name."""
    unserved: list[str] = []
    """Those of them in which messages wait, ready or delayed, and no worker was seen for 3 leases."""


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
        """One queue, with all its shards; or one shard, by its name."""
        server = await self._desk.server()
        now_ms = await server.now_us() // 1000
        gauges = [await read_gauge(server, keys) for keys in await self._desk.all_keys(name)]
        home = gauges[0]
        workers = [each for each in together(gauge.workers for gauge in gauges) if self._serves(each, now_ms)]
        counters = Counter[str]()
        for gauge in gauges:
            counters.update(gauge.counters)
        heads = [gauge.next_fire_ms for gauge in gauges if gauge.next_fire_ms is not None]
        tasks = _task_stats(counters)
        running, slots = sum(gauge.running for gauge in gauges), sum(each.concurrency for each in workers)
        lengths: dict[Priority, int] = {
            priority: sum(gauge.lengths[letter] for gauge in gauges) for priority, letter in LANES.items()
        }
        ready = sum(lengths.values()) - running
        return QueueStats(
            queue=name,
            ready=ready,
            by_priority=lengths,
            running=running,
            delayed=sum(gauge.delayed for gauge in gauges),
            dead=sum(gauge.dead for gauge in gauges),
            paused=all(gauge.paused for gauge in gauges),
            next_fire_ms=min(heads, default=None),
            leader=home.leader,
            leader_epoch=home.leader_epoch,
            leader_since_ms=home.leader_since_ms,
            workers=len(workers),
            slots=slots,
            predicted_wait_s=_predicted_wait(tasks, ready, slots),
            mean_late_ms=_mean(counters, "@late"),
            tasks=tasks,
            server_ms=now_ms,
            shards=[gauge.queue for gauge in gauges] if len(gauges) > 1 else [],
            unserved=[each.queue for each in gauges if self._is_unserved(each, now_ms)] if len(gauges) > 1 else [],
        )

    def _serves(self, worker: WorkerInfo, now_ms: int) -> bool:
        return worker.works and worker.seen_ms >= now_ms - self._gone_ms

    def _is_unserved(self, gauge: Gauge, now_ms: int) -> bool:
        return bool(gauge.ready or gauge.delayed) and not any(self._serves(each, now_ms) for each in gauge.workers)

    async def workers(self, queue: str) -> list[WorkerInfo]:
        """The workers of a queue that the register knows, the dead of the last minutes among them."""
        server = await self._desk.server()
        return together([await read_workers(server, keys) for keys in await self._desk.all_keys(queue)])

    async def queues(self) -> list[str]:
        """Every queue that has keys under this prefix, found by scanning: not for every second."""
        server, prefix = await self._desk.server(), self._desk.prefix
        names = {queue_of(key) async for key in server.keys_like(f"{prefix}:{{*}}:*")}
        return sorted(set(map(self._desk.shards.logical, names)))

    async def delayed(self, queue: str, *, offset: int = 0, limit: int = 50) -> list[Look]:
        """A page of one queue's future, by fire-time."""
        return await self.future([queue], offset=offset, limit=limit)

    async def future(self, queues: Sequence[str], *, offset: int = 0, limit: int = 50) -> list[Look]:
        """A page of several queues' future, by fire-time. Far pages of more than one queue read all before them."""
        server = await self._desk.server()
        places = [keys for queue in queues for keys in await self._desk.all_keys(queue)]
        skipped = offset if len(places) == 1 else 0
        heads: list[tuple[float, str, bytes]] = []
        for keys in places:
            flat = await server.ask("ZRANGE", keys.delayed, skipped, offset + limit - 1, "WITHSCORES")
            heads += [(float(flat[at + 1]), keys.queue, flat[at]) for at in range(0, len(flat), 2)]
        page = sorted(heads)[offset - skipped :][:limit]
        return [await self._look(self._desk.keys(place), as_text(member[:-1])) for _, place, member in page]

    async def in_lanes(self, queue: str, *, offset: int = 0, limit: int = 50) -> list[Look]:
        """The messages that are ready or running, oldest first, from the high lane down; shard by shard."""
        server = await self._desk.server()
        found: list[tuple[QueueKeys, str]] = []
        for keys in await self._desk.all_keys(queue):
            for letter in PRIORITIES:
                missing = max(0, offset + limit - len(found))
                entries = await server.ask("XRANGE", keys.lanes[letter], "-", "+", "COUNT", missing or 1)
                ids = [as_text(fields[1]) for _, fields in entries[:missing] if fields[:1] == [b"i"]]
                found += [(keys, task_id) for task_id in ids]
        return [await self._look(keys, task_id) for keys, task_id in found[offset : offset + limit]]

    async def find(self, task_id: str, queues: Sequence[str]) -> Look:
        """A message whose queue is not known, in the first of these that knows it. Raises ``MessageNotFound``."""
        for queue in queues:
            found = await self.look(queue, task_id)
            if found.status is not Status.UNKNOWN:
                return found
        where = f"in {', '.join(queues)}" if queues else "here: there is no queue yet"
        raise MessageNotFound(task_id, f"{where}; a finished task without result_ttl leaves nothing behind")

    async def look(self, queue: str, task_id: str) -> Look:
        """Everything known of one message; in a queue with shards, of the one shard that knows it."""
        places = self._desk.keys_for(queue, task_id)
        _, found = await first_that(
            places, lambda keys: self._look(keys, task_id), lambda look: look.status is not Status.UNKNOWN
        )
        return found

    async def _look(self, keys: QueueKeys, task_id: str) -> Look:
        return await look(await self._desk.server(), keys, task_id, self._desk.house.codec)


def _task_stats(counters: Mapping[str, int]) -> list[TaskStats]:
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


def _mean(counters: Mapping[str, int], name: str) -> float | None:
    count = counters.get(f"{name}_count", 0)
    return counters.get(f"{name}_sum", 0) / count if count else None
