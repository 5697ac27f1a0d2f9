"""F08: a worker is killed exactly while it sweeps; the others go on reclaiming within seconds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.conftest import StartWorker
    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")

LEASE_S = 0.8

DOOMED = """
    import asyncio, os, signal, sys
    from firetime import TaskRunner
    from firetime.store.connect import Server

    run = Server.run

    async def dies_in_its_sweep(self, name, keys, arguments, *args, **kwargs):
        sweeps = name == "claim" and arguments["sweep"] > 0
        if sweeps and sys.argv[4] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        reply = await run(self, name, keys, arguments, *args, **kwargs)
        if sweeps and len(reply) > 3:
            os.kill(os.getpid(), signal.SIGKILL)  # what it swept is its own by now, and its worker is gone
        return reply

    Server.run = dies_in_its_sweep

    async def main():
        runner = TaskRunner(sys.argv[1], prefix=sys.argv[2], lease=float(sys.argv[3]))

        @runner.task(max_crashes=9)
        async def work(number): ...

        await runner.start()
        await asyncio.Event().wait()

    asyncio.run(main())
"""

ORPHANER = """
    import asyncio, os, signal, sys
    from firetime import TaskRunner

    async def main():
        runner = TaskRunner(sys.argv[1], prefix=sys.argv[2], lease=float(sys.argv[3]))
        running = set()

        @runner.task(max_crashes=9)
        async def work(number):
            # a set: on a machine that is busy for longer than a lease some come twice, and what has not started yet would be
            # done by the next worker, which is to die
            running.add(number)
            if len(running) == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.Event().wait()

        await runner.dispatch_many(work.message(number) for number in range(20))
        await runner.start()
        await asyncio.Event().wait()

    asyncio.run(main())
"""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_the_others_go_on_reclaiming(
    start_worker: StartWorker, new_runner: NewRunner, url: str, prefix: str, when: str
) -> None:
    orphaner = start_worker(ORPHANER, url, prefix, str(LEASE_S))
    assert await asyncio.to_thread(orphaner.wait, 20) == -9
    doomed = start_worker(DOOMED, url, prefix, str(LEASE_S), when)
    assert await asyncio.to_thread(doomed.wait, 20) == -9
    ran: set[int] = set()
    runner = new_runner(lease=LEASE_S)

    @runner.task(max_crashes=9)
    async def work(number: int) -> None:
        ran.add(number)

    await runner.start()
    await until(lambda: ran == set(range(20)), timeout=LEASE_S + 10)
