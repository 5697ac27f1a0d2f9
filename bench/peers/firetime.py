"""firetime as its users would set it up."""

from __future__ import annotations

from collections.abc import Iterable

from bench import tasks
from bench.peers import TASKS, URL, VARIANT
from bench.role import run_coroutine
from bench.systems import COROUTINES, THREADS
from firetime import Fixed, TaskRunner

what, _, size = VARIANT.partition("=")
QUEUES = [f"q{number}" for number in range(int(size))] if what == "queues" else ["default"]
PAYLOAD = "x" * int(size) if what == "payload" else ""

runner = TaskRunner(URL, concurrency=COROUTINES, threads=THREADS, queues=QUEUES)


async def noop(number: int, payload: str = "") -> None:
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
REGISTERED = {
    name: runner.task(function, max_retry=1, backoff=Fixed(0))
    for name, function in FUNCTIONS.items()
    if name in (TASKS or FUNCTIONS)
}


class Blocking:
    def one(self, task: str, number: int) -> None:
        REGISTERED[task].dispatch_sync(number)


class Producer:
    async def open(self) -> None:
        await runner.resume()  # connects

    async def one(self, task: str, number: int) -> None:
        await REGISTERED[task].dispatch(number)

    def blocking(self) -> Blocking:
        return Blocking()

    async def bulk(self, task: str, numbers: Iterable[int]) -> None:
        if VARIANT and task == "noop":
            await self._varied(numbers)
            return
        message = REGISTERED[task].options(queue=QUEUES[0]).message if VARIANT else REGISTERED[task].message
        await runner.dispatch_many(message(number) for number in numbers)

    async def _varied(self, numbers: Iterable[int]) -> None:
        """Growth: to many queues in turn, or with a payload."""
        messages = [REGISTERED["noop"].options(queue=queue).message for queue in QUEUES]
        words = (PAYLOAD,) if PAYLOAD else ()
        await runner.dispatch_many(messages[number % len(messages)](number, *words) for number in numbers)

    async def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        message = REGISTERED[task].options(delay=delay_s).message
        await runner.dispatch_many(message(number) for number in numbers)

    async def close(self) -> None:
        await runner.aclose()


def work() -> None:
    run_coroutine(runner.run())
