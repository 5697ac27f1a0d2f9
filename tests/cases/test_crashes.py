"""Workers that vanish, sleep, restart and are asked to go."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from firetime import Status, TaskAlreadyDispatched, current_task
from tests.kit.waiting import until
from tests.story.stage import let_pass, ticking

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.faults.crew import Crew
    from tests.story.stage import LookAt, NewRunner

LEASE_S = 1.0
SHORT: dict[str, Any] = {"lease": LEASE_S, "sweep": 0.2, "leader_lease": 0.6}


async def test_f02_a_task_that_sleeps_for_five_leases_runs_once(crew: Crew, runner: TaskRunner) -> None:
    crew.start(**SHORT)
    await runner.dispatch("rest", "a", 5 * LEASE_S)
    await crew.until("started")
    crew.start(**SHORT)
    await crew.until("ended")
    assert len(crew.lines("started")) == 1
    assert crew.lines("lost") + crew.lines("refused") == []


@pytest.mark.usefixtures("server")
async def test_f05_a_task_without_retries_outlives_its_killed_worker(crew: Crew, runner: TaskRunner) -> None:
    handle = await runner.named("hold", max_retry=0, result_ttl=60).dispatch("a")
    first = crew.start(**SHORT)
    await crew.until("started")
    crew.start(**SHORT)
    first.kill()
    again = (await crew.until("started", times=2))[1]
    assert (again.crashes, again.failures) == (1, 0)
    crew.let_go("a")
    await handle.result(timeout=20)


async def test_f06_a_task_that_always_kills_its_process_is_a_dead_letter_and_the_rest_is_done(
    crew: Crew, runner: TaskRunner
) -> None:
    handle = await runner.dispatch("die", "poison")
    await runner.dispatch_many(runner.named("note").message(str(number)) for number in range(50))

    async def is_dead() -> bool:
        return await handle.status() == Status.DEAD

    workers = [crew.start(**SHORT, concurrency=1, max_crashes=1)]
    for _ in range(2):  # what a supervisor does
        await until(lambda: not workers[-1].running, timeout=20)
        workers.append(crew.start(**SHORT, concurrency=1, max_crashes=1))
    await until(is_dead, timeout=20)
    await crew.until("ran", times=50)
    assert workers[-1].running
    assert len(crew.lines("started", "poison")) == 2
    letter = await runner.dead().show(handle.task_id)
    assert (letter.reason, letter.crashes, letter.failures, letter.args) == ("crashed", 2, 0, ["poison"])
    assert sorted(int(line.tag) for line in crew.lines("ran")) == list(range(50))


@pytest.mark.usefixtures("server")
async def test_f09_of_six_workers_that_sweep_at_the_same_instant_one_starts_each_orphan(
    crew: Crew, new_runner: NewRunner, look_at: LookAt
) -> None:
    started: list[str] = []

    async def hold(tag: str) -> None:
        started.append(f"{tag} {current_task().crashes}")

    workers = [new_runner(**SHORT) for _ in range(6)]
    for each in workers:
        each.task(hold)
    await workers[0].dispatch_many(workers[0].named("hold").message(str(number)) for number in range(30))
    victim = crew.start(**SHORT)
    await crew.until("started", times=30)
    victim.kill()
    await asyncio.gather(*(each.start() for each in workers))
    await until(lambda: len(started) >= 30)
    for each in workers:
        assert each.worker is not None
        await each.worker.until_idle()
    assert sorted(started) == sorted(f"{number} 1" for number in range(30))
    assert (await look_at()).tasks == {}


async def test_f14_a_delay_of_ten_leases_is_kept_through_two_restarts_of_the_workers(
    new_runner: NewRunner, raw: Redis
) -> None:
    lease_s = 0.3
    started: list[tuple[int | None, int]] = []
    worker = new_runner(lease=lease_s)

    @worker.task
    async def see() -> None:
        seconds, micros = await raw.time()
        started.append((current_task().fire_ms, int(seconds) * 1000 + int(micros) // 1000))

    await see.dispatch_delayed(10 * lease_s)
    for _ in range(2):
        await worker.start()
        await let_pass(raw, 2 * lease_s)
        await worker.stop()
        await let_pass(raw, lease_s)
    async with ticking(raw) as ticks:
        await worker.start()
        await until(lambda: started)
    await let_pass(raw, 2 * lease_s)
    ((fire_ms, ran_ms),) = started
    assert fire_ms is not None
    assert 0 <= ran_ms - fire_ms < 50 + 5 * ticks.longest_s * 1000


@pytest.mark.usefixtures("server")
async def test_f22_a_stopping_worker_hands_on_what_it_has_not_started_and_finishes_the_rest(
    crew: Crew, runner: TaskRunner, look_at: LookAt
) -> None:
    stopping = crew.start(threads=5)
    await runner.dispatch_many(runner.named("hold_thread").message(str(number)) for number in range(10))
    await crew.until("started", times=5)

    async def all_are_claimed() -> bool:
        return len((await look_at()).pending) == 10

    await until(all_are_claimed)
    idle = crew.start(threads=5)

    async def both_are_there() -> bool:
        return (await runner.stats()).workers == 2

    await until(both_are_there)
    clock = asyncio.get_running_loop().time
    stopping.terminate()
    asked = clock()
    lines = await crew.until("started", times=10)
    assert clock() - asked < 1
    assert {line.pid for line in lines[5:]} == {idle.pid}
    assert {(line.attempt, line.crashes, line.failures) for line in lines} == {(1, 0, 0)}
    assert stopping.running
    for number in range(10):
        crew.let_go(str(number))
    assert stopping.wait(20) == 0
    await crew.until("ended", times=10)
    assert len(crew.lines("started")) == 10


async def test_f24_workers_that_are_replaced_after_five_tasks_each_lose_and_double_none(
    new_runner: NewRunner, look_at: LookAt
) -> None:
    done: list[int] = []
    names = count()

    async def one_worker() -> None:
        """Works until it has done five."""
        worker = new_runner(concurrency=2)
        mine: list[int] = []

        @worker.task
        async def work(number: int) -> None:
            await asyncio.sleep(0)
            mine.append(number)
            done.append(number)

        await worker.start()
        await until(lambda: len(mine) >= 5 or len(done) >= 300)
        await worker.aclose()
        next(names)

    async def one_place() -> None:
        while len(done) < 300:
            await one_worker()

    producer = new_runner()
    await producer.dispatch_many(producer.named("work").message(number) for number in range(300))
    await asyncio.gather(*(one_place() for _ in range(3)))
    assert sorted(done) == list(range(300))
    assert next(names) >= 20
    left = await look_at()
    assert (left.tasks, left.pending, left.consumers, left.state) == ({}, {}, set(), {})


@pytest.mark.parametrize("unique_for", [600, "done"])
async def test_f25_the_key_of_a_task_whose_worker_was_killed_is_free_after_the_recovered_run(
    crew: Crew, runner: TaskRunner, unique_for: float | str
) -> None:
    unique = runner.named("hold", unique_for=unique_for, unique_key="one", result_ttl=60)
    handle = await unique.dispatch("a")
    first = crew.start(**SHORT)
    await crew.until("started")
    first.kill()
    with pytest.raises(TaskAlreadyDispatched):
        await unique.dispatch("a")
    crew.start(**SHORT)
    await crew.until("started", times=2)
    with pytest.raises(TaskAlreadyDispatched):
        await unique.dispatch("a")
    crew.let_go("a")
    await handle.result(timeout=20)
    again = await unique.dispatch("a")
    await again.result(timeout=20)


async def test_f39_a_task_that_only_the_new_workers_know_is_run_by_them_alone(
    new_runner: NewRunner, raw: Redis, look_at: LookAt
) -> None:
    old, new = new_runner(), new_runner()
    ran: list[int] = []
    told: list[str] = []

    @old.on_failed
    async def hear(letter: object, error: BaseException) -> None:
        told.append(str(error))

    @old.task(name="a")
    async def known() -> None: ...

    @new.task(name="b")
    async def brand_new(number: int) -> None:
        ran.append(number)

    await old.start()
    await new.dispatch_many(brand_new.message(number) for number in range(100))

    async def all_were_met() -> bool:
        return len((await look_at()).delayed) == 100

    await until(all_were_met)
    before = await calls(raw)
    await asyncio.sleep(1)  # the time in which a hot loop would show
    assert await calls(raw) - before < 60
    assert (await old.stats()).dead == 0
    await new.start()
    await until(lambda: len(ran) == 100, timeout=30)
    assert sorted(ran) == list(range(100))
    assert told == []


async def calls(redis: Redis) -> int:
    told = await redis.info("commandstats")
    return int(told["cmdstat_evalsha"]["calls"])
