"""RQ, with the worker that does not fork for each job."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from redis import Redis
from rq import Queue, Retry, SimpleWorker
from rq.serializers import JSONSerializer

from bench import tasks
from bench.peers import URL

FUNCTIONS = {"noop": tasks.noop, "sleep": tasks.nap, "flaky": tasks.flaky, "stamp": tasks.stamp}


def _options(task: str) -> dict[str, Any]:
    retry = Retry(max=1, interval=0) if task == "flaky" else None
    return {"result_ttl": 0, "failure_ttl": 60, "retry": retry}


class Producer:
    def open(self) -> None:
        self.queue = Queue("bench", connection=Redis.from_url(URL), serializer=JSONSerializer)

    def one(self, task: str, number: int) -> None:
        self.queue.enqueue_call(FUNCTIONS[task], args=(number,), **_options(task))

    def bulk(self, task: str, numbers: Iterable[int]) -> None:
        self.queue.enqueue_many(
            [Queue.prepare_data(FUNCTIONS[task], args=(number,), **_options(task)) for number in numbers]
        )

    def later(self, task: str, numbers: Iterable[int], delay_s: float) -> None:
        for number in numbers:
            self.queue.enqueue_in(timedelta(seconds=delay_s), FUNCTIONS[task], number, **_options(task))

    def close(self) -> None:
        self.queue.connection.close()


def work() -> None:
    SimpleWorker(["bench"], connection=Redis.from_url(URL), serializer=JSONSerializer).work(
        logging_level="CRITICAL", with_scheduler=True
    )
