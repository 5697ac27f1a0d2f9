"""F24: three workers are recycled every 5 tasks; of 300 tasks none is left, and none is run twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.kit.waiting import until

if TYPE_CHECKING:
    from firetime import TaskRunner
    from tests.story.stage import LookAt, NewRunner

TASKS = 300


@pytest.mark.usefixtures("server")
async def test_f24_three_workers_recycled_every_5_tasks_do_300_and_none_twice(
    new_runner: NewRunner, look_at: LookAt
) -> None:
    """Each is started and stopped in this process; what processes add, ``tests/cli/test_recycling.py`` tries."""
    ran: Counter[int] = Counter()
    lives = Counter[int]()

    async def work(number: int) -> None:
        ran[number] += 1
        await asyncio.sleep(0.001)

    async def live(number: int, runner: TaskRunner) -> None:
        while ran.total() < TASKS:
            await runner.start()
            await until(lambda: ran.total() >= TASKS or (runner.worker is not None and runner.worker.spent), timeout=60)
            await runner.stop()
            lives[number] += 1

    runners = [new_runner(max_tasks=5) for _ in range(3)]
    for each in runners:
        each.task(work)
    await runners[0].dispatch_many(runners[0].named("work").message(number) for number in range(TASKS))
    await asyncio.gather(*(live(number, each) for number, each in enumerate(runners)))
    assert ran == dict.fromkeys(range(TASKS), 1)
    assert lives.total() >= TASKS / 5
    left = await look_at()
    assert (left.tasks, left.pending, left.consumers) == ({}, {}, set())
