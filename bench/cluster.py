"""What three primaries carry beside one: ``make bench-cluster``, which writes docs/benchmarks/cluster.md.

Dispatched and promoted are the same messages over three queues, on one server, and on a cluster that has one queue on each
primary. Clients, servers and whatever else runs share this machine, so no rate over the wall clock says anything here: what
counts is the CPU that the servers' processes took (INFO cpu). The time that they spent in scripts (``usec`` of EVALSHA in INFO
commandstats) stands beside it: that is taken from a clock, so it grows where a server had to wait for a core. The busiest
server bounds what all of them carry: its time for a message of the whole, turned round, is the most that can be carried a
second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redis import Redis
from redis.crc import key_slot

from firetime import TaskRunner
from firetime.store.address import Address
from firetime.store.clock import ServerClock, Shift
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.store.places import connect
from firetime.upkeep.promote import Promoter
from tests.kit.cluster import Cluster
from tests.kit.servers import ServerProcess, binary

MESSAGES = 10_000
CHUNK = 1_000
DELAY_S = 3_600.0
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "cluster.md"
_PRIMARIES = 3
_SLOTS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What each server spent on one side of the work, in microseconds."""

    script_us: Sequence[int]
    cpu_us: Sequence[int]

    def carried(self, messages: int, spent_us: Sequence[int]) -> float:
        """The most messages a second that servers with these costs carry in all."""
        return messages * 1e6 / max(spent_us)


def main() -> None:
    """Measures both and writes the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help="for each of the three queues")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the table goes")
    asked = parser.parse_args()
    queues = _a_queue_on_each()
    with tempfile.TemporaryDirectory() as folder:
        with ServerProcess("valkey9", Path(folder) / "one") as one:
            alone = asyncio.run(_measured(one.url, one.data_urls, queues, asked.messages))
        with Cluster(Path(folder) / "three", timeout_s=30) as three:
            spread = asyncio.run(_measured(three.url, three.data_urls, queues, asked.messages))
    text = page(alone, spread, messages=asked.messages * len(queues))
    asked.page.write_text(text)
    sys.stdout.write(text)


def page(alone: dict[str, Cost], spread: dict[str, Cost], *, messages: int) -> str:
    """The table."""
    lines = [
        "# Three primaries beside one",
        "",
        f"{messages:,} messages over three queues, on one server and on a cluster of three primaries (each with a replica) that has",
        "one queue on each. Per message: what servers spent, in us. Carried: the most that the busiest server allows, a second.",
        f"`make bench-cluster`; {_about()}.",
        "",
        "| side | measure | one server, us | busiest of three, us of a message of all | one carries | three carry | times |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for side, cost in alone.items():
        lines += [_row(side, what, cost, spread[side], messages) for what in ("cpu_us", "script_us")]
    lines += [
        "",
        "CPU (INFO cpu) is that of the server's process, which also reads, writes and, in the cluster, feeds its replica; it is the",
        "figure to trust. Script time (EVALSHA in INFO commandstats) is taken from a clock: on a machine where servers wait for",
        "a core, as here with seven of them on two, it holds their waiting too.",
        "",
    ]
    return "\n".join(lines)


def _row(side: str, what: str, alone: Cost, spread: Cost, messages: int) -> str:
    one: Sequence[int] = getattr(alone, what)
    three: Sequence[int] = getattr(spread, what)
    rates = alone.carried(messages, one), spread.carried(messages, three)
    return (
        f"| {side} | {'script time' if what == 'script_us' else 'CPU'} | {max(one) / messages:.2f} | {max(three) / messages:.2f} "
        f"| {rates[0]:,.0f} /s | {rates[1]:,.0f} /s | {rates[1] / rates[0]:.2f} |"
    )


def _about() -> str:
    version = binary("valkey9").parent.name
    return f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Valkey 9.1 ({version}), Python {platform.python_version()}"


async def _measured(url: str, data_urls: Sequence[str], queues: Sequence[str], messages: int) -> dict[str, Cost]:
    prefix = "firetime:bench"
    runner = TaskRunner(url, prefix=prefix, dispatch_deadline=60.0)
    shift = Shift()
    server = connect(Address(url), shift)

    @runner.task
    async def nothing(number: int) -> None: ...

    async def dispatched(delay_s: float) -> None:
        for first in range(0, messages, CHUNK):
            for queue in queues:
                task = nothing.options(queue=queue, delay=delay_s)
                await runner.dispatch_many(task.message(number) for number in range(first, first + CHUNK))

    async def promoted() -> None:
        # the scripts see the hour over; nobody waits for it
        shift.us = int((DELAY_S + 60) * 1e6)
        for queue in queues:
            await _promoted(server, QueueKeys(prefix, queue), messages, runner.settings.promote_batch)

    try:
        await runner.dispatch_many(
            nothing.options(queue=queue).message(0) for queue in queues
        )  # connects, loads the script
        costs = {"dispatch, ready": await _cost(data_urls, dispatched(0.0))}
        costs["dispatch, delayed"] = await _cost(data_urls, dispatched(DELAY_S))
        costs["promote"] = await _cost(data_urls, promoted())
    finally:
        await runner.aclose()
        await server.aclose()
    return costs


async def _promoted(server: Server, keys: QueueKeys, messages: int, batch: int) -> None:
    promoter = Promoter(server, keys, "nobody", ServerClock(), grace_s=0, batch=batch)
    left = messages
    while left > 0:
        left -= (await promoter.tick()).moved


async def _cost(data_urls: Sequence[str], work: Any) -> Cost:
    before = [_spent(url) for url in data_urls]
    await work
    after = [_spent(url) for url in data_urls]
    script, cpu = ([now[at] - then[at] for now, then in zip(after, before, strict=True)] for at in (0, 1))
    return Cost(script_us=script, cpu_us=cpu)


def _spent(url: str) -> tuple[int, int]:
    with Redis.from_url(url, protocol=2) as redis:
        stats: Any = redis.info("commandstats")
        cpu: Any = redis.info("cpu")
    script = int(stats.get("cmdstat_evalsha", {}).get("usec", 0))
    return script, round((cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6)


def _a_queue_on_each() -> list[str]:
    found: dict[int, str] = {}
    number = 0
    while len(found) < _PRIMARIES:
        name = f"q{number}"
        found.setdefault(key_slot(name.encode()) * _PRIMARIES // _SLOTS, name)
        number += 1
    return list(found.values())


if __name__ == "__main__":
    main()
