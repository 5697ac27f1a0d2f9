"""F41: 300 workers are started and killed with work in flight; consumers stay bounded, and nothing is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.conftest import StartWorker
    from tests.story.stage import LookAt, NewRunner

LEASE_S = 1.0
LIVES = 300

SHORT_LIVES = """
    import asyncio, os, signal, sys
    from firetime import TaskRunner
    import firetime.store.connect, redis.asyncio.connection  # here, and not in each of the lives

    url, prefix, lease_s, lives = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])

    async def live(told):
        runner = TaskRunner(url, prefix=prefix, lease=lease_s, concurrency=3, shutdown=0)

        @runner.task(max_crashes=10**6)
        async def work(number):
            os.write(told, b".")
            await asyncio.Event().wait()

        await runner.start()
        await asyncio.Event().wait()

    for life in range(lives):
        hears, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(hears)
            try:
                asyncio.run(live(told))
            finally:
                os._exit(1)
        os.close(told)
        word = os.read(hears, 1)
        os.close(hears)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if word != b"." or os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(f"life {life} ended by itself")
    print("all lived", flush=True)
"""


@pytest.mark.usefixtures("valkey")
@pytest.mark.timeout(600)
async def test_f41_nothing_is_lost_and_no_consumer_is_left(
    start_worker: StartWorker, new_runner: NewRunner, look_at: LookAt, url: str, prefix: str
) -> None:
    # each life takes three at most: there is always something left to take
    many = 3 * LIVES + 10
    runner = new_runner(lease=LEASE_S)
    ran: set[int] = set()

    @runner.task(max_crashes=10**6)
    async def work(number: int) -> None:
        ran.add(number)

    await runner.dispatch_many(work.message(number) for number in range(many))
    lives = start_worker(SHORT_LIVES, url, prefix, str(LEASE_S), str(LIVES))
    assert await asyncio.to_thread(lives.wait, 500) == 0, lives.printed
    assert ran == set()
    await runner.start()
    await until(lambda: len(ran) == many, timeout=60)
    assert runner.worker is not None
    token = runner.worker.token

    async def only_the_living() -> bool:
        return (await look_at()).consumers <= {token}

    await until(only_the_living, timeout=60)
    left = await look_at()
    assert (left.tasks, left.pending, left.dead) == ({}, {}, [])
