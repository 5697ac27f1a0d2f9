"""Docket (pydocket)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from docket import Docket, Retry, Worker

from bench import tasks
from bench.peers import URL
from bench.role import run_coroutine
from bench.systems import COROUTINES


async def noop(number: int) -> None:
    tasks.noop(number)


async def sleep(number: int) -> None:
    await tasks.sleep(number)


async def flaky(number: int, retry: Retry = Retry(attempts=2)) -> None:  # noqa: B008 - how Docket takes it
    tasks.flaky(number)


async def stamp(number: int) -> None:
    tasks.stamp(number)


FUNCTIONS = {each.__name__: each for each in (noop, sleep, flaky, stamp)}


def _docket() -> Docket:
    return Docket(name="bench", url=URL)


class Producer:
    async def open(self) -> None:
        self.docket = await _docket().__aenter__()
        for function in FUNCTIONS.values():
            self.docket.register(function)

    async def one(self, task: str, number: int) -> None:
        await self.docket.add(FUNCTIONS[task])(number)

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        await self.docket.add_many([self.docket.call(FUNCTIONS[task])(number) for number in numbers])

    async def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        when = datetime.now(UTC) + timedelta(seconds=delay_s)
        await self.docket.add_many([self.docket.call(FUNCTIONS[task], when=when)(number) for number in numbers])

    async def close(self) -> None:
        await self.docket.__aexit__(None, None, None)


async def _work() -> None:
    async with _docket() as docket:
        for function in FUNCTIONS.values():
            docket.register(function)
        async with Worker(docket, concurrency=COROUTINES) as worker:
            await worker.run_forever()


def work() -> None:
    run_coroutine(_work())
