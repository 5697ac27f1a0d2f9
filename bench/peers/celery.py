"""Celery, with its thread pool or its prefork pool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery import Celery

from bench import tasks
from bench.peers import URL, VARIANT
from bench.systems import THREADS

app = Celery("bench", broker=URL)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_pool_limit=64,
    task_ignore_result=True,
    worker_disable_rate_limits=True,
    worker_enable_remote_control=False,
    worker_hijack_root_logger=False,
    worker_prefetch_multiplier=100 if VARIANT == "prefork" else 16,
    worker_send_task_events=False,
)


@app.task(name="noop")
def noop(number: int) -> None:
    tasks.noop(number)


@app.task(name="sleep")
def sleep(number: int) -> None:
    tasks.nap(number)


@app.task(name="flaky", autoretry_for=(tasks.Again,), max_retries=1, default_retry_delay=0, retry_backoff=False)
def flaky(number: int) -> None:
    tasks.flaky(number)


@app.task(name="stamp")
def stamp(number: int) -> None:
    tasks.stamp(number)


REGISTERED: dict[str, Any] = {"noop": noop, "sleep": sleep, "flaky": flaky, "stamp": stamp}


class Producer:
    def open(self) -> None:
        pass

    def one(self, task: str, number: int) -> None:
        REGISTERED[task].apply_async((number,))

    def bulk(self, task: str, numbers: Iterable[int]) -> None:
        with app.producer_or_acquire() as producer:
            for number in numbers:
                REGISTERED[task].apply_async((number,), producer=producer)

    def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        with app.producer_or_acquire() as producer:
            for number in numbers:
                REGISTERED[task].apply_async((number,), producer=producer, countdown=delay_s)

    def close(self) -> None:
        app.close()


def work() -> None:
    concurrency = 2 if VARIANT == "prefork" else THREADS
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=CRITICAL"]
    app.worker_main(["worker", f"--pool={VARIANT}", f"--concurrency={concurrency}", *quiet])
