"""How late delayed tasks start, and that none starts early: `make bench-time`.

Lateness is what the server's clock shows when the task's first line runs, less its fire-time. All of it runs on one
machine, so the clock of this process is the server's. A machine that is busy with other things adds its own lateness:
the first line shows what a bare asyncio timer had at the same time, to compare with.

    python bench/time.py [--url redis://...] [scenario ...]        scenarios: idle steady instant killed frozen curve
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from firetime import TaskRunner, current_task
from firetime.store.address import Address
from firetime.store.clock import ServerClock, Shift
from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.store.places import connect
from firetime.upkeep.promote import Promoter

IDLE, STEADY, INSTANT, FAILOVER = 500, 20_000, 100_000, 2_000
_ROLES = {"worker": (True, True), "scheduler": (False, True)}
"""Whether a child works, and whether it promotes."""


def main() -> None:
    """All scenarios, or those named."""
    if sys.argv[1:2] == ["child"]:
        asyncio.run(child(*sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(description="How late delayed tasks start.")
    parser.add_argument("--url", help="a server on this machine (default: an embedded one of its own)")
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(SCENARIOS)} (default: all)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="firetime-bench-") as folder:
        os.chdir(folder)  # where the embedded server has its own
        url = asked.url or _embedded()
        say(f"{'':<10}{'tasks':>8}{'p50':>9}{'p99':>9}{'max':>10}  early  lost  doubled")
        for name in asked.scenarios or SCENARIOS:
            asyncio.run(SCENARIOS[name](Stage(name, url, Path(folder))))


def _embedded() -> str:
    from firetime.store.embedded import join_or_start

    return join_or_start(Path("server")).url


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@dataclass
class Stage:
    """One scenario's own queue, and what it found."""

    name: str
    url: str
    folder: Path
    prefix: str = field(default_factory=lambda: f"firetime-bench-{uuid4().hex[:12]}")
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def runner(self) -> TaskRunner:
        """A producer whose task notes its starts in this process."""
        return TaskRunner(self.url, prefix=self.prefix)

    def spawn(self, role: str) -> subprocess.Popen[bytes]:
        """A process that works, or only promotes."""
        command = [sys.executable, __file__, "child", role, self.url, self.prefix, str(self.folder)]
        self.children.append(subprocess.Popen(command))
        return self.children[-1]

    def starts(self) -> list[tuple[str, int, int]]:
        """What the children have noted: id, fire-time and start, both in us."""
        found: list[tuple[str, int, int]] = []
        for file in self.folder.glob(f"{self.prefix}-*.starts"):
            for line in file.read_text().splitlines():
                task_id, fire_us, start_us = line.split()
                found.append((task_id, int(fire_us), int(start_us)))
        return found

    def report(self, sent: int, starts: list[tuple[str, int, int]]) -> None:
        """One line."""
        late_ms = sorted((start - fire) / 1000 for _, fire, start in starts)
        times = Counter(task_id for task_id, _, _ in starts)
        early = sum(late < 0 for late in late_ms)
        doubled = sum(count - 1 for count in times.values())
        say(
            f"{self.name:<10}{sent:>8}{at(late_ms, 0.5):>9.2f}{at(late_ms, 0.99):>9.2f}{late_ms[-1]:>10.2f}"
            f"{early:>7}{sent - len(times):>6}{doubled:>9}"
        )

    async def close(self) -> None:
        """Ends the children and deletes the queue's keys."""
        for process in self.children:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.children:
            await asyncio.to_thread(process.wait)
        server = connect(Address(self.url), Shift())
        for key in await server.ask("KEYS", f"{self.prefix}:*"):
            await server.ask("UNLINK", key)
        await server.aclose()


@asynccontextmanager
async def staged(stage: Stage) -> AsyncIterator[Server]:
    """A connection for looking, and an end that leaves nothing behind."""
    server = connect(Address(stage.url), Shift())
    try:
        yield server
    finally:
        await server.aclose()
        await stage.close()


def at(values: list[float], share: float) -> float:
    """The value below which that share of the sorted ones lies."""
    return values[min(len(values) - 1, int(len(values) * share))]


def now_us() -> int:
    """This machine's clock, which is the server's."""
    return time.time_ns() // 1000


async def until(reached: Callable[[], Awaitable[bool]], timeout_s: float = 120) -> None:
    """Asks ten times a second."""
    async with asyncio.timeout(timeout_s):
        while not await reached():
            await asyncio.sleep(0.1)


