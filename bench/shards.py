"""``python -m bench.shards``: what spreading a queue costs on one server, and what the busiest of three primaries then carries.

Processor time, not rates, is what to look at: client and servers share the machine, three primaries on two cores do no more
than one, but each of them has less to do.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.server import Server, free_port, valkey
from firetime import TaskRunner
from firetime.testing import drain

MESSAGES = 20_000
ROUNDS = 5
PRIMARIES = 3
_SLOTS = 16_384
_MEETING_S = 30.0

Cost = tuple[float, float, float]
"""Messages a second; us of processor time a message: of the client, and of the busiest server."""


async def _cost(count: int, servers: list[Server], work: Callable[[], Awaitable[Any]]) -> Cost:
    before = [server.cpu_us() for server in servers]
    began, client = time.perf_counter(), time.process_time()
    await work()
    took, client = time.perf_counter() - began, time.process_time() - client
    busiest = max(server.cpu_us() - was for server, was in zip(servers, before, strict=True))
    return count / took, client / count * 1e6, busiest / count


async def _round(url: str, servers: list[Server], shards: int, count: int) -> list[Cost]:
    """Sent in bulk, and drained."""
    spread = {"default": shards} if shards else {}
    runner = TaskRunner(url, queue_shards=spread, concurrency=1000)

    @runner.task
    async def noop(number: int) -> None: ...

    await noop.dispatch(-1)
    costs = [
        await _cost(count, servers, lambda: runner.dispatch_many(noop.message(number) for number in range(count))),
        await _cost(count, servers, lambda: drain(runner)),
    ]
    await runner.aclose()
    return costs


def _three(stack: ExitStack, folder: Path) -> list[Server]:
    """A cluster of primaries, each with a third of the slots."""
    servers: list[Server] = []
    buses: list[int] = []
    for number in range(PRIMARIES):
        (own := folder / str(number)).mkdir()
        # the usual bus port, 10,000 above the other, may be no port at all
        words = ("--cluster-enabled", "yes", "--cluster-port", str(bus := free_port()))
        servers.append(stack.enter_context(Server(valkey(), own, *words)))
        buses.append(bus)
    for number, server in enumerate(servers):
        first, last = (_SLOTS * each // PRIMARIES for each in (number, number + 1))
        server.tell("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
        server.tell("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        servers[0].tell("CLUSTER", "MEET", "127.0.0.1", server.port, buses[number])
    give_up = time.monotonic() + _MEETING_S
    while not all("cluster_state:ok" in str(server.tell("CLUSTER", "INFO")) for server in servers):
        if time.monotonic() > give_up:
            raise SystemExit("the three primaries do not find each other")
        time.sleep(0.05)
    return servers


def _measure(title: str, url: str, servers: list[Server], count: int, rounds: int) -> None:
    choices = (0, 1, 8)
    taken: dict[int, list[list[Cost]]] = {shards: [] for shards in choices}
    for _ in range(rounds):
        # in turn, so that a busy machine is busy for all of them
        for shards in choices:
            for server in servers:
                server.empty()
            taken[shards].append(asyncio.run(_round(url, servers, shards, count)))
    for shards, costs in taken.items():
        for what, position in (("dispatch_many", 0), ("drain", 1)):
            rate, client, busiest = (median(cost[position][each] for cost in costs) for each in range(3))
            said = f"{title:16} {shards} shards  {what:14} {rate:>8,.0f} /s   CPU a message: client {client:5.1f} us"
            sys.stdout.write(f"{said}, busiest server {busiest:5.1f} us\n")


def main() -> None:
    """Prints medians of 5 rounds."""
    parser = argparse.ArgumentParser(prog="python -m bench.shards", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        one = stack.enter_context(Server(valkey(), Path(folder)))
        _measure("one server", one.url, [one], asked.messages, asked.rounds)
        three = _three(stack, Path(folder))
        nodes = ",".join(f"127.0.0.1:{server.port}" for server in three)
        _measure("three primaries", f"redis+cluster://{nodes}", three, asked.messages, asked.rounds)


if __name__ == "__main__":
    main()
