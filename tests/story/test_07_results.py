"""What a task returns is kept where ``result_ttl`` asks for it; its handle waits for it, and tells where the task is."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from firetime import (
    Fixed,
    MessageNotFound,
    Reject,
    ResultNotReady,
    Status,
    TaskCancelled,
    TaskCrashed,
    TaskExecutionError,
)
from firetime.store.keys import QueueKeys
from tests.kit.waiting import until

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.conftest import StartWorker
    from tests.kit.servers import ServerProcess
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")


@dataclass(frozen=True)
class Invoice:
    number: int
    lines: tuple[str, ...]


async def test_a_result_comes_back_as_the_type_that_the_function_says(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(result_ttl=60)
    async def bill(number: int) -> Invoice:
        return Invoice(number, ("tea", "milk"))

    handle = await bill.dispatch(7)
    await drain()
    assert await handle.result() == Invoice(7, ("tea", "milk"))


async def test_a_result_may_be_none(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(result_ttl=60)
    def nothing() -> None: ...

    handle = await nothing.dispatch()
    await drain()
    assert await handle.result() is None  # type: ignore[func-returns-value]


async def test_whoever_waits_is_woken_when_the_task_ends(runner: TaskRunner, new_runner: NewRunner) -> None:
    @runner.task
    async def double(number: int) -> int:
        return 2 * number

    waiting = asyncio.create_task((await double.options(result_ttl=60).dispatch(21)).result(timeout=20))
    await runner.start()
    assert await waiting == 42


_NOT_OURS = tuple(f"cmdstat_{name}" for name in ("info", "pubsub", "replconf", "ping", "publish"))
"""What this test asks itself, and what replicas and sentinels do."""


async def test_waiting_asks_the_server_nothing_until_the_task_ends(runner: TaskRunner, raw: Redis, prefix: str) -> None:
    @runner.task(result_ttl=60)
    async def double(number: int) -> int:
        return 2 * number

    async def commands() -> dict[str, int]:
        told = await raw.info("commandstats")
        kept = {name: counts["calls"] for name, counts in told.items()}
        return {name: calls for name, calls in kept.items() if not name.startswith(_NOT_OURS)}

    channel = QueueKeys(prefix, "default").ended_channel
    waiting = [asyncio.create_task((await double.dispatch(number)).result(timeout=20)) for number in range(10)]

    async def subscribed() -> bool:
        return dict(await raw.pubsub_numsub(channel))[channel.encode()] == 1

    await until(subscribed)
    quiet = await settled(commands)
    await asyncio.sleep(0.5)  # the time in which nothing may be asked
    assert await commands() == quiet
    await runner.start()
    assert await asyncio.gather(*waiting) == [2 * number for number in range(10)]


async def test_waiting_has_an_end_where_one_is_given(runner: TaskRunner) -> None:
    @runner.task(result_ttl=60)
    async def never() -> None: ...

    handle = await never.dispatch()
    with pytest.raises(ResultNotReady, match=r"\(ready\): waited 0.5 s") as late:
        await handle.result(timeout=0.5)
    assert isinstance(late.value, TimeoutError)
    assert (late.value.task_id, late.value.status) == (handle.task_id, Status.READY)


async def test_the_result_of_a_failed_task_raises_what_it_died_of(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(result_ttl=60, max_retry=1, backoff=Fixed(0))
    async def fail() -> int:
        raise KeyError("no such customer")

    handle = await fail.dispatch()
    await drain()
    with pytest.raises(TaskExecutionError, match="task 'fail' failed: KeyError: 'no such customer'") as failed:
        await handle.result()
    assert failed.value.cause_type == "KeyError"
    assert "raise KeyError" in failed.value.traceback


async def test_whoever_waits_hears_of_a_failure_too(runner: TaskRunner) -> None:
    @runner.task(result_ttl=60)
    async def fail() -> int:
        raise Reject("never")

    waiting = asyncio.create_task((await fail.dispatch()).result(timeout=20))
    await runner.start()
    with pytest.raises(TaskExecutionError, match="never"):
        await waiting


async def test_a_retry_is_not_the_end(runner: TaskRunner) -> None:
    tries = []

    @runner.task(result_ttl=60, backoff=Fixed(0.02))
    async def flaky() -> int:
        tries.append(1)
        if len(tries) < 4:
            raise ValueError
        return len(tries)

    waiting = asyncio.create_task((await flaky.dispatch()).result(timeout=20))
    await runner.start()
    assert await waiting == 4


async def test_the_result_of_a_cancelled_task_raises_that_it_was(runner: TaskRunner) -> None:
    @runner.task(result_ttl=60)
    async def never() -> None: ...

    handle = await never.dispatch()
    waiting = asyncio.create_task(handle.result(timeout=20))
    await handle.cancel()
    with pytest.raises(TaskCancelled):
        await waiting


async def test_the_result_of_a_task_that_kept_killing_its_workers_says_so(
    runner: TaskRunner, start_worker: StartWorker, server: ServerProcess, prefix: str
) -> None:
    killer = """
        import asyncio, os, signal, sys
        from firetime import TaskRunner

        runner = TaskRunner(sys.argv[1], prefix=sys.argv[2], lease=0.5)

        @runner.task
        async def kill() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        async def main() -> None:
            await runner.start()
            await asyncio.Event().wait()

        asyncio.run(main())
    """

    @runner.task(name="kill", result_ttl=60)
    async def kill() -> None: ...

    runner.configure(lease=0.5)
    handle = await kill.dispatch()
    runner.tasks.clear()

    @runner.task(name="kill", max_crashes=0)
    async def never() -> None: ...

    worker = start_worker(killer, server.url, prefix)
    await until(lambda: not worker.running)
    await runner.start()
    with pytest.raises(TaskCrashed) as crashed:
        await handle.result(timeout=20)
    assert crashed.value.crashes == 1


async def test_a_result_that_is_over_is_told_from_one_that_never_was(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(result_ttl=0.05)
    async def brief() -> int:
        return 1

    handle = await brief.dispatch()
    await drain()
    await until_status(handle, Status.EXPIRED)
    with pytest.raises(ResultNotReady, match="its result_ttl is over"):
        await handle.result()
    with pytest.raises(MessageNotFound, match="nobody-knows"):
        await runner.handle("nobody-knows").result()


async def test_waiting_for_a_task_that_keeps_no_result_ends_at_once(runner: TaskRunner, drain: Drain) -> None:
    @runner.task
    async def forgetful() -> int:
        return 1

    handle = await forgetful.dispatch()
    with pytest.raises(ResultNotReady, match="set result_ttl"):
        await handle.result()
    await drain()
    with pytest.raises(MessageNotFound, match="result_ttl"):
        await handle.result()


async def test_a_dispatch_may_keep_its_result_longer_than_its_task(runner: TaskRunner, drain: Drain) -> None:
    @runner.task
    async def forgetful() -> int:
        return 1

    handle = await forgetful.options(result_ttl=60).dispatch()
    await drain()
    assert await handle.result() == 1


async def test_a_result_that_cannot_be_kept_is_a_failure_that_says_why(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(result_ttl=60, max_retry=0)
    async def odd() -> object:
        return threading.Lock()

    handle = await odd.dispatch()
    await drain()
    with pytest.raises(TaskExecutionError, match="its result, lock, cannot be encoded"):
        await handle.result()


async def test_nobody_minds_an_odd_result_that_is_not_kept(runner: TaskRunner, drain: Drain) -> None:
    @runner.task
    async def odd() -> object:
        return threading.Lock()

    await odd.dispatch()
    await drain()
    assert await runner.dead().count() == 0


async def test_a_status_tells_where_the_task_is(runner: TaskRunner, drain: Drain, look_at: LookAt) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    @runner.task(max_retry=0)
    async def work(what: str) -> None:
        if what == "wait":
            started.set()
            await finish.wait()
        if what == "fail":
            raise ValueError

    ready = await work.dispatch("wait")
    assert await ready.status() == Status.READY
    delayed = await work.dispatch_delayed(60, "later")
    assert await delayed.status() == Status.DELAYED
    cancelled = await work.dispatch_delayed(60, "later")
    await cancelled.cancel()
    assert await cancelled.status() == Status.CANCELLED
    kept = await work.options(result_ttl=60).dispatch("return")
    brief = await work.options(result_ttl=0.01).dispatch("return")
    dead = await work.dispatch("fail")
    await runner.start()
    await asyncio.wait_for(started.wait(), 10)
    assert await ready.status() == Status.RUNNING
    finish.set()
    await drain()
    assert await kept.status() == Status.DONE
    assert await dead.status() == Status.DEAD
    await until_status(brief, Status.EXPIRED)
    assert await ready.status() == Status.UNKNOWN
    assert await runner.handle("nobody-knows").status() == Status.UNKNOWN


async def test_a_handle_is_its_id_and_its_queue(runner: TaskRunner) -> None:
    @runner.task(queue="mails")
    async def mail() -> None: ...

    handle = await mail.dispatch()
    assert runner.handle(handle.task_id, queue="mails") == handle
    assert len({runner.handle(handle.task_id, queue="mails"), handle}) == 1
    assert runner.handle(handle.task_id) != handle
    assert await runner.handle(handle.task_id, queue="mails").status() == Status.READY


async def until_status(handle: object, status: Status) -> None:
    async def reached() -> bool:
        return await handle.status() == status  # type: ignore[attr-defined, no-any-return]

    await until(reached)


async def settled(ask: object) -> object:
    """The first answer that comes twice."""
    before = None
    while (now := await ask()) != before:  # type: ignore[operator]
        before = now
        await asyncio.sleep(0.05)
    return now
