"""Repid, with its Redis Streams server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from repid import RedisServer, Repid, Router

from bench import tasks
from bench.peers import TASKS, URL
from bench.role import run_coroutine
from bench.systems import COROUTINES

app = Repid(title="bench", version="1.0.0")
app.servers.register_server("default", RedisServer(URL, batch_size=100), is_default=True)
router = Router()


async def noop(number: int) -> None:
    tasks.noop(number)


async def sleep(number: int) -> None:
    await tasks.sleep(number)


async def flaky(number: int) -> None:
    tasks.flaky(number)


async def stamp(number: int) -> None:
    tasks.stamp(number)


def plain(number: int) -> None:
    tasks.plain(number)


FUNCTIONS = {each.__name__: each for each in (noop, sleep, flaky, stamp, plain)}
for name in TASKS or FUNCTIONS:
    router.actor(FUNCTIONS[name], on_error="reject")
app.include_router(router)


class Producer:
    async def open(self) -> None:
        self.connection = app.servers.default.connection()
        await self.connection.__aenter__()

    async def one(self, task: str, number: int) -> None:
        await app.send_message_json(channel="default", payload={"number": number}, headers={"topic": task})

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        # it has no bulk call; more at once are slower
        numbers = list(numbers)
        for first in range(0, len(numbers), 50):
            await asyncio.gather(*(self.one(task, number) for number in numbers[first : first + 50]))

    async def close(self) -> None:
        await self.connection.__aexit__(None, None, None)


async def _work() -> None:
    async with app.servers.default.connection():
        await app.run_worker(tasks_limit=COROUTINES)


def work() -> None:
    run_coroutine(_work())
