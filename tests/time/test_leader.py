"""Whoever leads promotes on time; whoever does not takes over, and in the meantime promotes what is a second overdue."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from firetime import current_task
from tests.kit.waiting import until

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.conftest import StartWorker
    from tests.kit.processes import WorkerProcess
    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")

SCHEDULER = """
    import asyncio, sys
    from firetime import TaskRunner

    async def main():
        runner = TaskRunner(sys.argv[1], prefix=sys.argv[2], leader_lease=float(sys.argv[3]))
        runner.on_promoted(lambda queue: print("promoted", flush=True))
        runner.on_demoted(lambda queue: print("demoted", flush=True))
        await runner.run(workers=False)

    asyncio.run(main())
"""


class Leading:
    """A process that leads and does nothing else, and a runner here that works and stands by."""

    def __init__(self, process: WorkerProcess, runner: TaskRunner, raw: Redis) -> None:
        self.process = process
        self.runner = runner
        self.late_ms: list[tuple[int, float]] = []
        self._raw = raw
        self._key = f"{runner.settings.prefix}:{{default}}:leader"

        @runner.task(name="note")
        async def note(number: int) -> None:
            self.late_ms.append((number, time.time() * 1000 - (current_task().fire_ms or 0)))

    async def lease(self) -> list[str]:
        """Token, epoch and since when."""
        value = await self._raw.get(self._key)
        assert isinstance(value, bytes)
        return value.decode().split(" ")

    async def send(self, count: int, *, begin: float, apart: float) -> None:
        note = self.runner.named
        await self.runner.dispatch_many(
            note("note", delay=begin + number * apart).message(number) for number in range(count)
        )

    async def all_came_once(self, count: int) -> None:
        await until(lambda: len(self.late_ms) >= count, timeout=20)
        assert sorted(number for number, _ in self.late_ms) == list(range(count))
        assert min(late for _, late in self.late_ms) >= 0


@pytest.fixture
def start_leading(new_runner: NewRunner, start_worker: StartWorker, url: str, prefix: str, raw: Redis) -> Any:
    async def start(lease_s: float) -> Leading:
        process = start_worker(SCHEDULER, url, prefix, str(lease_s))
        await until(lambda: "promoted" in process.printed)
        leading = Leading(process, new_runner(leader_lease=lease_s), raw)
        await leading.runner.start()
        await until(lambda: leading.runner.worker is not None and leading.runner.worker.healthy)
        return leading

    return start


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_without_its_leader_a_queue_is_about_a_second_late_and_nothing_is_lost_or_doubled(
    start_leading: Any, how: str
) -> None:
    leading = await start_leading(60)
    await leading.send(60, begin=0.5, apart=0.01)
    await until(lambda: len(leading.late_ms) >= 10)
    getattr(leading.process, how)()
    await leading.all_came_once(60)
    by_standby = [late for _, late in leading.late_ms if late > 900]
    assert by_standby
    assert max(by_standby) < 4000  # a second, and what a busy machine adds
    assert (await leading.lease())[1] == "1"


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_follower_takes_over_within_one_lease(start_leading: Any, how: str) -> None:
    leading = await start_leading(1.5)
    former, _, _ = await leading.lease()
    begun = time.monotonic()
    getattr(leading.process, how)()
    await until(lambda: leading.runner.worker.leads == ["default"])
    assert time.monotonic() - begun < 1.5 + 1.5  # and what a busy machine adds
    token, epoch, _ = await leading.lease()
    assert (token, epoch) == (leading.runner.worker.token, "2")
    assert token != former


async def test_a_leader_that_was_frozen_is_demoted_when_it_goes_on_and_its_successor_stays(
    start_leading: Any,
) -> None:
    leading = await start_leading(1.5)
    await leading.send(40, begin=0.2, apart=0.1)
    await until(lambda: leading.late_ms)
    leading.process.freeze()
    await until(lambda: leading.runner.worker.leads == ["default"])
    leading.process.thaw()
    await until(lambda: "demoted" in leading.process.printed)
    await leading.all_came_once(40)
    assert (await leading.lease())[:2] == [leading.runner.worker.token, "2"]
    assert leading.process.printed.split() == ["promoted", "demoted"]


async def test_a_leader_that_stops_resigns_and_the_next_one_leads_at_once(start_leading: Any) -> None:
    leading = await start_leading(60)
    leading.process.terminate()
    await until(lambda: leading.runner.worker.leads == ["default"])  # a lease of a minute has not run out
    assert leading.process.wait(10) == 0
    assert leading.process.printed.split() == ["promoted", "demoted"]


async def test_who_leads_since_when_and_under_which_epoch_is_told(new_runner: NewRunner) -> None:
    runner = new_runner()
    before = await runner.stats()
    assert (before.leader, before.leader_epoch, before.leader_since_ms) == ("", 0, None)
    tokens = []
    for epoch in (1, 2):
        await runner.start()
        await until(lambda: runner.worker is not None and runner.worker.leads)
        assert runner.worker is not None
        stats = await runner.stats()
        assert (stats.leader, stats.leader_epoch) == (runner.worker.token, epoch)
        assert stats.leader_since_ms is not None
        assert 0 <= stats.server_ms - stats.leader_since_ms < 20_000
        tokens.append(stats.leader)
        await runner.stop()
    assert len(set(tokens)) == 2  # a new name for each start, never the host's


async def test_who_lost_its_lease_to_another_hears_of_it(new_runner: NewRunner, raw: Redis, prefix: str) -> None:
    runner = new_runner(leader_lease=0.6)
    heard = []

    @runner.on_promoted
    async def promoted(queue: str) -> None:
        heard.append(("promoted", queue))

    @runner.on_demoted
    def demoted(queue: str) -> None:
        heard.append(("demoted", queue))

    await runner.start()
    await until(lambda: heard == [("promoted", "default")])
    await raw.set(f"{prefix}:{{default}}:leader", "another 7 0", px=400)
    await until(lambda: heard[1:] == [("demoted", "default"), ("promoted", "default")])
    await runner.stop()
    assert heard[3:] == [("demoted", "default")]


async def test_a_lease_without_an_end_ends_like_any_other(new_runner: NewRunner, raw: Redis, prefix: str) -> None:
    await raw.set(f"{prefix}:{{default}}:leader", "by.hand 7 0")
    runner = new_runner(leader_lease=0.3)
    await runner.start()
    await until(lambda: runner.worker is not None and runner.worker.leads)


async def test_the_leader_keeps_its_lease_and_its_slots_while_a_backlog_is_promoted(
    new_runner: NewRunner, raw: Redis
) -> None:
    runner = new_runner(leader_lease=0.9, promote_batch=2, concurrency=1000)
    keys = runner.desk.keys("default")
    seen: list[int] = []
    waiting: list[int] = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    @runner.every(0.02)
    async def tick() -> None:
        waiting.append(await raw.zcard(keys.delayed))

    await runner.dispatch_many(see.options(delay=1).message(number) for number in range(2500))
    await runner.start()
    await until(lambda: len(seen) >= 2500, timeout=60)
    assert sorted(seen) == list(range(2500))
    assert any(0 < left < 2500 for left in waiting)
    assert await raw.get(keys.epoch) == b"1"


async def test_many_who_promote_at_once_promote_each_once(new_runner: NewRunner) -> None:
    runners = [new_runner(standby_grace=0) for _ in range(4)]
    seen = []
    for runner in runners:

        @runner.task
        async def see(number: int) -> None:
            seen.append(number)

        await runner.start()
    named = runners[0].named
    await runners[0].dispatch_many(named("see", delay=0.3 + number % 7 / 100).message(number) for number in range(2000))
    await until(lambda: len(seen) >= 2000, timeout=20)
    await asyncio.gather(*(runner.stop() for runner in runners))
    assert sorted(seen) == list(range(2000))
