"""A hot queue is spread over shards: queues of the server, that are one queue for whoever sends, works and looks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from firetime import CancelAnswer, Fixed, Handle, InvalidOption, QueueFull, Status, TaskAlreadyDispatched, TaskRunner
from firetime import current_task as current
from firetime.testing import VirtualClock
from firetime.testing import drain as run_all
from firetime.values.shards import shard_in, shard_name, shard_of
from firetime.values.states import RescheduleAnswer
from tests.kit.waiting import until

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime.values.dead_letter import DeadLetter
    from tests.conftest import StartWorker
    from tests.kit.servers import ServerProcess
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")

SHARDS = [shard_name("default", shard) for shard in range(4)]


@pytest.fixture
def runner(new_runner: NewRunner) -> TaskRunner:
    return new_runner(queue_shards={"default": 4})


async def lengths(runner: TaskRunner, *names: str) -> list[int]:
    """How many messages are ready in each of these shards."""
    return [(await runner.stats(name)).ready for name in names or SHARDS]


# --------------------------------------------------------------------------------------------------------- dispatching


async def test_messages_go_to_the_shards_turn_by_turn(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    for number in range(6):
        await see.dispatch(number)
    await runner.dispatch_many(see.message(number) for number in range(6, 12))
    assert await lengths(runner) == [3, 3, 3, 3]
    assert (await runner.stats()).ready == 12
    await drain()
    assert sorted(seen) == list(range(12))


async def test_one_queue_is_seen_everywhere(runner: TaskRunner, drain: Drain) -> None:
    told: list[DeadLetter] = []

    @runner.on_failed
    async def hear(letter: DeadLetter, error: BaseException) -> None:
        told.append(letter)

    @runner.task(max_retry=0)
    async def fail() -> None:
        raise ValueError(current().queue)

    handle = await fail.dispatch()
    assert handle.queue == "default"
    assert (await handle.look()).queue == "default"
    assert await runner.overview.queues() == ["default"]
    await drain()
    (letter,) = await runner.dead().page()
    assert [letter.queue, told[0].queue, letter.errors[0].text] == ["default"] * 3


async def test_in_a_shard_what_came_first_goes_first(new_runner: NewRunner, drain: Drain) -> None:
    narrow = new_runner(queue_shards={"default": 2}, concurrency=1)
    seen = []

    @narrow.task
    async def see(number: int) -> None:
        seen.append(number)

    for number in range(20):
        await see.dispatch(number)
    await drain(narrow)
    assert [number for number in seen if number % 2] == list(range(1, 20, 2))
    assert [number for number in seen if not number % 2] == list(range(0, 20, 2))


async def test_an_id_made_here_carries_the_shard(runner: TaskRunner) -> None:
    @runner.task
    async def see() -> None: ...

    handles = [await see.dispatch() for _ in range(4)]
    assert sorted(shard_in(handle.task_id) or 0 for handle in handles) == [0, 1, 2, 3]
    sent = see.message()
    twice = await runner.dispatch_many([sent, sent])
    assert len({handle.task_id for handle in twice if not isinstance(handle, Exception)}) == 2
    assert await lengths(runner) == [1 + 2 * (sent.queue == name) for name in SHARDS]


async def test_a_unique_key_holds_in_the_whole_queue(runner: TaskRunner, new_runner: NewRunner, drain: Drain) -> None:
    @runner.task(unique_for="done")
    async def rebuild(shop: int) -> None: ...

    holders = [await rebuild.dispatch(shop) for shop in range(8)]
    for shop in range(8):
        with pytest.raises(TaskAlreadyDispatched) as refused:
            await rebuild.dispatch(shop)
        assert refused.value.task_id == holders[shop].task_id
    elsewhere = new_runner(queue_shards="default=4")
    by_name = elsewhere.named("rebuild", unique_key="k", unique_for="done")
    first = await by_name.dispatch()
    again = await elsewhere.named("rebuild", unique_key="k", unique_for="done", on_conflict="return").dispatch()
    assert again == first
    await drain()
    assert await rebuild.dispatch(0) != holders[0]


async def test_an_id_of_your_own_stays_as_it_is(runner: TaskRunner, new_runner: NewRunner) -> None:
    @runner.task
    async def pay(number: int) -> None: ...

    for number in range(8):
        handle = await pay.options(task_id=f"invoice-{number}").dispatch(number)
        assert handle.task_id == f"invoice-{number}"
        assert await lengths(runner, shard_name("default", shard_of(handle.task_id, 4))) != [0]
        with pytest.raises(TaskAlreadyDispatched):
            await pay.options(task_id=f"invoice-{number}").dispatch(number)
        assert await new_runner(queue_shards={"default": 4}).handle(handle.task_id).status() == Status.READY


async def test_each_shard_may_hold_its_part_of_max_length(new_runner: NewRunner) -> None:
    runner = new_runner(queue_shards={"default": 4}, max_length=10)

    @runner.task
    async def see() -> None: ...

    for _ in range(12):
        await see.dispatch()
    with pytest.raises(QueueFull, match="'default'"):
        await see.dispatch()
    with pytest.raises(QueueFull, match="'default'"):
        await asyncio.to_thread(see.dispatch_sync)


def test_without_a_loop_it_is_the_same_queue(server: ServerProcess, prefix: str) -> None:
    runner = TaskRunner(server.url, prefix=prefix, queue_shards={"default": 4})

    @runner.task(unique_for="done")
    def rebuild(shop: int) -> None: ...

    handle = rebuild.dispatch_delayed_sync(600, 7)
    sent = runner.dispatch_many_sync([rebuild.message(8), rebuild.message(7)])
    assert [type(each) for each in sent] == [Handle, TaskAlreadyDispatched]
    assert runner.handle(handle.task_id).status_sync() == Status.DELAYED
    moved = rebuild.options(on_conflict="replace", delay=300).dispatch_sync(7)
    assert moved == handle
    assert runner.handle(handle.task_id).cancel_sync() == CancelAnswer.CANCELLED
    runner.close()


# ------------------------------------------------------------------------------------------------ found again by its id


@pytest.mark.parametrize("own", [None, "invoice-7", "invoice-8"])
@pytest.mark.parametrize("key", [None, "k"])
async def test_a_producer_without_the_code_finds_a_message(
    runner: TaskRunner, new_runner: NewRunner, drain: Drain, own: str | None, key: str | None
) -> None:
    seen = []

    @runner.task(result_ttl=60, unique_for=None if key is None else 60)
    async def double(number: int) -> int:
        seen.append(number)
        return 2 * number

    there = new_runner(queue_shards={"default": 4})
    task_id = (await double.options(task_id=own, unique_key=key, delay=600).dispatch(21)).task_id
    handle = there.handle(task_id)
    assert await handle.status() == Status.DELAYED
    assert (await there.overview.find(task_id, ["default"])).queue == "default"
    assert await there.handle(task_id).reschedule(300) == RescheduleAnswer.RESCHEDULED
    assert await there.handle(task_id).run_now() == RescheduleAnswer.RESCHEDULED
    waiting = asyncio.create_task(there.handle(task_id).result(timeout=20))
    await drain()
    assert await waiting == 42
    assert seen == [21]


async def test_one_that_waits_is_cancelled_and_one_that_runs_is_asked_to_stop(
    runner: TaskRunner, new_runner: NewRunner
) -> None:
    began = asyncio.Event()

    @runner.task
    async def hold() -> None:
        began.set()
        await asyncio.Event().wait()

    there = new_runner(queue_shards={"default": 4})
    delayed = await hold.dispatch_delayed(600)
    assert await there.handle(delayed.task_id).cancel() == CancelAnswer.CANCELLED
    running = await hold.dispatch()
    await runner.start()
    await asyncio.wait_for(began.wait(), 20)
    assert await there.handle(running.task_id).cancel() == CancelAnswer.REQUESTED

    async def cancelled() -> bool:
        return await running.status() == Status.CANCELLED

    await until(cancelled, timeout=20)
    assert await there.handle("unheard-of").cancel() == CancelAnswer.NOT_FOUND


async def test_dead_letters_are_those_of_all_shards(runner: TaskRunner, new_runner: NewRunner, drain: Drain) -> None:
    failing, seen = True, []

    @runner.task(max_retry=0)
    async def fail(number: int) -> None:
        if failing:
            raise ValueError(number)
        seen.append(number)

    handles = [await fail.dispatch(number) for number in range(6)]
    handles.append(await fail.options(task_id="mine").dispatch(6))
    await drain()
    dead = new_runner(queue_shards={"default": 4}).dead()
    assert await dead.count() == (await runner.stats()).dead == 7
    page = await dead.page(limit=3)
    died = [letter.died_ms or 0 for letter in await dead.page()]
    assert died == sorted(died)
    assert [letter.died_ms for letter in page] == died[:3]
    assert (await dead.show("mine")).args == [6]
    failing = False
    await dead.replay("mine")
    await dead.replay(handles[0].task_id)
    await dead.purge(handles[1].task_id)
    assert await dead.replay_all() == 4
    await drain()
    assert sorted(seen) == [0, 2, 3, 4, 5, 6]
    assert await dead.purge_all() == 0


# ------------------------------------------------------------------------------------------------- working and looking


async def test_a_paused_queue_is_paused_in_all_its_shards(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    await runner.pause()
    assert (await runner.stats()).paused
    for number in range(8):
        await see.dispatch(number)
    await drain()
    assert seen == []
    assert await runner.resume()
    assert not await runner.resume()
    await drain()
    assert sorted(seen) == list(range(8))


async def test_the_stats_are_those_of_the_whole(runner: TaskRunner, drain: Drain) -> None:
    @runner.task
    async def see() -> None: ...

    await runner.dispatch_many(see.message() for _ in range(8))
    await see.dispatch_delayed(600)
    await drain()

    async def told() -> bool:
        return (await runner.stats()).workers == 1

    await until(told)
    stats = await runner.stats()
    assert (stats.ready, stats.delayed, stats.workers, stats.slots) == (0, 1, 1, 100)
    assert [(task.task, task.runs) for task in stats.tasks] == [("see", 8)]
    assert stats.shards == ["default", *SHARDS]
    assert stats.unserved == []
    assert [look.queue for look in await runner.overview.delayed("default")] == ["default"]
    assert runner.queues == ("default",)


async def test_hooks_hear_of_the_queue_and_not_of_its_shards(new_runner: NewRunner) -> None:
    runner = new_runner(queue_shards={"default": 4}, long_queue_threshold=8)
    heard: list[tuple[str, int]] = []
    promoted = []

    @runner.on_long_queue
    async def long(queue: str, waiting: int) -> None:
        heard.append((queue, waiting))

    @runner.on_promoted
    async def leads(queue: str) -> None:
        promoted.append(queue)

    for _ in range(9):
        await runner.dispatch("nobody-knows-this")
    await runner.start(workers=False)
    await until(lambda: heard, timeout=30)
    assert heard[0] == ("default", 9)
    assert promoted == ["default"]
    assert runner.worker is not None
    assert runner.worker.leads == ["default"]


async def test_a_worker_may_serve_one_shard_by_its_name(new_runner: NewRunner, drain: Drain) -> None:
    runner = new_runner(queue_shards={"default": 4}, queues=["default:2"])
    seen = []

    @runner.task
    async def see() -> None:
        seen.append(shard_in(current().id))

    await runner.dispatch_many(see.message() for _ in range(8))
    await drain(runner)
    assert seen == [2, 2]


async def test_the_future_is_listed_over_all_shards_by_fire_time(runner: TaskRunner) -> None:
    @runner.task
    async def see(number: int) -> None: ...

    handles = [await see.dispatch_delayed(600 + number, number) for number in range(6)]
    page = await runner.overview.delayed("default", offset=1, limit=3)
    assert [look.task_id for look in page] == [handle.task_id for handle in handles[1:4]]
    for number in range(3):
        await see.dispatch(number)
    assert len(await runner.overview.in_lanes("default", limit=2)) == 2
    assert len(await runner.overview.in_lanes("default", offset=2, limit=2)) == 1


async def test_what_is_delayed_or_fails_stays_in_its_shard(runner: TaskRunner, look_at: LookAt) -> None:
    seen: list[tuple[int, int]] = []

    @runner.task(backoff=Fixed(0.01))
    async def see(number: int) -> None:
        seen.append((number, shard_in(current().id) or 0))
        if current().failures == 0:
            raise ValueError

    handles = [await see.dispatch_delayed(60, number) for number in range(4)]
    assert [len((await look_at(name)).delayed) for name in SHARDS] == [1, 1, 1, 1]
    await VirtualClock(runner).advance(hours=1)
    assert sorted(seen) == sorted((n, shard_in(handles[n].task_id) or 0) for n in range(4) for _ in range(2))


async def test_recurring_runs_belong_to_the_queue(runner: TaskRunner, new_runner: NewRunner) -> None:
    seen: list[tuple[str, str]] = []

    @runner.every(60)
    @runner.task
    async def plain() -> None:
        seen.append(("plain", current().queue))

    @runner.every(60)
    @runner.task(unique_for="done")
    async def single() -> None:
        seen.append(("single", current().queue))

    await VirtualClock(runner).advance(seconds=61)
    assert sorted(seen) == [("plain", "default"), ("single", "default")]
    there = new_runner(queue_shards={"default": 4})
    assert [(each.name, each.queue) for each in await there.schedules.list()] == [
        ("plain", "default"),
        ("single", "default"),
    ]
    # a run of a schedule, and every other dispatch with its unique key, go to one shard
    triggered = await there.schedules.trigger("single")
    assert await there.handle(triggered.task_id).status() == Status.READY
    with pytest.raises(TaskAlreadyDispatched):
        await single.dispatch()
    await there.schedules.pause("single")
    assert [each.paused for each in await there.schedules.list()] == [False, True]
    await there.schedules.resume("single")
    await there.schedules.remove("single")
    assert [each.name for each in await there.schedules.list()] == ["plain"]


# -------------------------------------------------------------------------------------------- another number of shards

RESIZES = [({}, {"default": 4}), ({"default": 4}, {"default": 6}), ({"default": 6}, {"default": 2})]
RESIZES += [({"default": 4}, {"default": 1})]


@pytest.mark.parametrize(("before", "after"), RESIZES)
async def test_what_waits_while_the_number_changes_is_done(
    new_runner: NewRunner, before: dict[str, int], after: dict[str, int]
) -> None:
    old, new = new_runner(queue_shards=before), new_runner(queue_shards=after)
    seen = []

    for runner in (old, new):

        @runner.task(name="see", result_ttl=60)
        async def see(number: int) -> int:
            seen.append(number)
            return number

    handles = [await old.dispatch("see", number) for number in range(12)]
    handles += [await old.named("see", task_id=f"own-{number}").dispatch(number) for number in range(12, 24)]
    delayed = [await old.named("see", delay=0.2).dispatch(number) for number in range(24, 30)]
    for handle in [*handles, *delayed]:
        assert await new.handle(handle.task_id).status() != Status.UNKNOWN
    assert await new.handle(handles[0].task_id).cancel() == CancelAnswer.CANCELLED
    assert await new.handle(handles[12].task_id).cancel() == CancelAnswer.CANCELLED
    await run_all(new, delayed=True)
    assert sorted(seen) == sorted(set(range(30)) - {0, 12})
    assert await new.handle(delayed[0].task_id).result(timeout=20) == 24


async def test_old_and_new_programs_share_the_queue_during_a_deploy(new_runner: NewRunner) -> None:
    old, new = new_runner(queue_shards={"default": 6}), new_runner(queue_shards={"default": 2})
    seen = []

    for runner in (old, new):

        @runner.task(name="see")
        async def see(number: int) -> None:
            seen.append(number)

    await old.dispatch_many(old.named("see").message(-number) for number in range(1, 7))
    await run_all(old)
    # the new worker starts while nothing waits: it must serve what an old producer sends later
    await new.start()
    for number in range(12):
        await (old if number % 2 else new).dispatch("see", number)
    await until(lambda: len(seen) == 18, timeout=20)
    assert sorted(seen) == list(range(-6, 12))


async def test_a_worker_that_knows_of_too_few_is_told_and_a_restart_mends_it(new_runner: NewRunner) -> None:
    few, many = new_runner(queue_shards={"default": 2}), new_runner(queue_shards={"default": 6})
    seen = []

    @few.task
    async def see(number: int) -> None:
        seen.append(number)

    await few.start()
    for number in range(6):
        await many.dispatch("see", number)
    await until(lambda: len(seen) == 2, timeout=20)
    assert (
        (await many.stats()).unserved == (await few.stats()).unserved == [f"default:{shard}" for shard in range(2, 6)]
    )
    await few.stop()
    await run_all(few)
    assert sorted(seen) == list(range(6))


async def test_a_schedule_moves_to_the_shard_of_its_key(new_runner: NewRunner) -> None:
    seen: list[float] = []

    def program(**settings: Any) -> TaskRunner:
        runner = new_runner(**settings)

        @runner.every(60, name="single")
        @runner.task(unique_for="done", unique_key=lambda: "a")
        async def single() -> None:
            seen.append(current().nominal_ms or 0)

        return runner

    old, new = program(), program(queue_shards={"default": 8})
    await old.write_schedules()
    (before,) = await old.schedules.list()
    await old.schedules.pause("single")
    await new.write_schedules()
    (after,) = await new.schedules.list()
    assert after.paused
    await new.schedules.resume("single")
    third = program(queue_shards={"default": 3})
    await third.write_schedules()
    (moved,) = await third.schedules.list()
    assert moved.next_ms is not None
    assert before.next_ms is not None
    assert moved.next_ms >= before.next_ms
    await VirtualClock(third).advance(seconds=121)
    assert len(seen) == len(set(seen)) == 2


async def test_a_schedule_in_a_former_shard_goes_on(new_runner: NewRunner) -> None:
    old, new = new_runner(queue_shards={"default": 8}), new_runner(queue_shards={"default": 2})
    seen = []
    key = next(f"{number}" for number in range(1000) if shard_of(f"single:{number}", 8) >= 2)

    for runner in (old, new):

        @runner.task(name="single", unique_for="done", unique_key=lambda: key)
        async def single() -> None:
            seen.append(current().nominal_ms)

    await old.schedules.add("weekly", "single", every=7 * 24 * 3600)
    await VirtualClock(new).advance(days=22)
    assert len(seen) == 3
    assert [each.name for each in await new.schedules.list()] == ["weekly"]


async def test_a_paused_queue_stays_paused_when_it_is_spread(new_runner: NewRunner, drain: Drain) -> None:
    old, new = new_runner(), new_runner(queue_shards={"default": 4})
    seen = []

    @new.task
    async def see(number: int) -> None:
        seen.append(number)

    await old.pause()
    await new.dispatch_many(see.message(number) for number in range(8))
    await drain(new)
    assert seen == []
    assert (await new.stats()).paused
    await new.resume()
    await drain(new)
    assert sorted(seen) == list(range(8))


# ---------------------------------------------------------------------------------------------------------- bad input


async def test_a_queue_may_not_be_named_like_a_shard_of_another(runner: TaskRunner) -> None:
    with pytest.raises(InvalidOption, match="a shard of 'default'"):

        @runner.task(queue="default:3")
        async def lost() -> None: ...

    @runner.task
    async def see() -> None: ...

    with pytest.raises(InvalidOption, match="a shard of 'default'"):
        await see.options(queue="default:63").dispatch()
    assert (await see.options(queue="default:64").dispatch()).queue == "default:64"


async def test_how_a_queue_is_spread_is_not_changed_after_the_fact(runner: TaskRunner) -> None:
    with pytest.raises(InvalidOption, match="queue_shards"):
        runner.configure(queue_shards={"default": 2})


# -------------------------------------------------------------------------------------------------- another process


async def test_workers_of_another_process_serve_all_shards(
    server: ServerProcess, runner: TaskRunner, start_worker: StartWorker, prefix: str, raw: Redis
) -> None:
    script = """
    import asyncio
    from firetime import TaskRunner

    runner = TaskRunner()

    @runner.task(result_ttl=60)
    async def double(number: int) -> int:
        return 2 * number

    asyncio.run(runner.run())
    """
    env = {"FIRETIME_URL": server.url, "FIRETIME_PREFIX": prefix, "FIRETIME_QUEUE_SHARDS": "default=4"}
    handles = [await runner.named("double", result_ttl=60).dispatch(number) for number in range(8)]
    worker = start_worker(script, env=env)
    assert [await handle.result(timeout=30) for handle in handles] == [2 * number for number in range(8)]
    worker.terminate()
    assert worker.wait(30) == 0