async def child(role: str, url: str, prefix: str, folder: str) -> None:
    """A process of its own, whose task notes its starts in a file that survives the process."""
    runner = TaskRunner(url, prefix=prefix, shutdown=1.0)
    notes = os.open(Path(folder) / f"{prefix}-{os.getpid()}.starts", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    @runner.task(name="note")
    async def note() -> None:
        started = now_us()
        task = current_task()
        os.write(notes, b"%s %d %d\n" % (task.id.encode(), (task.fire_ms or 0) * 1000, started))

    works, schedules = _ROLES[role]
    await runner.run(workers=works, scheduler=schedules)


# ------------------------------------------------------------------------------------------------------------ scenarios


async def idle(stage: Stage) -> None:
    """500 tasks over 0.05 to 0.95 s on an idle queue, in one process; and what a bare timer does at the same times."""
    await _in_process(stage, [random.uniform(0.05, 0.95) for _ in range(IDLE)])


async def steady(stage: Stage) -> None:
    """20,000 tasks at 1,000 a second, in one process that also promotes them."""
    await _in_process(stage, [1.0 + number / 1000 for number in range(STEADY)])


async def _in_process(stage: Stage, delays_s: list[float]) -> None:
    starts: list[tuple[str, int, int]] = []
    timers: list[float] = []
    async with staged(stage):
        runner = stage.runner()

        @runner.task(name="note")
        async def note() -> None:
            started = now_us()
            task = current_task()
            starts.append((task.id, (task.fire_ms or 0) * 1000, started))

        await runner.start()
        await until(lambda: _leads(runner))
        begin = datetime.now(UTC).timestamp() + len(delays_s) / 50_000
        loop = asyncio.get_running_loop()
        for delay_s in random.sample(delays_s, min(IDLE, len(delays_s))):
            due = loop.time() + begin - time.time() + delay_s
            loop.call_at(due, lambda at: timers.append((loop.time() - at) * 1000), due)
        whens = [datetime.fromtimestamp(begin + delay_s, UTC) for delay_s in delays_s]
        await runner.dispatch_many([note.options(at=when).message() for when in whens])

        async def ended() -> bool:
            return len(starts) >= len(delays_s)

        await until(ended)
        await runner.aclose()
        timers.sort()
        stage.report(len(delays_s), starts)
        say(f"{'  a timer':<18}{at(timers, 0.5):>9.2f}{at(timers, 0.99):>9.2f}{timers[-1]:>10.2f}")


async def _leads(runner: TaskRunner) -> bool:
    return runner.worker is not None and runner.worker.leads == list(runner.queues)


async def instant(stage: Stage) -> None:
    """100,000 for one instant: promoted while nobody works and a client pings, then started by one process."""
    async with staged(stage) as server:
        stage.spawn("scheduler")
        await _until_led(stage, server)
        runner = stage.runner()
        named = runner.named("note", at=datetime.fromtimestamp(time.time() + INSTANT / 15_000 + 2, UTC))
        for _ in range(INSTANT // 5_000):
            await runner.dispatch_many([named.message() for _ in range(5_000)])
        keys = runner.desk.keys("default")
        head = await server.ask("ZRANGE", keys.delayed, 0, 0, "WITHSCORES")
        due_us = int(float(head[1])) // 4096 * 1000
        await asyncio.sleep((due_us - now_us()) / 1e6 - 0.01)
        pings: list[float] = []
        while await server.ask("ZCARD", keys.delayed):
            asked = time.perf_counter()
            await server.ask("PING")
            pings.append((time.perf_counter() - asked) * 1000)
        promoted_s = (now_us() - due_us) / 1e6
        standing = await server.ask("XLEN", keys.normal)
        stage.spawn("worker")

        async def drained() -> bool:
            return int(await server.ask("HLEN", keys.tasks)) == 0

        await until(drained)
        await runner.aclose()
        pings.sort()
        stage.report(INSTANT, stage.starts())
        say(
            f"  promoted {standing:,} in {promoted_s:.2f} s: {standing / promoted_s:,.0f} a second; meanwhile PING took "
            f"{at(pings, 0.5):.2f} (p50), {at(pings, 0.99):.2f} (p99), {pings[-1]:.2f} ms (max)"
        )


async def killed(stage: Stage) -> None:
    """2,000 tasks over 10 s, 2 workers; the leader, a third process, is killed after 3 s."""
    await _failover(stage, lambda leader: leader.kill())


async def frozen(stage: Stage) -> None:
    """The same, and the leader is frozen after 3 s and goes on 5 s later."""

    def freeze(leader: subprocess.Popen[bytes]) -> None:
        leader.send_signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(5, leader.send_signal, signal.SIGCONT)

    await _failover(stage, freeze)


async def _failover(stage: Stage, strike: Callable[[subprocess.Popen[bytes]], None]) -> None:
    async with staged(stage) as server:
        leader = stage.spawn("scheduler")
        await _until_led(stage, server)
        for _ in range(2):
            stage.spawn("worker")
        runner = stage.runner()

        async def ready() -> bool:
            return int(await server.ask("HLEN", runner.desk.keys("default").workers)) == 3

        await until(ready)
        begin = time.time() + 0.5
        whens = [datetime.fromtimestamp(begin + number * 10 / FAILOVER, UTC) for number in range(FAILOVER)]
        await runner.dispatch_many([runner.named("note", at=when).message() for when in whens])
        await asyncio.sleep(begin + 3 - time.time())
        strike(leader)

        async def drained() -> bool:
            return int(await server.ask("HLEN", runner.desk.keys("default").tasks)) == 0

        await until(drained)
        await runner.aclose()
        stage.report(FAILOVER, stage.starts())


async def _until_led(stage: Stage, server: Server) -> None:
    async def led() -> bool:
        return bool(await server.ask("EXISTS", f"{stage.prefix}:{{default}}:leader"))

    await until(led)


async def curve(stage: Stage) -> None:
    """What a delayed message of 100 bytes weighs, and what its promotion costs, among a thousand to a million others."""
    async with staged(stage) as server:
        runner, delayed = stage.runner(), 0
        keys = runner.desk.keys("default")
        await runner.dispatch("note", payload="")  # what is there once, and not for each
        empty = await _used_memory(server)
        say(f"  {'delayed':>9}{'bytes each':>12}{'us to promote one':>20}{'ms the longest call':>21}")
        for size in (1_000, 10_000, 100_000, 1_000_000):
            await _fill(runner, size - delayed)
            delayed = size
            each = (await _used_memory(server) - empty) / size
            cost_us, longest_ms = await _promote_some(runner, server, keys)
            say(f"  {size:>9,}{each:>12.0f}{cost_us:>20.1f}{longest_ms:>21.2f}")
        await runner.aclose()


async def _fill(runner: TaskRunner, count: int) -> None:
    """Each for a millisecond of its own, from tomorrow on."""
    begin = time.time() + 86_400
    for number in range(0, count, 5_000):
        whens = [begin + other / 1000 for other in range(number, min(count, number + 5_000))]
        await runner.dispatch_many(
            runner.named("note", at=datetime.fromtimestamp(when, UTC)).message("x" * 100) for when in whens
        )


async def _promote_some(runner: TaskRunner, server: Server, keys: QueueKeys) -> tuple[float, float]:
    """Server time to promote each of 5,000 that are due, and the longest call."""
    soon = runner.named("note", delay=0.001)
    await runner.dispatch_many(soon.message("x" * 100) for _ in range(5_000))
    promoter = Promoter(server, keys, "nobody", ServerClock(), grace_s=0, batch=runner.settings.promote_batch)
    calls: list[float] = []
    moved = 0
    while moved < 5_000:
        before_us = await _script_us(server)
        moved += (await promoter.tick()).moved
        calls.append(await _script_us(server) - before_us)
    for key in (keys.normal, keys.places):
        await server.ask("UNLINK", key)
    return sum(calls) / moved, max(calls) / 1000


async def _used_memory(server: Server) -> int:
    return await _info(server, "memory", r"used_memory:(\d+)")


async def _script_us(server: Server) -> int:
    return await _info(server, "commandstats", r"cmdstat_evalsha:calls=\d+,usec=(\d+)")


async def _info(server: Server, section: str, pattern: str) -> int:
    found = re.search(pattern, (await server.ask("INFO", section)).decode())
    return int(found[1]) if found else 0


SCENARIOS: dict[str, Callable[[Stage], Coroutine[Any, Any, None]]] = {
    "idle": idle,
    "steady": steady,
    "instant": instant,
    "killed": killed,
    "frozen": frozen,
    "curve": curve,
}


if __name__ == "__main__":
    main()
