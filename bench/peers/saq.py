"""SAQ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from saq import Queue, Worker

from bench import tasks
from bench.peers import TASKS, URL
from bench.role import run_coroutine
from bench.systems import COROUTINES, THREADS

OPTIONS = {"ttl": -1, "timeout": 0}


async def noop(_context: Any, *, number: int) -> None:
    tasks.noop(number)


async def sleep(_context: Any, *, number: int) -> None:
    await tasks.sleep(number)


async def flaky(_context: Any, *, number: int) -> None:
    tasks.flaky(number)


async def stamp(_context: Any, *, number: int) -> None:
    tasks.stamp(number)


def plain(_context: Any, *, number: int) -> None:
    tasks.plain(number)


FUNCTIONS = {each.__name__: each for each in (noop, sleep, flaky, stamp, plain)}


class Producer:
    async def open(self) -> None:
        self.queue = Queue.from_url(URL, name="bench")
        await self.queue.connect()

    async def one(self, task: str, number: int) -> None:
        retries = 2 if task == "flaky" else 1
        await self.queue.enqueue(task, number=number, retries=retries, **OPTIONS)

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        # its map() waits for results; this is what that does to send
        await asyncio.gather(*(self.one(task, number) for number in numbers))

    async def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        due = int(time.time() + delay_s)
        await asyncio.gather(*(self.queue.enqueue(task, number=number, scheduled=due, **OPTIONS) for number in numbers))

    async def close(self) -> None:
        await self.queue.disconnect()


async def _work() -> None:
    queue = Queue.from_url(URL, name="bench")
    at_once = THREADS if "plain" in TASKS else COROUTINES
    await Worker(queue, [FUNCTIONS[name] for name in TASKS], concurrency=at_once).start()


def work() -> None:
    run_coroutine(_work())
