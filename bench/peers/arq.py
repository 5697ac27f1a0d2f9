"""arq."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from arq import Retry, Worker, create_pool
from arq.connections import RedisSettings
from arq.worker import func

from bench import tasks
from bench.peers import URL
from bench.systems import COROUTINES


async def noop(_context: Any, number: int) -> None:
    tasks.noop(number)


async def sleep(_context: Any, number: int) -> None:
    await tasks.sleep(number)


async def flaky(_context: Any, number: int) -> None:
    try:
        tasks.flaky(number)
    except tasks.Again as error:
        raise Retry(defer=0) from error


async def stamp(_context: Any, number: int) -> None:
    tasks.stamp(number)


class Producer:
    async def open(self) -> None:
        self.pool = await create_pool(RedisSettings.from_dsn(URL))

    async def one(self, task: str, number: int) -> None:
        await self.pool.enqueue_job(task, number)

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        await self._many(task, list(numbers))

    async def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        await self._many(task, list(numbers), _defer_by=delay_s)

    async def _many(self, task: str, numbers: list[int], **options: Any) -> None:
        # it has no bulk call; more at once are slower
        for first in range(0, len(numbers), 50):
            some = numbers[first : first + 50]
            await asyncio.gather(*(self.pool.enqueue_job(task, number, **options) for number in some))

    async def close(self) -> None:
        await self.pool.aclose()


def work() -> None:
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.set_event_loop(asyncio.new_event_loop())
    Worker(
        [func(each, keep_result=0, max_tries=2) for each in (noop, sleep, flaky, stamp)],
        redis_settings=RedisSettings.from_dsn(URL),
        max_jobs=COROUTINES,
        poll_delay=0.01,
        keep_result=0,
        log_results=False,
    ).run()
