"""Whoever runs a queue starts and stops workers, pauses it, looks at it, and hears of trouble."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from firetime import RunnerAlreadyStarted, Status
from tests.kit.waiting import until
from tests.story.stage import let_pass

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")

# ----------------------------------------------------------------------------------------------------- start and stop


async def test_a_runner_that_is_started_cannot_be_started_again(runner: TaskRunner) -> None:
    await runner.start()
    with pytest.raises(RunnerAlreadyStarted, match="stop\\(\\) it first"):
        await runner.start()


async def test_of_two_starts_at_once_one_is_refused(runner: TaskRunner) -> None:
    answers = await asyncio.gather(runner.start(), runner.start(), return_exceptions=True)
    assert sorted(map(type, answers), key=str) == [type(None), RunnerAlreadyStarted]


async def test_a_stopped_runner_can_be_started_again(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    for number in range(3):
        await see.dispatch(number)
        await drain()
        await runner.stop()
    assert seen == [0, 1, 2]


async def test_stopping_twice_is_stopping_once(runner: TaskRunner) -> None:
    await runner.stop()
    await runner.start()
    await asyncio.gather(runner.stop(), runner.stop())
    await runner.stop()
    assert runner.worker is None


async def test_a_runner_works_inside_its_with(runner: TaskRunner) -> None:
    @runner.task(result_ttl=60)
    async def double(number: int) -> int:
        return 2 * number

    async with runner:
        assert await (await double.dispatch(21)).result(timeout=10) == 42


async def test_scheduler_and_workers_may_be_started_apart(new_runner: NewRunner, raw: Redis) -> None:
    worker, scheduler = new_runner(), new_runner()
    seen = []

    @worker.task
    async def see(what: str) -> None:
        seen.append(what)

    await worker.start(scheduler=False)
    await see.dispatch_delayed(0.05, "delayed")
    await see.dispatch("ready")
    await let_pass(raw, 0.3)
    assert seen == ["ready"]
    await scheduler.start(workers=False)
    await until(lambda: seen == ["ready", "delayed"])
    assert scheduler.worker is not None
    assert scheduler.worker.leads == ["default"]


async def test_a_scheduler_alone_runs_no_task(new_runner: NewRunner, raw: Redis) -> None:
    scheduler = new_runner()
    seen = []

    @scheduler.task
    async def see() -> None:
        seen.append(1)

    await scheduler.start(workers=False)
    await see.dispatch()
    await let_pass(raw, 0.2)
    assert seen == []
    assert (await scheduler.stats()).ready == 1


async def test_stopping_waits_for_what_runs_and_gives_back_what_has_not_started(new_runner: NewRunner) -> None:
    runner = new_runner(threads=1)
    started, finish, runs = threading.Event(), threading.Event(), []

    @runner.task
    async def lets_more_in_than_there_are_threads() -> None: ...

    @runner.task(result_ttl=60)
    def work(what: str) -> str:
        runs.append(what)
        started.set()
        finish.wait(10)
        return what

    running = await work.dispatch("first")
    waiting = await work.dispatch("second")
    await runner.start()
    await until(started.is_set)
    stopping = asyncio.create_task(runner.stop())
    await ready_again(waiting)
    finish.set()
    await stopping
    assert await running.result() == "first"
    assert runs == ["first"]
    found = await waiting.look()
    assert (found.state.failures, found.crashes) == (0, 0)


async def test_what_is_not_done_in_time_is_cancelled_and_given_back_at_no_cost(
    runner: TaskRunner, drain: Drain
) -> None:
    started, runs = asyncio.Event(), []

    @runner.task(max_retry=0)
    async def work() -> None:
        runs.append(1)
        started.set()
        if len(runs) == 1:
            await asyncio.Event().wait()

    handle = await work.dispatch()
    await runner.start()
    await asyncio.wait_for(started.wait(), 10)
    await runner.stop(within=0.05)
    found = await handle.look()
    assert (found.status, found.state.failures, found.crashes) == (Status.READY, 0, 0)
    await drain()
    assert len(runs) == 2
    assert await runner.dead().count() == 0


async def test_what_may_start_once_only_is_a_dead_letter_when_it_is_not_done_in_time(runner: TaskRunner) -> None:
    started = asyncio.Event()

    @runner.task(max_crashes=0)
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await work.dispatch()
    await runner.start()
    await asyncio.wait_for(started.wait(), 10)
    await runner.stop(within=0.05)
    assert (await runner.dead().show(handle.task_id)).reason == "interrupted"


async def test_a_stopped_worker_leaves_no_trace(runner: TaskRunner, drain: Drain, look_at: LookAt) -> None:
    @runner.task
    async def nothing() -> None: ...

    await nothing.dispatch()
    await drain()
    assert (await runner.stats()).workers == 1
    await runner.stop()
    left = await look_at()
    assert left.consumers == set()
    assert {"workers", "workers_seen", "leader"} & left.keys == set()


async def ready_again(handle: object) -> None:
    async def is_ready() -> bool:
        return await handle.status() == Status.READY  # type: ignore[attr-defined, no-any-return]

    await until(is_ready)


# -------------------------------------------------------------------------------------------------------------- pausing


async def test_a_paused_queue_takes_messages_and_runs_none_until_it_is_resumed(
    runner: TaskRunner, drain: Drain, raw: Redis
) -> None:
    seen = []

    @runner.task
    async def see(what: str) -> None:
        seen.append(what)

    await runner.start()
    await runner.pause()
    assert (await runner.stats()).paused
    await see.dispatch("ready")
    await see.dispatch_delayed(0.05, "delayed")

    async def promoted() -> bool:
        return (await runner.stats()).ready == 2

    await until(promoted)
    await let_pass(raw, 0.1)
    assert seen == []
    assert await runner.resume()
    await until(lambda: sorted(seen) == ["delayed", "ready"])
    assert not await runner.resume()


async def test_what_runs_when_its_queue_is_paused_runs_on(runner: TaskRunner) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    @runner.task(result_ttl=60)
    async def work() -> int:
        started.set()
        await finish.wait()
        return 1

    handle = await work.dispatch()
    await runner.start()
    await asyncio.wait_for(started.wait(), 10)
    await runner.pause()
    finish.set()
    assert await handle.result(timeout=10) == 1


async def test_pausing_one_queue_leaves_the_others_alone(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task(queue="mails")
    async def mail() -> None:
        seen.append("mail")

    @runner.task(queue="reports")
    async def report() -> None:
        seen.append("report")

    await runner.pause("mails")
    await mail.dispatch()
    await report.dispatch()
    await drain()
    assert seen == ["report"]


# -------------------------------------------------------------------------------------------------------------- looking


async def test_a_queue_may_keep_a_history_of_what_was_completed(
    runner: TaskRunner, drain: Drain, look_at: LookAt
) -> None:
    @runner.task(delete_on_ack=False)
    async def audited(number: int) -> None: ...

    @runner.task
    async def forgotten() -> None: ...

    handle = await audited.dispatch(7)
    await forgotten.dispatch()
    await drain()
    (entry,) = (await look_at()).history
    assert (entry["i"].decode(), entry["t"], entry["o"]) == (handle.task_id, b"audited", b"done")
    assert b"[[7],{}]" in entry["m"]
    assert (await look_at()).tasks == {}


async def test_the_numbers_of_a_queue(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(max_retry=0)
    async def work(*, fail: bool = False) -> None:
        if fail:
            raise ValueError

    before = await runner.stats()
    assert (before.ready, before.workers, before.leader, before.predicted_wait_s) == (0, 0, "", None)
    for _ in range(3):
        await work.dispatch()
    await work.dispatch(fail=True)
    far = await work.dispatch_delayed(600)
    await drain()
    assert runner.worker is not None
    now = await runner.stats()
    assert (now.queue, now.ready, now.running, now.delayed, now.dead, now.paused) == ("default", 0, 0, 1, 1, False)
    assert (now.workers, now.slots, now.leader) == (1, runner.settings.concurrency, runner.worker.token)
    assert now.next_fire_ms == (await far.look()).fire_ms
    assert [(task.task, task.runs, task.failed) for task in now.tasks] == [("work", 4, 1)]
    assert now.predicted_wait_s == 0


async def test_a_long_queue_is_told_by_the_leader_only(new_runner: NewRunner) -> None:
    runners = [new_runner(long_queue_threshold=3) for _ in range(2)]
    heard: dict[int, list[tuple[str, int]]] = {0: [], 1: []}
    for number, each in enumerate(runners):
        each.on_long_queue(lambda queue, waiting, number=number: heard[number].append((queue, waiting)))
    leader, standby = runners
    await leader.pause()
    for _ in range(3):
        await leader.dispatch("nobody")
    await leader.start()
    await until(lambda: heard[0])
    await standby.start()
    await until(lambda: standby.worker is not None and standby.worker.healthy)
    assert heard == {0: [("default", 3)], 1: []}
    await leader.stop()
    await until(lambda: heard[1])
    assert heard[1] == [("default", 3)]


async def test_who_leads_hears_when_it_begins_and_when_it_ends(new_runner: NewRunner) -> None:
    first, second = new_runner(leader_lease=0.6), new_runner(leader_lease=0.6)
    heard = []
    for name, each in (("first", first), ("second", second)):
        each.on_promoted(lambda queue, name=name: heard.append((name, "leads", queue)))
        each.on_demoted(lambda queue, name=name: heard.append((name, "no longer", queue)))
    await first.start()
    await until(lambda: heard)
    await second.start()
    await first.stop()
    await until(lambda: ("second", "leads", "default") in heard)
    assert [each for each in heard if each[1] == "leads"] == [
        ("first", "leads", "default"),
        ("second", "leads", "default"),
    ]
