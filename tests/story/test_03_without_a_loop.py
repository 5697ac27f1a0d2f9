"""Code without an event loop dispatches too: every call has a twin that ends in ``_sync``."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from firetime import CancelAnswer, Handle, Status, WrongContext
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.conftest import StartWorker
    from tests.kit.servers import ServerProcess
    from tests.story.stage import Drain, LookAt

pytestmark = pytest.mark.usefixtures("server")


async def in_a_plain_thread(function: Callable[[], Any]) -> Any:
    """Where no loop runs; as a WSGI server would."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    await until(lambda: not thread.is_alive())
    return answers[0]


async def test_every_dispatch_has_a_twin(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task(result_ttl=60)
    async def see(text: str) -> str:
        seen.append(text)
        return text.upper()

    def program() -> list[Handle[str]]:
        named = runner.dispatch_sync("see", "by name")
        many = runner.dispatch_many_sync(see.message(text) for text in ("first", "second"))
        return [
            see.dispatch_sync("now"),
            see.dispatch_delayed_sync(0.05, "delayed"),
            see.schedule_for_sync(datetime.now(UTC) + timedelta(seconds=0.05), "scheduled"),
            see.options(priority="high").dispatch_sync("optional"),
            named,
            *(each for each in many if isinstance(each, Handle)),
        ]

    handles = await in_a_plain_thread(program)
    await drain()
    await until(lambda: len(seen) == len(handles) == 7)
    results = await in_a_plain_thread(lambda: [handle.result_sync(timeout=10) for handle in handles])
    assert sorted(results) == ["BY NAME", "DELAYED", "FIRST", "NOW", "OPTIONAL", "SCHEDULED", "SECOND"]


async def test_a_handle_has_twins_as_well(runner: TaskRunner) -> None:
    @runner.task
    async def see() -> None: ...

    def program() -> list[object]:
        handle = see.dispatch_sync()
        return [handle.status_sync(), handle.cancel_sync(), handle.status_sync()]

    assert await in_a_plain_thread(program) == [Status.READY, CancelAnswer.CANCELLED, Status.CANCELLED]


@pytest.mark.one_server
async def test_threads_that_dispatch_at_once_send_by_themselves(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    threads = [threading.Thread(target=see.dispatch_sync, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    await until(lambda: not any(thread.is_alive() for thread in threads))
    await drain()
    assert sorted(seen) == list(range(16))
    assert not any(thread.name == "firetime-portal" for thread in threading.enumerate())


async def test_threads_that_come_and_go_take_over_each_others_connection(runner: TaskRunner, look_at: LookAt) -> None:
    @runner.task
    async def see() -> None: ...

    for _ in range(20):
        await in_a_plain_thread(see.dispatch_sync)
    assert sum(key.startswith("call:") for key in (await look_at()).keys) == 1


async def test_inside_a_running_loop_a_twin_refuses_instead_of_blocking_it(runner: TaskRunner, raw: Redis) -> None:
    @runner.task
    async def see() -> None: ...

    with pytest.raises(WrongContext, match="await the call without _sync"):
        see.dispatch_sync()
    with pytest.raises(WrongContext):
        runner.dispatch_sync("see")
    with pytest.raises(WrongContext):
        runner.handle("any").status_sync()
    assert await raw.keys("*") == []


async def test_a_task_that_runs_in_a_thread_dispatches_by_twin(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task
    def see(number: int) -> None:
        seen.append(number)
        if number:
            see.dispatch_sync(number - 1)

    await see.dispatch(3)
    await drain()
    assert seen == [3, 2, 1, 0]


async def test_after_close_a_twin_works_again(runner: TaskRunner) -> None:
    @runner.task
    async def see() -> None: ...

    def program() -> int:
        for _ in range(3):
            see.dispatch_sync()
            runner.close()
        return sum(thread.name == "firetime-portal" and thread.is_alive() for thread in threading.enumerate())

    await asyncio.to_thread(program)
    assert (await runner.stats()).ready == 3


FORKED = """
    import os, sys
    from firetime import TaskRunner

    runner = TaskRunner(sys.argv[1], prefix=sys.argv[2])

    @runner.task
    def see(who: str) -> None: ...

    if sys.argv[3] == "dispatched before":
        see.dispatch_sync("parent before")
    child = os.fork()
    see.dispatch_sync("child" if child == 0 else "parent")
    if child:
        assert os.waitpid(child, 0)[1] == 0
        see.dispatch_sync("parent after")
"""


@pytest.mark.parametrize("history", ["dispatched before", "first dispatch after"])
async def test_a_forked_child_dispatches_like_its_parent(
    runner: TaskRunner, drain: Drain, start_worker: StartWorker, server: ServerProcess, prefix: str, history: str
) -> None:
    seen = []

    @runner.task
    def see(who: str) -> None:
        seen.append(who)

    forked = start_worker(FORKED, server.url, prefix, history)
    await until(lambda: not forked.running)
    assert forked.returncode == 0
    await drain()
    before = ["parent before"] if history == "dispatched before" else []
    assert sorted(seen) == sorted([*before, "child", "parent", "parent after"])
