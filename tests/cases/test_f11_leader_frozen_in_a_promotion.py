"""F11: the leader is stopped for three of its leases in the middle of a promotion, and goes on: no duplicate, no loss."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.kit.waiting import until
from tests.story.stage import let_pass

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.conftest import StartWorker
    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")

LEASE_S = 1.0
TASKS = 3000

LEADER = """
    import asyncio, sys
    from firetime import TaskRunner

    async def main():
        runner = TaskRunner(sys.argv[1], prefix=sys.argv[2], leader_lease=float(sys.argv[3]), promote_batch=2)
        runner.on_promoted(lambda queue: print("promoted", flush=True))
        runner.on_demoted(lambda queue: print("demoted", flush=True))
        await runner.run(workers=False)

    asyncio.run(main())
"""


async def test_it_acts_under_one_epoch_only(
    start_worker: StartWorker, new_runner: NewRunner, url: str, prefix: str, raw: Redis
) -> None:
    leader = start_worker(LEADER, url, prefix, str(LEASE_S))
    await until(lambda: "promoted" in leader.printed)
    ran: Counter[int] = Counter()
    runner = new_runner(leader_lease=LEASE_S, concurrency=1000)

    @runner.task
    async def note(number: int) -> None:
        ran[number] += 1

    delayed = runner.desk.keys("default").delayed
    await runner.dispatch_many(note.options(delay=2).message(number) for number in range(TASKS))
    await runner.start()
    await until(lambda: ran, timeout=10)
    leader.freeze()
    promoted = TASKS - await raw.zcard(delayed)
    assert 0 < promoted < TASKS
    await let_pass(raw, 3 * LEASE_S)
    leader.thaw()
    await until(lambda: len(ran) == TASKS, timeout=20)
    await until(lambda: "demoted" in leader.printed)
    await runner.stop()
    assert ran == Counter(range(TASKS))
    assert leader.printed.split()[:2] == ["promoted", "demoted"]
    epoch = await raw.get(runner.desk.keys("default").epoch)
    assert int(epoch or 0) >= 2  # the standby's, while the first leader slept
    await asyncio.to_thread(leader.close)
