"""F48: memory is full (noeviction) in the middle of a load; dispatches are refused, the rest goes on, and then all does."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from firetime import Fixed, QueueFull, current_task
from tests.kit.clients import raw_client
from tests.kit.waiting import until
from tests.story.stage import unsound

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.conftest import StartServer
    from tests.story.stage import NewRunner

LOAD = "x" * 10_000
ROOM = 3 << 20


async def test_f48_what_was_accepted_is_done_and_nothing_is_stuck(
    start_server: StartServer, new_runner: NewRunner, prefix: str
) -> None:
    server = start_server(maxmemory_policy="noeviction")
    runner = new_runner(server.url, concurrency=20)
    started: Counter[int] = Counter()
    done: Counter[int] = Counter()
    go_on = asyncio.Event()

    @runner.task(max_retry=2, backoff=Fixed(0.05))
    async def work(number: int, load: str = "") -> None:
        started[number] += 1
        await go_on.wait()
        if number % 10 == 0 and current_task().failures == 0:
            raise ValueError(number)
        done[number] += 1

    await runner.start()
    await runner.dispatch_many(work.message(number) for number in range(20))
    await until(lambda: len(started) == 20)
    async with raw_client(server.url) as raw:
        await _leave_room(raw, ROOM)
        accepted, refusal = await _dispatch_until_full(runner.named("work").dispatch)
        assert "out of memory" in str(refusal)
        assert len(accepted) > 50
        # those that run end, and those that wait are started, while nothing more is accepted
        await raw.config_set("maxmemory", 1)
        go_on.set()
        await until(lambda: len(done) >= 15 + len(accepted) // 2, timeout=40)
        await raw.config_set("maxmemory", 0)
        accepted.append(100_000)
        await work.dispatch(100_000)
        await until(lambda: len(done) == 20 + len(accepted), timeout=40)
        assert done == Counter([*range(20), *accepted])
        failed_once = {number: 2 for number in done if number % 10 == 0}
        assert started == Counter(done) + Counter(dict.fromkeys(failed_once, 1))
        assert runner.worker is not None
        async with asyncio.timeout(20):
            await runner.worker.until_idle()
        await until(lambda: runner.worker is not None and runner.worker.healthy)
        assert await unsound(raw, prefix) == []
        assert await raw.exists(f"{prefix}:{{default}}:tasks", f"{prefix}:{{default}}:delayed_tasks") == 0


async def _leave_room(raw: Redis, room: int) -> None:
    used = (await raw.info("memory"))["used_memory"]
    await raw.config_set("maxmemory", used + room)


async def _dispatch_until_full(dispatch: object) -> tuple[list[int], QueueFull]:
    accepted: list[int] = []
    for number in range(1000, 2000):
        try:
            await dispatch(number, LOAD)  # type: ignore[operator]
        except QueueFull as full:
            return accepted, full
        accepted.append(number)
    raise AssertionError("memory never was full")
