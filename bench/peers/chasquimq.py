"""ChasquiMQ; it needs Redis 8.6."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chasquimq import BackoffSpec, Queue, Worker

from bench import tasks
from bench.peers import URL
from bench.role import run_coroutine
from bench.systems import COROUTINES


async def _process(job: Any) -> None:
    number = job.data["n"]
    if job.name == "sleep":
        await tasks.sleep(number)
    else:
        getattr(tasks, job.name)(number)


class Producer:
    async def open(self) -> None:
        self.queue = Queue("bench", redis_url=URL)

    async def one(self, task: str, number: int) -> None:
        await self.queue.add(task, {"n": number})

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        if task == "flaky":
            again = {"attempts": 2, "backoff": BackoffSpec.fixed(0)}
            await self.queue.add_bulk([{"name": task, "data": {"n": number}, **again} for number in numbers])
        else:
            await self.queue.add_bulk([{"name": task, "data": {"n": number}} for number in numbers])

    async def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        delay_ms = round(delay_s * 1000)
        await self.queue.add_bulk([{"name": task, "data": {"n": number}, "delay_ms": delay_ms} for number in numbers])

    async def close(self) -> None:
        await self.queue.close()


async def _work() -> None:
    options: dict[str, Any] = {"concurrency": COROUTINES, "events_enabled": False, "store_results": False}
    async with Worker("bench", _process, redis_url=URL, **options) as worker:
        await worker.run()


def work() -> None:
    run_coroutine(_work())
