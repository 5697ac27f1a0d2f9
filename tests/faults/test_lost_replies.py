"""A reply is lost after the server has acted: what is repeated then never acts twice."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from firetime import BrokerUnavailable, Fixed, Status, TaskAlreadyDispatched, current_task
from firetime.values.events import Event, TaskEvent
from tests.kit.waiting import until
from tests.story.stage import let_pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.kit.proxy import FaultProxy
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def proxy(start_proxy: Callable[[str], FaultProxy], url: str) -> FaultProxy:
    return start_proxy(url)


@pytest.fixture
def far(proxy: FaultProxy, new_runner: NewRunner) -> TaskRunner:
    """A runner behind the proxy."""
    return new_runner(proxy.url)


# ------------------------------------------------------------------------------------------------------------- dispatch


@pytest.mark.parametrize("lost", [1, 3])
async def test_a_dispatch_whose_reply_was_lost_is_repeated_and_never_duplicated(
    far: TaskRunner, proxy: FaultProxy, drain: Drain, runner: TaskRunner, lost: int
) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    await far.dispatch("see", 0)
    proxy.swallow_replies(lost, only="EVALSHA")
    await far.dispatch("see", 1)
    assert proxy.replies_to_swallow == 0
    await drain()
    assert seen == [0, 1]


async def test_it_is_not_even_when_the_task_has_run_in_between(
    far: TaskRunner, proxy: FaultProxy, runner: TaskRunner, look_at: LookAt
) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    await far.dispatch("see", 0)
    await runner.start()
    await until(lambda: seen == [0])
    proxy.refuse()
    proxy.swallow_replies(1, only="EVALSHA")
    dispatch = asyncio.create_task(far.dispatch("see", 1))

    async def over() -> bool:
        return seen == [0, 1] and not (await look_at()).tasks

    await until(over)
    assert not dispatch.done()
    proxy.accept()
    handle = await dispatch
    assert runner.worker is not None
    await runner.worker.until_idle()
    assert seen == [0, 1]
    assert await handle.status() == Status.UNKNOWN


async def test_a_lost_batch_is_answered_from_memory_message_by_message(
    far: TaskRunner, proxy: FaultProxy, runner: TaskRunner
) -> None:
    @far.task(unique_for=600)
    async def rebuild(shop: int) -> None: ...

    await rebuild.dispatch(0)
    proxy.swallow_replies(1, only="EVALSHA")
    answers = await far.dispatch_many([rebuild.message(0), *(rebuild.message(1) for _ in range(2)), rebuild.message(2)])
    assert [isinstance(answer, TaskAlreadyDispatched) for answer in answers] == [True, False, True, False]
    assert (await runner.stats()).ready == 3


@pytest.mark.parametrize("what", ["id", "key"])
async def test_whoever_lost_the_reply_is_not_told_that_it_was_dispatched_already(
    far: TaskRunner, proxy: FaultProxy, runner: TaskRunner, what: str
) -> None:
    options = {"task_id": "mine"} if what == "id" else {"unique_key": "mine", "unique_for": "done"}
    await far.dispatch("see")
    proxy.swallow_replies(1, only="EVALSHA")
    await far.named("see", **options).dispatch()
    assert (await runner.stats()).ready == 2
    with pytest.raises(TaskAlreadyDispatched):
        await far.named("see", **options).dispatch()


async def test_a_script_that_the_server_forgot_is_sent_again(runner: TaskRunner, raw: Redis) -> None:
    await runner.dispatch("see")
    await raw.script_flush()
    await runner.dispatch("see")
    assert (await runner.stats()).ready == 2


async def test_a_replay_whose_reply_was_lost_happens_once(
    far: TaskRunner, proxy: FaultProxy, drain: Drain, runner: TaskRunner
) -> None:
    runs = []

    @runner.task(max_retry=0)
    async def fail() -> None:
        runs.append(1)
        raise ValueError

    handle = await runner.dispatch("fail")
    await drain()
    assert await far.dead().count() == 1
    proxy.swallow_replies(1, only="EVALSHA")
    await far.dead().replay(handle.task_id)
    await drain()
    assert len(runs) == 2
    assert await runner.dead().count() == 1


async def test_a_call_that_arrives_after_a_later_one_is_refused(
    proxy: FaultProxy, new_runner: NewRunner, drain: Drain, runner: TaskRunner
) -> None:
    seen = []

    @runner.task
    async def see(what: str) -> None:
        seen.append(what)

    hasty = new_runner(proxy.url, dispatch_deadline=0.5)
    await hasty.dispatch("see", "first")
    held = proxy.hold_next_request(only="EVALSHA")
    with pytest.raises(BrokerUnavailable) as late:
        await hasty.dispatch("see", "delayed on its way")
    assert late.value.maybe_accepted
    assert held.caught
    await hasty.dispatch("see", "later")
    assert b"STALECALL" in held.release()
    await drain()
    assert seen == ["first", "later"]


async def test_a_call_that_arrives_late_but_in_order_is_what_maybe_accepted_warns_of(
    proxy: FaultProxy, new_runner: NewRunner, drain: Drain, runner: TaskRunner
) -> None:
    seen = []

    @runner.task
    async def see(what: str) -> None:
        seen.append(what)

    hasty = new_runner(proxy.url, dispatch_deadline=0.5)
    await hasty.dispatch("see", "first")
    held = proxy.hold_next_request(only="EVALSHA")
    with pytest.raises(BrokerUnavailable, match="it may have been accepted all the same"):
        await hasty.dispatch("see", "delayed on its way")
    held.release()
    await drain()
    assert seen == ["first", "delayed on its way"]


# -------------------------------------------------------------------------------------------------------- claim, settle


async def test_what_a_claim_gave_whose_reply_was_lost_runs_soon_after_at_no_cost(
    proxy: FaultProxy, new_runner: NewRunner, runner: TaskRunner
) -> None:
    worker = new_runner(proxy.url, lease=3)
    seen = []

    @worker.task
    async def see() -> None:
        running = current_task()
        seen.append((running.attempt, running.crashes, running.failures))

    await worker.start(scheduler=False)
    await until(lambda: worker.worker is not None and worker.worker.healthy)
    await see.dispatch()
    await until(lambda: len(seen) == 1)
    proxy.swallow_replies(1, only="EVALSHA")
    await runner.dispatch("see")
    await until(lambda: len(seen) == 2, timeout=2.9)  # within one lease: it is given back, not swept
    assert proxy.replies_to_swallow == 0
    assert seen == [(1, 0, 0)] * 2


@pytest.mark.parametrize("end", ["complete", "keep the result", "retry", "bury"])
async def test_a_settlement_whose_reply_was_lost_is_repeated_and_nobody_is_alarmed(
    proxy: FaultProxy, new_runner: NewRunner, runner: TaskRunner, look_at: LookAt, end: str
) -> None:
    worker = new_runner(proxy.url)
    started, finish, runs = asyncio.Event(), asyncio.Event(), []
    events: list[Event] = []
    worker.events.subscribe(events.append)

    @worker.task(max_retry=int(end == "retry"), backoff=Fixed(0))
    async def work() -> str:
        runs.append(current_task().failures)
        started.set()
        await finish.wait()
        if end == "bury" or (end == "retry" and len(runs) == 1):
            raise ValueError
        return "value"

    handle = await runner.named("work", result_ttl=60 if end == "keep the result" else 0).dispatch()
    await worker.start(scheduler=False)
    await asyncio.wait_for(started.wait(), 10)
    proxy.swallow_replies(1, only="EVALSHA")
    finish.set()
    await until(lambda: proxy.replies_to_swallow == 0)
    assert worker.worker is not None
    await worker.worker.until_idle()
    assert runs == ([0, 1] if end == "retry" else [0])
    assert [each for each in events if isinstance(each, TaskEvent) and each.what in {"refused", "lost"}] == []
    left = await look_at()
    assert (len(left.tasks), len(left.dead)) == ((1, 1) if end == "bury" else (0, 0))
    if end == "keep the result":
        assert await handle.result() == "value"


async def test_what_was_given_back_although_the_reply_was_lost_runs_once(
    proxy: FaultProxy, new_runner: NewRunner, runner: TaskRunner, drain: Drain
) -> None:
    first = new_runner(proxy.url)
    started, runs = asyncio.Event(), []

    async def work() -> None:
        runs.append(1)
        started.set()
        if len(runs) == 1:
            await asyncio.Event().wait()

    first.task(work)
    runner.task(work)
    await runner.dispatch("work")
    await first.start(scheduler=False)
    await asyncio.wait_for(started.wait(), 10)
    proxy.swallow_replies(1, only="EVALSHA")
    await first.stop(within=0)
    await drain()
    assert len(runs) == 2


# ------------------------------------------------------------------------------------------------------- lease, results


async def test_a_task_whose_lease_another_took_is_cancelled_and_not_settled(
    new_runner: NewRunner, raw: Redis, look_at: LookAt
) -> None:
    worker = new_runner(lease=0.6)
    started, cancelled = asyncio.Event(), asyncio.Event()
    heard: list[str] = []

    @worker.on_error
    async def hear(error: BaseException) -> None:
        heard.append(type(error).__name__)

    @worker.task
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await work.dispatch()
    await worker.start()
    await asyncio.wait_for(started.wait(), 10)
    (place,) = (await look_at()).places.values()
    await raw.xclaim(f"{worker.settings.prefix}:{{default}}:lane:n", "workers", "thief", 0, [place[1:]])
    await asyncio.wait_for(cancelled.wait(), 10)
    await until(lambda: heard == ["LeaseLost"])
    assert (await look_at()).pending == {place: ("thief", 2)}


async def test_a_task_that_lost_its_lease_while_it_waited_for_a_thread_is_not_started(
    new_runner: NewRunner, raw: Redis, look_at: LookAt
) -> None:
    worker = new_runner(lease=0.6, threads=1)
    gate, started, runs = threading.Event(), threading.Event(), []
    lost = []
    worker.events.subscribe(lambda event: lost.append(event) if getattr(event, "what", "") == "lost" else None)

    @worker.task
    async def lets_more_in_than_there_are_threads() -> None: ...

    @worker.task
    def work(what: str) -> None:
        runs.append(what)
        started.set()
        gate.wait(10)

    await work.dispatch("first")
    await work.dispatch("second")
    await worker.start()
    await until(started.is_set)

    async def both_are_held() -> bool:
        return len((await look_at()).pending) == 2

    await until(both_are_held)
    second = sorted((await look_at()).pending)[1]
    await raw.xclaim(f"{worker.settings.prefix}:{{default}}:lane:n", "workers", "thief", 0, [second[1:]])
    await until(lambda: lost)
    gate.set()
    assert worker.worker is not None
    await until(lambda: worker.worker is not None and worker.worker.running == 0)
    await let_pass(raw, 0.1)
    assert runs == ["first"]


async def test_a_result_is_heard_of_although_the_subscription_was_cut(
    far: TaskRunner, proxy: FaultProxy, runner: TaskRunner
) -> None:
    @runner.task(result_ttl=60)
    async def work() -> int:
        return 7

    handle = await far.named("work", result_ttl=60).dispatch()
    waiting = asyncio.create_task(handle.result(timeout=20))
    await until(lambda: proxy.connections == 2)
    proxy.refuse()
    proxy.cut()
    await runner.start()
    assert await runner.handle(handle.task_id).result(timeout=10) == 7
    proxy.accept()
    assert await waiting == 7


async def test_whoever_gave_up_waiting_while_nothing_passed_can_wait_again(
    far: TaskRunner, proxy: FaultProxy, runner: TaskRunner
) -> None:
    @runner.task(result_ttl=60)
    async def work() -> int:
        return 7

    handle = await far.named("work", result_ttl=60).dispatch()
    proxy.blackhole()
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0.3)
    proxy.heal()
    await runner.start()
    assert await handle.result(timeout=10) == 7
