"""taskiq with the brokers of taskiq-redis, through its command line."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable

from taskiq import SimpleRetryMiddleware
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from bench import tasks
from bench.peers import URL, VARIANT
from bench.systems import COROUTINES, THREADS

broker = (
    RedisStreamBroker(URL, consumer_id="0", xread_count=200) if VARIANT == "stream" else ListQueueBroker(URL)
).with_middlewares(SimpleRetryMiddleware(default_retry_count=2))


@broker.task(task_name="noop")
async def noop(number: int) -> None:
    tasks.noop(number)


@broker.task(task_name="sleep")
async def sleep(number: int) -> None:
    await tasks.sleep(number)


@broker.task(task_name="flaky", retry_on_error=True)
async def flaky(number: int) -> None:
    tasks.flaky(number)


@broker.task(task_name="stamp")
async def stamp(number: int) -> None:
    tasks.stamp(number)


@broker.task(task_name="plain")
def plain(number: int) -> None:
    tasks.plain(number)


REGISTERED = {"noop": noop, "sleep": sleep, "flaky": flaky, "stamp": stamp, "plain": plain}


class Producer:
    async def open(self) -> None:
        await broker.startup()

    async def one(self, task: str, number: int) -> None:
        await REGISTERED[task].kiq(number)

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        # it has no bulk call; more at once are slower
        numbers = list(numbers)
        for first in range(0, len(numbers), 50):
            await asyncio.gather(*(self.one(task, number) for number in numbers[first : first + 50]))

    async def close(self) -> None:
        await broker.shutdown()


def work() -> None:
    words = ["taskiq", "worker", "bench.peers.taskiq:broker", "--workers", "1", "--log-level", "CRITICAL"]
    bounds = ["--max-async-tasks", str(COROUTINES), "--max-prefetch", "100", "--max-threadpool-threads", str(THREADS)]
    os.execv(sys.executable, [sys.executable, "-m", *words, *bounds])  # noqa: S606 - the words are ours
