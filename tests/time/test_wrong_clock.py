"""A worker whose own clock is wrong starts nothing early and nothing late: only the server's clock decides."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.conftest import StartWorker
    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")

WORKER = """
    import asyncio, sys, time

    true_time, true_time_ns, wrong_s = time.time, time.time_ns, int(sys.argv[3])
    time.time = lambda: true_time() + wrong_s
    time.time_ns = lambda: true_time_ns() + wrong_s * 1_000_000_000

    import datetime

    class Wrong(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(time.time(), tz)

    datetime.datetime = Wrong

    from firetime import Fixed, TaskRunner, current_task

    runner = TaskRunner(sys.argv[1], prefix=sys.argv[2])

    @runner.task(max_retry=1, backoff=Fixed(0.3))
    async def note(number):
        task = current_task()
        print("note", number, true_time_ns() // 1_000_000 - task.fire_ms, flush=True)
        if task.attempt == 1 and number % 10 == 0:
            raise ValueError

    @runner.every(0.25)
    async def tick():
        print("tick", current_task().nominal_ms, true_time_ns() // 1_000_000 - current_task().nominal_ms, flush=True)

    async def main():
        await runner.start()
        await note.dispatch_delayed(0.4, 50)  # sent by one whose clock is wrong
        print("ready", flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())
"""


@pytest.mark.parametrize("wrong_s", [-600, 600])
async def test_a_worker_whose_clock_is_ten_minutes_wrong(
    start_worker: StartWorker, new_runner: NewRunner, url: str, prefix: str, wrong_s: int
) -> None:
    worker = start_worker(WORKER, url, prefix, str(wrong_s))
    await until(lambda: "ready" in worker.printed, timeout=20)
    producer = new_runner()
    for number in range(50):
        await producer.named("note", delay=0.05 + number * 0.01).dispatch(number)

    def rows(what: str) -> list[list[str]]:
        return [line.split() for line in worker.printed.splitlines() if line.startswith(what)]

    # all of them, the retries of each tenth, and some slots
    await until(lambda: len(rows("note")) >= 51 + 6 and len(rows("tick")) >= 4, timeout=20)
    late_ms = [int(late) for _, _, late in rows("note") + rows("tick")]
    assert min(late_ms) >= 0
    assert max(late_ms) < 5000  # what a busy machine may add to; ten minutes are 600,000
    slots = [int(slot) for _, slot, _ in rows("tick")]
    assert all(later - earlier == 250 for earlier, later in pairwise(slots))
