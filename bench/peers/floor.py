"""The limit to be measured against: redis-py with hiredis and uvloop, and nothing that a queue must do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from bench import tasks
from bench.peers import URL
from bench.role import run_coroutine
from bench.systems import READ

STREAM, GROUP = "floor", "workers"
PIPELINED = 500


class Blocking:
    def __init__(self) -> None:
        self.redis = BlockingRedis.from_url(URL)

    def one(self, task: str, number: int) -> None:
        self.redis.xadd(STREAM, {b"t": task, b"n": number})


class Producer:
    async def open(self) -> None:
        self.redis = Redis.from_url(URL)
        await self.redis.ping()

    async def one(self, task: str, number: int) -> None:
        await self.redis.xadd(STREAM, {b"t": task, b"n": number})

    def blocking(self) -> Blocking:
        return Blocking()

    async def together(self, task: str, numbers: Sequence[int]) -> None:
        pipeline = self.redis.pipeline(transaction=False)
        for number in numbers:
            pipeline.xadd(STREAM, {b"t": task, b"n": number})
        await pipeline.execute()

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        for first in range(0, len(numbers), PIPELINED):
            await self.together(task, numbers[first : first + PIPELINED])

    async def close(self) -> None:
        await self.redis.aclose()


async def _noop(number: int) -> None:
    tasks.noop(number)


async def _stamp(number: int) -> None:
    tasks.stamp(number)


FUNCTIONS = {b"noop": _noop, b"sleep": tasks.sleep, b"stamp": _stamp}


async def _work() -> None:
    redis = Redis.from_url(URL, socket_timeout=None)
    with suppress(ResponseError):  # another worker made it
        await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    consumer = str(id(redis))
    create = asyncio.get_running_loop().create_task
    while True:
        told = await redis.xreadgroup(GROUP, consumer, {STREAM: ">"}, count=READ, block=5000)
        if not told:
            continue
        (entries,) = told[STREAM.encode()] if isinstance(told, dict) else (told[0][1],)
        await asyncio.gather(*[create(FUNCTIONS[fields[b"t"]](int(fields[b"n"]))) for _, fields in entries])
        ids = [entry for entry, _ in entries]
        await redis.pipeline(transaction=False).xack(STREAM, GROUP, *ids).xdel(STREAM, *ids).execute()


def work() -> None:
    run_coroutine(_work())
