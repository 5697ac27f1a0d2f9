"""BullMQ's Python port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from bullmq import Queue, Worker

from bench import tasks
from bench.peers import URL
from bench.role import run_coroutine
from bench.systems import COROUTINES

OPTIONS = {"removeOnComplete": True, "removeOnFail": True}


async def _process(job: Any, _token: str) -> None:
    number = job.data["n"]
    if job.name == "sleep":
        await tasks.sleep(number)
    else:
        getattr(tasks, job.name)(number)


def _options(task: str, **more: Any) -> dict[str, Any]:
    return {**OPTIONS, "attempts": 2 if task == "flaky" else 1, **more}


class Producer:
    async def open(self) -> None:
        self.queue = Queue("bench", {"connection": URL})

    async def one(self, task: str, number: int) -> None:
        await self.queue.add(task, {"n": number}, _options(task))

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        await self._many(task, numbers, _options(task))

    async def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        await self._many(task, numbers, _options(task, delay=round(delay_s * 1000)))

    async def _many(self, task: str, numbers: Iterable[int], options: dict[str, Any]) -> None:
        await self.queue.addBulk([{"name": task, "data": {"n": number}, "opts": options} for number in numbers])

    async def close(self) -> None:
        await self.queue.close()


async def _work() -> None:
    Worker("bench", _process, {"connection": URL, "concurrency": COROUTINES})
    await asyncio.Event().wait()


def work() -> None:
    run_coroutine(_work())
