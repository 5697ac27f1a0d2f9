"""A unique key is held from the moment its message is accepted until that has ended; meanwhile no other gets in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from firetime import CancelAnswer, Fixed, Handle, Status, TaskAlreadyDispatched, UniqueForRequired
from tests.kit.waiting import until
from tests.story.stage import let_pass

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import Dispatcher, TaskRunner
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")


async def accepted(task: Dispatcher[Any, Any], *args: object) -> bool:
    try:
        await task.dispatch(*args)
    except TaskAlreadyDispatched:
        return False
    return True


async def test_a_second_message_with_the_same_arguments_is_refused(runner: TaskRunner) -> None:
    @runner.task(unique_for=600)
    async def rebuild(shop: int) -> None: ...

    first = await rebuild.dispatch(7)
    with pytest.raises(TaskAlreadyDispatched) as refused:
        await rebuild.dispatch(7)
    assert refused.value.task_id == first.task_id
    assert refused.value.key is not None
    assert await accepted(rebuild, 8)


async def test_however_they_are_written_the_arguments_are_the_same(runner: TaskRunner) -> None:
    @runner.task(unique_for=600)
    async def rebuild(shop: int, deep: bool = False) -> None: ...

    await rebuild.dispatch(7)
    for again in (rebuild.message(shop=7), rebuild.message(7, False), rebuild.message(deep=False, shop=7)):
        assert isinstance((await runner.dispatch_many([again]))[0], TaskAlreadyDispatched)


async def test_the_key_may_be_made_of_some_of_the_arguments(runner: TaskRunner) -> None:
    def of_the_shop(shop: int, *, why: str = "") -> int:
        return shop

    @runner.task(unique_for=600, unique_key=of_the_shop)
    async def rebuild(shop: int, *, why: str = "") -> None: ...

    await rebuild.dispatch(7, why="new goods")
    with pytest.raises(TaskAlreadyDispatched, match="unique key 'rebuild:7' is held"):
        await rebuild.dispatch(7, why="new prices")
    assert await accepted(rebuild, 8)


async def test_the_key_may_be_given_with_the_dispatch(runner: TaskRunner) -> None:
    @runner.task
    async def rebuild(shop: int) -> None: ...

    tonight = rebuild.options(unique_key="tonight", unique_for="done")
    await tonight.dispatch(7)
    assert not await accepted(tonight, 8)
    assert await accepted(rebuild, 8)


async def test_two_tasks_never_share_a_key(runner: TaskRunner) -> None:
    @runner.task(unique_for=600, unique_key=lambda: "same")
    async def one() -> None: ...

    @runner.task(unique_for=600, unique_key=lambda: "same")
    async def other() -> None: ...

    await one.dispatch()
    assert await accepted(other)


async def test_a_key_without_a_time_is_refused(runner: TaskRunner) -> None:
    with pytest.raises(UniqueForRequired, match="give seconds, or unique_for='done'"):

        @runner.task(unique_key=lambda: 1)
        async def rebuild() -> None: ...

    @runner.task
    async def plain() -> None: ...

    with pytest.raises(UniqueForRequired, match="task 'plain'"):
        await plain.options(unique_key="mine").dispatch()


# ------------------------------------------------------------------------------------------------- when the key is held


async def test_on_conflict_return_gives_the_handle_of_the_holder(runner: TaskRunner) -> None:
    @runner.task(unique_for=600, on_conflict="return")
    async def rebuild(shop: int) -> None: ...

    assert await rebuild.dispatch(7) == await rebuild.dispatch(7)
    assert (await runner.stats()).ready == 1


async def test_on_conflict_replace_moves_one_that_still_waits_for_its_time(runner: TaskRunner, drain: Drain) -> None:
    saved = []

    @runner.task(unique_for=600, unique_key=lambda _: "draft", on_conflict="replace")
    async def save(text: str) -> None:
        saved.append(text)

    first = await save.dispatch_delayed(60, "one")
    second = await save.dispatch_delayed(0.05, "two")
    assert first == second
    await drain()
    await until(lambda: saved)
    assert saved == ["two"]
    assert (await runner.stats()).delayed == 0


async def test_on_conflict_replace_is_refused_when_there_is_nothing_to_move(runner: TaskRunner) -> None:
    @runner.task(unique_for=600, unique_key=lambda _: "draft", on_conflict="replace")
    async def save(text: str) -> None: ...

    await save.dispatch("now")
    assert not await accepted(save, "too late")


# ------------------------------------------------------------------------------------------------- how long it is held


async def test_a_lost_holder_blocks_for_so_many_seconds_at_most(runner: TaskRunner) -> None:
    @runner.task(unique_for=0.1)
    async def rebuild() -> None: ...

    assert await accepted(rebuild)
    assert not await accepted(rebuild)

    async def again() -> bool:
        return await accepted(rebuild)

    await until(again)


async def test_the_seconds_count_from_the_fire_time(runner: TaskRunner, raw: Redis) -> None:
    @runner.task(unique_for=0.05)
    async def rebuild() -> None: ...

    await rebuild.dispatch_delayed(60)
    await let_pass(raw, 0.2)
    assert not await accepted(rebuild)


async def test_the_key_is_kept_until_the_retry(runner: TaskRunner, drain: Drain, raw: Redis) -> None:
    @runner.task(unique_for=0.05, backoff=Fixed(60))
    async def rebuild() -> None:
        raise ValueError

    await rebuild.dispatch()
    await drain()
    await let_pass(raw, 0.2)
    assert not await accepted(rebuild)


async def test_the_key_is_kept_through_a_long_run(new_runner: NewRunner, raw: Redis) -> None:
    runner = new_runner(lease=0.6)
    started, finish = asyncio.Event(), asyncio.Event()

    @runner.task(unique_for=0.5)
    async def rebuild() -> None:
        started.set()
        await finish.wait()

    await rebuild.dispatch()
    await runner.start()
    await asyncio.wait_for(started.wait(), 10)
    await let_pass(raw, 1.2)
    assert not await accepted(rebuild)
    finish.set()


async def test_done_holds_it_until_the_end_however_long_that_takes(runner: TaskRunner, look_at: LookAt) -> None:
    @runner.task(unique_for="done")
    async def rebuild() -> None: ...

    handle = await rebuild.dispatch()
    assert list((await look_at()).unique.values()) == [f"0 {handle.task_id}"]


# ------------------------------------------------------------------------------------------------------ when it is free


@pytest.mark.parametrize("unique_for", [600, "done"])
@pytest.mark.parametrize("end", ["done", "dead", "cancelled while delayed", "cancelled while ready", "cancelled"])
async def test_the_key_is_free_as_soon_as_its_holder_has_ended(
    runner: TaskRunner, drain: Drain, look_at: LookAt, end: str, unique_for: Any
) -> None:
    started = asyncio.Event()

    @runner.task(unique_for=unique_for, max_retry=0, unique_key=lambda _: "same")
    async def rebuild(end: str) -> None:
        started.set()
        if end == "dead":
            raise ValueError
        if end == "cancelled":
            await asyncio.Event().wait()

    handle = await (rebuild.options(delay=60) if end == "cancelled while delayed" else rebuild).dispatch(end)
    assert not await accepted(rebuild, end)
    if end.startswith("cancelled while"):
        assert await handle.cancel() == CancelAnswer.CANCELLED
    else:
        await runner.start()
        await asyncio.wait_for(started.wait(), 10)
        if end == "cancelled":
            assert await handle.cancel() == CancelAnswer.REQUESTED
        await drain()
    assert (await look_at()).unique == {}
    assert await accepted(rebuild, "done")


async def test_the_key_is_free_once_the_holder_is_done_and_no_sooner(runner: TaskRunner, drain: Drain) -> None:
    inside: list[bool] = []

    @runner.task(unique_for="done")
    async def rebuild() -> None:
        if not inside:
            inside.append(await accepted(rebuild))

    await rebuild.dispatch()
    await drain()
    assert inside == [False]
    assert await accepted(rebuild)


async def test_a_replayed_dead_letter_takes_its_key_again(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(unique_for=600, max_retry=0)
    async def rebuild() -> None:
        raise ValueError

    handle = await rebuild.dispatch()
    await drain()
    await runner.stop()
    await runner.dead().replay(handle.task_id)
    assert not await accepted(rebuild)


async def test_a_dead_letter_whose_key_is_held_by_another_by_now_stays(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(unique_for=600, max_retry=0)
    async def rebuild() -> None:
        raise ValueError

    handle = await rebuild.dispatch()
    await drain()
    await runner.stop()
    other = await rebuild.dispatch()
    with pytest.raises(TaskAlreadyDispatched) as refused:
        await runner.dead().replay(handle.task_id)
    assert refused.value.task_id == other.task_id
    assert await runner.dead().replay_all() == 0
    assert await handle.status() == Status.DEAD


async def test_of_many_that_come_at_once_one_gets_in(runner: TaskRunner, new_runner: NewRunner) -> None:
    runners = [runner, *(new_runner() for _ in range(4))]
    for each in runners:
        each.task(name="rebuild", unique_for=600)(lambda: None)
    answers = await asyncio.gather(*(each.dispatch("rebuild") for each in runners * 20), return_exceptions=True)
    assert sum(isinstance(answer, Handle) for answer in answers) == 1
    assert sum(isinstance(answer, TaskAlreadyDispatched) for answer in answers) == 99
