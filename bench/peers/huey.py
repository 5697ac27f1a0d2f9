"""Huey, with worker threads."""

from __future__ import annotations

from collections.abc import Iterable

from huey import RedisHuey

from bench import tasks
from bench.peers import URL
from bench.systems import THREADS

app = RedisHuey("bench", url=URL, results=False)

noop = app.task(name="noop")(tasks.noop)
sleep = app.task(name="sleep")(tasks.nap)
flaky = app.task(name="flaky", retries=1, retry_delay=0)(tasks.flaky)
stamp = app.task(name="stamp")(tasks.stamp)
REGISTERED = {"noop": noop, "sleep": sleep, "flaky": flaky, "stamp": stamp}


class Producer:
    def open(self) -> None:
        pass

    def one(self, task: str, number: int) -> None:
        REGISTERED[task](number)

    def bulk(self, task: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            REGISTERED[task](number)

    def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        for number in numbers:
            REGISTERED[task].schedule((number,), delay=delay_s)

    def close(self) -> None:
        pass


def work() -> None:
    app.create_consumer(workers=THREADS, worker_type="thread", periodic=False, scheduler_interval=1).run()
