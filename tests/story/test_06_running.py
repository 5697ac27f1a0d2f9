"""While it runs a task has a timeout, where one is set, and may ask about itself."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from firetime import Fixed, Status, WrongContext, current_task
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firetime import CurrentTask, TaskRunner
    from tests.story.stage import Drain, NewRunner

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Threads of a test wait for it; it is open at the end."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_coroutine_that_takes_too_long_is_cancelled(runner: TaskRunner, drain: Drain) -> None:
    cancelled = []

    @runner.task(timeout=0.1, max_retry=0)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(1)

    handle = await slow.dispatch()
    await drain()
    letter = await runner.dead().show(handle.task_id)
    assert cancelled == [1]
    assert letter.errors[0].type == "firetime.values.errors.TaskTimeout"
    assert "ran longer than its timeout of 0.1 s" in letter.errors[0].text


async def test_a_timeout_is_a_failure_and_is_tried_again(runner: TaskRunner, drain: Drain) -> None:
    tries = []

    @runner.task(timeout=0.05, max_retry=1, backoff=Fixed(0))
    async def slow() -> None:
        tries.append(current_task().failures)
        await asyncio.Event().wait()

    await slow.dispatch()
    await drain()
    assert tries == [0, 1]


async def test_a_coroutine_that_will_not_be_cancelled_is_settled_in_time_all_the_same(
    runner: TaskRunner, drain: Drain
) -> None:
    released = asyncio.Event()

    @runner.task(timeout=0.05, max_retry=0)
    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    handle = await stubborn.dispatch()
    await runner.start()
    assert await until_status(handle, Status.DEAD)
    assert runner.worker is not None
    assert runner.worker.running == 1
    released.set()
    await until(lambda: runner.worker is not None and runner.worker.running == 0)


async def test_a_thread_that_takes_too_long_fails_and_another_takes_its_place(
    new_runner: NewRunner, drain: Drain, gate: threading.Event
) -> None:
    runner = new_runner(threads=1)
    ran = []

    @runner.task(timeout=0.1, max_retry=0)
    def slow() -> None:
        gate.wait(10)

    @runner.task
    def quick() -> None:
        ran.append(1)

    handle = await slow.dispatch()
    await quick.dispatch()
    await drain(runner)
    assert ran == [1]
    letter = await runner.dead().show(handle.task_id)
    assert letter.errors[0].type == "firetime.values.errors.TaskTimeout"


async def test_a_dispatch_may_allow_another_time_than_its_task(runner: TaskRunner, drain: Drain) -> None:
    left = []

    @runner.task(timeout=1000)
    async def look() -> None:
        left.append(current_task().remaining())

    await look.dispatch()
    await look.options(timeout=5).dispatch()
    await drain()
    assert 990 < left[0] <= 1000  # type: ignore[operator]
    assert 0 < left[1] <= 5  # type: ignore[operator]


async def test_a_task_can_ask_about_itself(runner: TaskRunner, drain: Drain) -> None:
    seen: list[CurrentTask] = []

    @runner.task(backoff=Fixed(0), queue="mails", timeout=60)
    async def look(argument: int) -> None:
        seen.append(current_task())
        if len(seen) < 3:
            raise ValueError

    handle = await look.options(headers={"trace": "7"}, priority="low").dispatch(1)
    await drain()
    assert {each.id for each in seen} == {handle.task_id}
    assert {(each.name, each.queue, each.headers["trace"]) for each in seen} == {("look", "mails", "7")}
    assert [(each.attempt, each.failures, each.crashes, each.delivery) for each in seen] == [
        (1, 0, 0, 1),
        (2, 1, 0, 1),
        (3, 2, 0, 1),
    ]
    assert [each.fence for each in seen] == [1, 2, 3]
    assert all(each.deadline is not None and each.deadline > time.monotonic() for each in seen)


async def test_tasks_that_run_side_by_side_each_see_themselves(runner: TaskRunner, drain: Drain) -> None:
    both = threading.Barrier(2, timeout=10)
    meeting = asyncio.Barrier(2)
    seen = []

    @runner.task
    async def coroutine() -> None:
        before = current_task().id
        await meeting.wait()
        helper = await asyncio.create_task(ask())
        seen.append((before, helper, current_task().id))

    @runner.task
    def thread() -> None:
        before = current_task().id
        both.wait()
        seen.append((before, current_task().id, current_task().id))

    async def ask() -> str:
        return current_task().id

    handles = [await coroutine.dispatch(), await coroutine.dispatch(), await thread.dispatch(), await thread.dispatch()]
    await drain()
    assert sorted(seen) == sorted((handle.task_id,) * 3 for handle in handles)


async def test_outside_a_task_there_is_nothing_to_ask(runner: TaskRunner, drain: Drain) -> None:
    with pytest.raises(WrongContext, match="outside a running task"):
        current_task()

    @runner.task
    async def nothing() -> None: ...

    await nothing.dispatch()
    await drain()
    with pytest.raises(WrongContext):
        current_task()


async def test_no_more_run_at_once_than_there_are_slots(new_runner: NewRunner, drain: Drain) -> None:
    runner = new_runner(concurrency=3, threads=2)
    at_once = {"coroutine": 0, "thread": 0}
    most = {"coroutine": 0, "thread": 0}
    lock = threading.Lock()

    def enter(kind: str, by: int) -> None:
        with lock:
            at_once[kind] += by
            most[kind] = max(most[kind], at_once[kind])

    @runner.task
    async def coroutine() -> None:
        enter("coroutine", 1)
        await asyncio.sleep(0.01)
        enter("coroutine", -1)

    @runner.task
    def thread() -> None:
        enter("thread", 1)
        time.sleep(0.01)
        enter("thread", -1)

    await runner.dispatch_many([each.message() for each in (coroutine, thread) for _ in range(12)])
    await drain(runner)
    assert most == {"coroutine": 3, "thread": 2}


async def until_status(handle: object, status: Status) -> bool:
    async def reached() -> bool:
        return await handle.status() == status  # type: ignore[attr-defined, no-any-return]

    return await until(reached)
