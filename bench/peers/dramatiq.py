"""Dramatiq, through its command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Retries

from bench import tasks
from bench.peers import URL
from bench.systems import THREADS

broker = RedisBroker(url=URL, middleware=[Retries()])
dramatiq.set_broker(broker)

noop = dramatiq.actor(tasks.noop, actor_name="noop")
sleep = dramatiq.actor(tasks.nap, actor_name="sleep")
flaky = dramatiq.actor(tasks.flaky, actor_name="flaky", max_retries=1, min_backoff=1, max_backoff=1)
stamp = dramatiq.actor(tasks.stamp, actor_name="stamp")
ACTORS = {"noop": noop, "sleep": sleep, "flaky": flaky, "stamp": stamp}


class Producer:
    def open(self) -> None:
        pass

    def one(self, task: str, number: int) -> None:
        ACTORS[task].send(number)

    def bulk(self, task: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            ACTORS[task].send(number)

    def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        for number in numbers:
            ACTORS[task].send_with_options(args=(number,), delay=round(delay_s * 1000))

    def close(self) -> None:
        broker.close()


def work() -> None:
    words = ["dramatiq", "bench.peers.dramatiq", "--processes", "1", "--threads", str(THREADS), "--skip-logging"]
    environment = {**os.environ, "dramatiq_queue_prefetch": "200"}
    os.execve(sys.executable, [sys.executable, "-m", *words], environment)  # noqa: S606 - the words are ours
