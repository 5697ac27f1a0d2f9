"""streaQ."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AsyncExitStack
from datetime import timedelta

from streaq import StreaqRetry, Worker

from bench import tasks
from bench.peers import URL
from bench.systems import COROUTINES, THREADS

worker = Worker(
    redis_url=URL,
    concurrency=COROUTINES,
    sync_concurrency=THREADS,
    prefetch=100,
    serializer=json.dumps,
    deserializer=json.loads,
    anyio_kwargs={"use_uvloop": True},
)


@worker.task(name="noop", ttl=0, silent=True)
async def noop(number: int) -> None:
    tasks.noop(number)


@worker.task(name="sleep", ttl=0, silent=True)
async def sleep(number: int) -> None:
    await tasks.sleep(number)


@worker.task(name="flaky", ttl=0, silent=True, max_tries=2)
async def flaky(number: int) -> None:
    try:
        tasks.flaky(number)
    except tasks.Again as error:
        raise StreaqRetry(delay=0) from error


@worker.task(name="stamp", ttl=0, silent=True)
async def stamp(number: int) -> None:
    tasks.stamp(number)


@worker.task(name="plain", ttl=0, silent=True)
def plain(number: int) -> None:
    tasks.plain(number)


REGISTERED = {"noop": noop, "sleep": sleep, "flaky": flaky, "stamp": stamp, "plain": plain}


class Producer:
    async def open(self) -> None:
        self.stack = AsyncExitStack()
        await self.stack.enter_async_context(worker)

    async def one(self, task: str, number: int) -> None:
        await REGISTERED[task].enqueue(number)

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        await worker.enqueue_many([REGISTERED[task].enqueue(number) for number in numbers])

    async def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        delay = timedelta(seconds=delay_s)
        await worker.enqueue_many([REGISTERED[task].enqueue(number).start(delay=delay) for number in numbers])

    async def close(self) -> None:
        await self.stack.aclose()


def work() -> None:
    worker.run_sync()
