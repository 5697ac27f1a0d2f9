"""Many tasks run beside each other, and one follows when all of them are done."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from firetime import (
    CancelAnswer,
    Fixed,
    Group,
    InvalidOption,
    InvalidTaskPayload,
    QueueFull,
    Status,
    TaskAlreadyDispatched,
    TaskRunner,
)
from firetime.testing import VirtualClock
from firetime.testing import drain as run_all
from firetime.values.shards import shard_in, shard_of
from tests.kit.waiting import until

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import Task
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")


class Board:
    """What has run, in order; and the tasks that write it."""

    def __init__(self, runner: TaskRunner) -> None:
        self.seen: list[object] = []
        self.broken = False
        self.see: Task[[object], None] = runner.task(name="see", max_retry=0)(self._see)
        self.end: Task[[object], None] = runner.task(name="end")(self._end)

    async def _see(self, what: object) -> None:
        if self.broken:
            raise ValueError("broken")
        self.seen.append(what)

    async def _end(self, what: object) -> None:
        self.seen.append(("end", what))


@pytest.fixture
def board(runner: TaskRunner) -> Board:
    return Board(runner)


async def no_groups(look_at: LookAt) -> bool:
    return [key for key in (await look_at()).keys if key.startswith("group:")] == []


# -------------------------------------------------------------------------------------------------------- the usual way


async def test_the_callback_runs_when_all_are_done(
    runner: TaskRunner, board: Board, drain: Drain, look_at: LookAt
) -> None:
    group = await runner.group([board.see.message(number) for number in range(10)], then=board.end.message("ten"))
    assert await group.pending() == 10
    await drain()
    assert sorted(board.seen[:10], key=str) == list(range(10))
    assert board.seen[10:] == [("end", "ten")]
    assert await group.pending() is None
    left = await look_at()
    assert (left.tasks, left.places, left.state, await no_groups(look_at)) == ({}, {}, {}, True)


async def test_the_handles_are_there_in_order(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(result_ttl=60)
    async def double(number: int) -> int:
        return 2 * number

    group = await runner.group([double.message(number) for number in range(3)], then=double.message(21))
    assert await group.then.status() == Status.UNKNOWN
    await drain()
    assert [await handle.result() for handle in group.members] == [0, 2, 4]
    assert await group.then.result() == 42
    assert repr(group) == f"Group({group.group_id!r}, queue='default', 3 members)"


async def test_a_group_of_nobody_is_followed_at_once(runner: TaskRunner, board: Board, drain: Drain) -> None:
    group = await runner.group([], then=board.end.message("nothing"))
    assert await group.pending() is None
    await drain()
    assert board.seen == [("end", "nothing")]


async def test_code_without_a_loop_sends_groups_as_well(runner: TaskRunner, board: Board, drain: Drain) -> None:
    def send() -> tuple[Group, int | None]:
        group = runner.group_sync((board.see.message(number) for number in range(2)), then=board.end.message("two"))
        return group, group.pending_sync()

    _, pending = await asyncio.to_thread(send)
    assert pending == 2
    await drain()
    assert board.seen[2:] == [("end", "two")]


async def test_one_message_given_twice_is_two_members(runner: TaskRunner, board: Board, drain: Drain) -> None:
    message = board.see.message("again")
    group = await runner.group([message, message], then=board.end.message("both"))
    assert await group.pending() == 2
    await drain()
    assert board.seen == ["again", "again", ("end", "both")]


async def test_a_large_group_goes_in_several_calls(
    runner: TaskRunner, board: Board, drain: Drain, look_at: LookAt
) -> None:
    await runner.start()  # the first members are done before the last are sent
    group = await runner.group((board.see.message(number) for number in range(1700)), then=board.end.message("all"))
    assert len(group.members) == 1700
    await drain()
    assert len(board.seen) == 1701
    assert board.seen[-1] == ("end", "all")
    assert await no_groups(look_at)


async def test_groups_of_one_queue_do_not_mix(runner: TaskRunner, board: Board, drain: Drain) -> None:
    groups = [
        await runner.group([board.see.message((name, number)) for number in range(5)], then=board.end.message(name))
        for name in range(20)
    ]
    assert len({group.group_id for group in groups}) == 20
    await drain()
    assert sorted(what[1] for what in board.seen if isinstance(what, tuple) and what[0] == "end") == list(range(20))


async def test_a_callback_may_begin_the_next_group(runner: TaskRunner, board: Board) -> None:
    @runner.task
    async def second() -> None:
        await runner.group([board.see.message("second")], then=board.end.message("at last"))

    await runner.group([board.see.message("first")], then=second.message())
    await run_all(runner)
    assert board.seen == ["first", "second", ("end", "at last")]


async def test_members_may_be_delayed_and_have_priorities(runner: TaskRunner, board: Board) -> None:
    group = await runner.group(
        [board.see.message("now"), board.see.options(delay=3600, priority="high").message("later")],
        then=board.end.options(priority="low").message("both"),
    )
    await run_all(runner)
    assert (board.seen, await group.pending()) == (["now"], 1)
    await VirtualClock(runner).advance(hours=1)
    assert board.seen == ["now", "later", ("end", "both")]


async def test_a_member_that_is_remembered_or_keeps_history_joins_too(
    runner: TaskRunner, board: Board, drain: Drain
) -> None:
    @runner.task(delete_on_ack=False, result_ttl=60)
    async def loud() -> str:
        return "kept"

    await runner.group([loud.options(task_id="mine").message(), loud.message()], then=board.end.message("both"))
    await drain()
    assert board.seen == [("end", "both")]


# ------------------------------------------------------------------------------------------------- what does not end it


async def test_a_member_that_fails_is_waited_for(runner: TaskRunner, board: Board, drain: Drain) -> None:
    failures = []

    @runner.task(max_retry=2, backoff=Fixed(0))
    async def flaky() -> None:
        failures.append(list(board.seen))
        if len(failures) < 3:
            raise ValueError

    await runner.group([flaky.message(), board.see.message("well")], then=board.end.message("both"))
    await drain()
    assert len(failures) == 3
    assert board.seen == ["well", ("end", "both")]


async def test_a_dead_letter_is_waited_for_until_it_is_replayed_and_done(
    runner: TaskRunner, board: Board, drain: Drain
) -> None:
    board.broken = True
    group = await runner.group([board.see.message("late"), board.end.message("well")], then=board.end.message("both"))
    await drain()
    assert (board.seen, await group.pending()) == ([("end", "well")], 1)
    board.broken = False
    assert await runner.dead().replay_all() == 1
    await drain()
    assert board.seen == [("end", "well"), "late", ("end", "both")]


async def test_a_member_given_back_by_a_shutdown_is_waited_for(runner: TaskRunner, board: Board, drain: Drain) -> None:
    started: list[int] = []

    @runner.task
    async def interrupted() -> None:
        started.append(1)
        if len(started) == 1:
            await asyncio.Event().wait()

    group = await runner.group([interrupted.message()], then=board.end.message("after all"))
    await runner.start()
    await until(lambda: started)
    await runner.stop(within=0)
    assert await group.pending() == 1
    await drain()
    assert (len(started), board.seen) == (2, [("end", "after all")])


# ------------------------------------------------------------------------------------------------- what gives it up


async def test_a_group_that_loses_a_waiting_member_is_given_up(
    runner: TaskRunner, board: Board, drain: Drain, look_at: LookAt
) -> None:
    group = await runner.group([board.see.message(number) for number in range(2)], then=board.end.message("never"))
    assert await group.members[0].cancel() == CancelAnswer.CANCELLED
    assert await group.pending() is None
    await drain()
    assert (board.seen, await no_groups(look_at)) == ([1], True)


@pytest.mark.parametrize("delay", [0, 60])
async def test_or_a_running_one(runner: TaskRunner, board: Board, drain: Drain, delay: float) -> None:
    gate, started = threading.Event(), threading.Event()

    @runner.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    @runner.task(backoff=delay)
    def fails() -> None:
        started.set()
        gate.wait(20)
        raise ValueError

    for task in (endless, fails):
        gate.clear()
        started.clear()
        group = await runner.group([task.message()], then=board.end.message("never"))
        await runner.start()
        await asyncio.to_thread(started.wait, 20)
        assert await group.members[0].cancel() == CancelAnswer.REQUESTED
        gate.set()
        await drain()
        assert await group.pending() is None
        await runner.stop()
    assert board.seen == []


async def test_or_a_dead_one_for_good(runner: TaskRunner, board: Board, drain: Drain, look_at: LookAt) -> None:
    board.broken = True
    group = await runner.group([board.see.message(number) for number in range(3)], then=board.end.message("never"))
    await drain()
    await runner.dead().purge(group.members[0].task_id)
    assert await group.pending() is None
    board.broken = False
    await runner.dead().replay_all()
    await drain()
    assert (sorted(board.seen, key=str), await no_groups(look_at)) == ([1, 2], True)


async def test_the_callback_can_be_called_back(runner: TaskRunner, board: Board, drain: Drain) -> None:
    group = await runner.group([board.see.message("runs on")], then=board.end.message("never"))
    assert await group.give_up()
    assert not await asyncio.to_thread(group.give_up_sync)
    await drain()
    assert board.seen == ["runs on"]


async def test_a_group_lives_for_a_week_or_as_long_as_asked(
    runner: TaskRunner, board: Board, drain: Drain, raw: Redis, prefix: str
) -> None:
    week = await runner.group([board.see.message(1)], then=board.end.message("week"))
    hour = await runner.group([board.see.message(2)], then=board.end.message("hour"), ttl=3600)
    lives = [await raw.pttl(f"{prefix}:{{default}}:group:{group.group_id}") for group in (week, hour)]
    assert 6.9 * 86_400_000 < lives[0] <= 7 * 86_400_000
    assert 3_000_000 < lives[1] <= 3_600_000
    await raw.pexpire(f"{prefix}:{{default}}:group:{hour.group_id}", 1)

    async def is_over() -> bool:
        return await hour.pending() is None

    await until(is_over)
    await drain()
    assert board.seen == [1, 2, ("end", "week")]


# ------------------------------------------------------------------------------------------------------- what is refused


async def test_a_group_is_sent_as_a_whole_or_not_at_all(
    runner: TaskRunner, board: Board, drain: Drain, look_at: LookAt
) -> None:
    first = await board.see.options(task_id="mine").dispatch("first")
    members = [board.see.message(1), board.see.options(task_id="mine").message(2)]
    with pytest.raises(TaskAlreadyDispatched) as refused:
        await runner.group(members, then=board.end.message("never"))
    assert refused.value.task_id == first.task_id
    assert list((await look_at()).tasks) == ["mine"]
    await drain()
    assert (board.seen, await no_groups(look_at)) == (["first"], True)


async def test_nor_is_half_of_it_put_into_a_queue_that_is_full(new_runner: NewRunner, look_at: LookAt) -> None:
    runner = new_runner(max_length=3)
    board = Board(runner)
    await board.see.dispatch("before")
    with pytest.raises(QueueFull, match="'default' takes no more: the group would pass max_length"):
        await runner.group([board.see.message(number) for number in range(3)], then=board.end.message("never"))
    assert len((await look_at()).tasks) == 1
    await runner.group([board.see.message(number) for number in range(2)], then=board.end.message("fits"))
    await run_all(runner)
    assert board.seen == ["before", 0, 1, ("end", "fits")]


async def test_of_a_large_group_that_is_refused_midway_nothing_follows(new_runner: NewRunner, look_at: LookAt) -> None:
    runner = new_runner(max_length=600)
    board = Board(runner)
    with pytest.raises(QueueFull):
        await runner.group((board.see.message(number) for number in range(700)), then=board.end.message("never"))
    await run_all(runner)
    assert (len(board.seen), await no_groups(look_at)) == (500, True)


async def refused(runner: TaskRunner, members: Any, then: Any, match: str, look_at: LookAt, **options: Any) -> None:
    with pytest.raises(InvalidOption, match=match):
        await runner.group(members, then=then, **options)
    assert (await look_at()).keys <= {"paused"}


async def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    runner: TaskRunner, board: Board, look_at: LookAt
) -> None:
    see, end = board.see, board.end
    one, then = see.message(1), end.message(1)
    await refused(runner, [one, see.options(queue="other").message(2)], then, "one queue", look_at)
    await refused(runner, [one], end.options(queue="other").message(1), "one queue", look_at)
    await refused(runner, [one, see.options(unique_for=60).message(2)], then, "without a unique key", look_at)
    mine = see.options(task_id="mine")
    await refused(runner, [mine.message(1), mine.message(2)], then, "each task_id once", look_at)
    for spoiled in (
        end.options(task_id="mine"),
        end.options(delay=1),
        end.options(unique_for="done"),
    ):
        await refused(runner, [one], spoiled.message(1), "nothing can refuse later", look_at)
    await refused(runner, [one, "see"], then, "as task.message", look_at)
    await refused(runner, [one], board.end, "as task.message", look_at)
    await refused(runner, [one], then, "ttl", look_at, ttl=0)


async def test_a_message_that_is_too_large_as_a_member_is_refused(new_runner: NewRunner, look_at: LookAt) -> None:
    runner = new_runner(max_payload=100)
    board = Board(runner)
    with pytest.raises(InvalidTaskPayload, match="max_payload=100"):
        await runner.group([board.see.message("x" * 60)], then=board.end.message("never"))
    assert (await look_at()).tasks == {}


# ----------------------------------------------------------------------------------------------------------- with shards


async def test_a_group_in_a_spread_queue_takes_one_shard(new_runner: NewRunner) -> None:
    runner = new_runner(queue_shards={"default": 4})
    board = Board(runner)
    groups = [
        await runner.group([board.see.message(number) for number in range(5)], then=board.end.message(name))
        for name in range(40)
    ]
    for group in groups:
        assert group.queue == "default"
        assert {shard_in(handle.task_id) for handle in group.members} == {shard_in(group.then.task_id)}
        assert await group.pending() == 5
    assert len({shard_in(group.then.task_id) for group in groups}) == 4
    await run_all(runner)
    assert len(board.seen) == 240
    assert [await group.pending() for group in groups] == [None] * 40


async def test_and_that_of_the_ids_that_its_sender_chose(new_runner: NewRunner, look_at: LookAt) -> None:
    runner = new_runner(queue_shards={"default": 4})
    board = Board(runner)
    shards = [shard_of(f"mine-{number}", 4) for number in range(20)]
    here = [number for number in range(20) if shards[number] == shards[0]]
    members = [board.see.options(task_id=f"mine-{number}").message(number) for number in here]
    group = await runner.group([*members, board.see.message("made here")], then=board.end.message("all"))
    assert shard_in(group.then.task_id) == shard_in(group.members[-1].task_id) == shards[0]
    assert await group.members[0].status() == Status.READY
    elsewhere = next(number for number in range(20) if shards[number] != shards[0])
    members.append(board.see.options(task_id=f"mine-{elsewhere}").message(0))
    with pytest.raises(InvalidOption, match="task_ids of one shard"):
        await runner.group(members, then=board.end.message("never"))
    await run_all(runner)
    assert board.seen[-1] == ("end", "all")
    assert len(board.seen) == len(here) + 2
