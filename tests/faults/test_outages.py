"""The server is away, restarts, or nothing passes for a while; dispatches say so in time and workers bear it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from firetime import BrokerUnavailable, QueueError, Status, TaskRunner, current_task
from firetime.values.events import Event, TaskEvent
from tests.kit.clients import raw_client
from tests.kit.waiting import until
from tests.story.look import look
from tests.story.stage import ticking, unsound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from redis.asyncio import Redis

    from tests.conftest import StartServer
    from tests.faults.crew import Crew
    from tests.kit.proxy import FaultProxy
    from tests.kit.servers import ServerProcess
    from tests.story.stage import NewRunner

DEADLINE_S = 1.0
A_MOMENT_S = 0.6
"""What a busy machine may add."""


@pytest.fixture
async def own(start_server: StartServer) -> AsyncIterator[tuple[ServerProcess, TaskRunner]]:
    """A server of the test's own, and a runner that has talked to it."""
    server = start_server(append_only=True)
    runner = TaskRunner(server.url, dispatch_deadline=DEADLINE_S)
    await runner.dispatch("before")
    yield server, runner
    server.thaw()
    await runner.aclose()
    await asyncio.to_thread(runner.close)


# ------------------------------------------------------------------------------------------------- dispatching meanwhile


@pytest.mark.parametrize("how", ["gone", "frozen"])
async def test_a_dispatch_says_within_its_deadline_that_the_server_is_away_and_blocks_nobody(
    own: tuple[ServerProcess, TaskRunner], how: str
) -> None:
    server, runner = own
    await asyncio.to_thread(server.freeze if how == "frozen" else server.stop)
    async with ticking() as ticks:
        began = time.perf_counter()
        answers = await asyncio.gather(*(runner.dispatch("see", n) for n in range(200)), return_exceptions=True)
        took_s = time.perf_counter() - began
    assert {type(answer) for answer in answers} == {BrokerUnavailable}
    assert took_s < DEADLINE_S + A_MOMENT_S
    assert ticks.longest_s < DEADLINE_S / 2
    certain = [answer for answer in answers if isinstance(answer, BrokerUnavailable) and not answer.maybe_accepted]
    # one half went to a server that fell silent, and of those nobody knows; the others may not even have left
    assert len(certain) == 200 if how == "gone" else len(certain) <= 100


async def test_whoever_cancels_all_there_is_leaves_the_way_out_open(own: tuple[ServerProcess, TaskRunner]) -> None:
    _, runner = own
    for _ in range(3):
        call = asyncio.create_task(runner.dispatch("see"))
        await asyncio.sleep(0)  # the call has made its flight, which has not begun
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([call])
    async with asyncio.timeout(20):
        assert (await runner.dispatch("see")).task_id


async def test_who_dispatches_late_in_an_outage_tries_for_as_long_as_others(
    own: tuple[ServerProcess, TaskRunner],
) -> None:
    server, runner = own
    await asyncio.to_thread(server.freeze)
    early = asyncio.create_task(runner.dispatch("see"))
    await asyncio.sleep(0.6 * DEADLINE_S)
    late = asyncio.create_task(runner.dispatch("see"))
    await asyncio.wait([early])
    assert not late.done()
    await asyncio.to_thread(server.thaw)
    await asyncio.wait([late])
    assert isinstance(early.exception(), BrokerUnavailable)


async def test_a_call_that_is_cancelled_while_it_connects_leaves_no_half_connection_behind(
    start_server: StartServer, start_proxy: Callable[[str], FaultProxy]
) -> None:
    server = start_server(requirepass="secret")
    proxy = start_proxy(server.url)
    runner = TaskRunner(server.url.replace(str(urlsplit(server.url).port), str(urlsplit(proxy.url).port)))
    proxy.delay(0.3)
    for _ in range(3):
        call = asyncio.create_task(runner.handle("any").status())
        await until(lambda: proxy.connections > 0)
        call.cancel()
        await asyncio.wait([call])
    proxy.delay(0)
    assert await runner.handle("any").status() is Status.UNKNOWN
    await runner.aclose()


async def test_what_was_not_accepted_does_not_run_later_by_surprise(own: tuple[ServerProcess, TaskRunner]) -> None:
    server, runner = own
    await asyncio.to_thread(server.stop)
    with pytest.raises(BrokerUnavailable, match="nothing was accepted"):
        await runner.dispatch("see")
    server.start()
    assert (await runner.stats()).ready == 1  # what was sent before
    await runner.dispatch("see")
    assert (await runner.stats()).ready == 2


@pytest.mark.parametrize("how", ["gone", "frozen"])
async def test_a_thread_that_dispatches_meanwhile_hears_of_it_in_time(
    own: tuple[ServerProcess, TaskRunner], how: str
) -> None:
    server, runner = own
    await asyncio.to_thread(runner.dispatch_sync, "before")
    await asyncio.to_thread(server.freeze if how == "frozen" else server.stop)
    began = time.perf_counter()
    with pytest.raises(BrokerUnavailable):
        await asyncio.to_thread(runner.dispatch_sync, "see")
    assert time.perf_counter() - began < DEADLINE_S + A_MOMENT_S


async def test_a_dispatch_that_nothing_passes_for_ends_in_time_whether_or_not_it_had_a_connection(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str, runner: TaskRunner
) -> None:
    proxy = start_proxy(url)
    connected = new_runner(proxy.url, dispatch_deadline=DEADLINE_S)
    fresh = new_runner(proxy.url, dispatch_deadline=DEADLINE_S)
    await connected.dispatch("before")
    proxy.blackhole()
    async with ticking() as ticks:
        began = time.perf_counter()
        answers = await asyncio.gather(connected.dispatch("a"), fresh.dispatch("b"), return_exceptions=True)
        took_s = time.perf_counter() - began
    assert [getattr(answer, "maybe_accepted", None) for answer in answers] == [True, False]
    assert took_s < DEADLINE_S + A_MOMENT_S
    assert ticks.longest_s < DEADLINE_S / 2
    proxy.heal()
    assert (await runner.stats()).ready == 1


async def test_a_dispatch_waits_out_an_outage_that_is_shorter_than_its_deadline(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str, runner: TaskRunner
) -> None:
    proxy = start_proxy(url)
    far = new_runner(proxy.url)
    await far.dispatch("before")
    proxy.refuse()
    proxy.cut()
    dispatch = asyncio.create_task(far.dispatch("meanwhile"))
    await asyncio.sleep(0.3)  # the outage
    assert not dispatch.done()
    proxy.accept()
    await dispatch
    assert (await runner.stats()).ready == 2


async def test_whoever_dispatches_while_the_runner_is_closed_hears_of_it(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str
) -> None:
    proxy = start_proxy(url)
    far = new_runner(proxy.url, dispatch_deadline=30)
    await far.dispatch("before")
    proxy.blackhole()
    dispatches = [asyncio.create_task(far.dispatch("meanwhile")) for _ in range(3)]
    await asyncio.sleep(0.05)  # the first is on its way, the others wait for it
    dispatches.append(asyncio.create_task(far.dispatch("meanwhile")))
    await asyncio.sleep(0)
    await far.aclose()
    answers = await asyncio.wait_for(asyncio.gather(*dispatches, return_exceptions=True), 5)
    assert all(isinstance(answer, QueueError) for answer in answers)


async def test_after_a_restart_the_first_question_is_answered(own: tuple[ServerProcess, TaskRunner]) -> None:
    server, runner = own
    handle = await runner.dispatch("before")
    await asyncio.gather(*(handle.status() for _ in range(5)))  # several connections
    await asyncio.to_thread(server.restart)
    for _ in range(7):
        assert await handle.status() == Status.READY


# ----------------------------------------------------------------------------------------------------- working meanwhile


class Shift:
    """A worker in this process whose tasks run until they are let go."""

    def __init__(self, runner: TaskRunner) -> None:
        self.runner = runner
        self.finish = asyncio.Event()
        self.started: list[str] = []
        self.ended: list[str] = []
        self.alarms: list[Event] = []
        runner.events.subscribe(self._hear, every_task=False)
        runner.task(name="work")(self._work)

    async def _work(self, tag: str) -> None:
        self.started.append(f"{tag} {current_task().crashes}")
        if tag.startswith("long"):
            await self.finish.wait()
        self.ended.append(tag)

    def _hear(self, event: Event) -> None:
        if isinstance(event, TaskEvent) and event.what in {"lost", "refused"}:
            self.alarms.append(event)

    async def begin(self) -> None:
        """Five tasks run."""
        await self.runner.dispatch_many(self.runner.named("work").message(f"long {n}") for n in range(5))
        await self.runner.start()
        await until(lambda: len(self.started) == 5)

    async def is_over(self, expected: int) -> None:
        """All have ended, each after one start."""
        self.finish.set()
        await until(lambda: len(self.ended) >= expected, timeout=30)
        assert self.runner.worker is not None
        await asyncio.wait_for(self.runner.worker.until_idle(), 20)
        assert len(self.started) == len(self.ended) == expected
        assert {line.rpartition(" ")[2] for line in self.started} == {"0"}
        assert self.alarms == []
        await until(lambda: self.runner.worker is not None and self.runner.worker.healthy)


@pytest.mark.parametrize("how", ["kill", "restart"])
@pytest.mark.parametrize("kind", ["valkey9", "redis62"])
async def test_tasks_that_run_and_wait_outlive_a_restart_of_the_server(
    start_server: StartServer, kind: str, how: str
) -> None:
    server = start_server(kind, append_only=True)
    runner = TaskRunner(server.url)
    shift = Shift(runner)
    await shift.begin()
    await runner.pause()
    work = runner.named("work")
    await runner.dispatch_many(work.message(f"ready {n}") for n in range(20))
    await runner.dispatch_many(runner.named("work", delay=0.5).message(f"delayed {n}") for n in range(10))
    await asyncio.to_thread(server.kill if how == "kill" else server.stop)
    await asyncio.to_thread(server.start)
    await runner.resume()
    await shift.is_over(35)
    async with raw_client(server.url) as redis:
        left = await look(redis, runner.desk.keys("default"))
        assert (left.tasks, left.pending) == ({}, {})
        assert await unsound(redis, "firetime") == []
    await runner.aclose()


@pytest.mark.parametrize("how", ["cut", "refuse", "blackhole"])
async def test_a_worker_bears_an_outage_of_a_few_seconds(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str, runner: TaskRunner, how: str
) -> None:
    proxy = start_proxy(url)
    shift = Shift(new_runner(proxy.url))
    await shift.begin()
    if how == "blackhole":
        proxy.blackhole()
    else:
        if how == "refuse":
            proxy.refuse()
        proxy.cut()
    work = runner.named("work")
    await runner.dispatch_many(work.message(f"ready {n}") for n in range(20))
    await runner.dispatch_many(runner.named("work", delay=0.3).message(f"delayed {n}") for n in range(10))
    shift.finish.set()  # what runs ends meanwhile
    await asyncio.sleep(3 if how != "cut" else 0)  # the outage
    proxy.heal()
    await shift.is_over(35)


async def test_a_lease_that_ran_out_while_the_server_was_away_is_not_swept_at_once(start_server: StartServer) -> None:
    server = start_server(append_only=True)
    runner = TaskRunner(server.url, lease=1, sweep=0.1)
    shift = Shift(runner)
    await shift.begin()
    server.stop()
    await asyncio.sleep(1.5)  # longer than the lease
    server.start()
    await until(lambda: runner.worker is not None and runner.worker.healthy, timeout=20)
    await shift.is_over(5)
    await runner.aclose()


async def test_a_worker_that_stops_while_the_server_is_away_does_not_hang(start_server: StartServer) -> None:
    server = start_server()
    runner = TaskRunner(server.url)
    await Shift(runner).begin()
    server.stop()
    began = time.perf_counter()
    await runner.stop(within=0)
    assert time.perf_counter() - began < 15
    await runner.aclose()


async def test_flushing_everything_under_a_worker_does_not_end_it(
    new_runner: NewRunner, start_server: StartServer
) -> None:
    server = start_server()
    runner = TaskRunner(server.url, lease=1, sweep=0.2)
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    await runner.start()
    await see.dispatch(0)
    await until(lambda: seen)
    async with raw_client(server.url) as redis:
        await redis.flushall()
    for number in range(1, 4):
        await see.dispatch(number)
    await see.dispatch_delayed(0.1, 4)
    await until(lambda: len(seen) == 5)
    await runner.aclose()


async def test_a_subscription_that_is_cut_again_and_again_keeps_nobody_from_finding_lost_leases(
    crew: Crew, runner: TaskRunner, raw: Redis
) -> None:
    short = {"lease": 1.0, "sweep": 0.2}
    await runner.dispatch("hold", "a")
    victim = crew.start(None, **short)
    await crew.until("started")
    crew.start(None, **short)
    victim.kill()

    async def cut() -> None:
        while True:
            await raw.client_kill_filter(_type="pubsub")
            await asyncio.sleep(0.1)

    cutting = asyncio.create_task(cut())
    await crew.until("started", times=2)
    cutting.cancel()
    crew.let_go("a")
    await crew.until("ended")


async def test_after_an_outage_a_worker_with_plenty_to_do_is_well_again_and_finds_lost_leases(
    crew: Crew, start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str, runner: TaskRunner
) -> None:
    proxy = start_proxy(url)
    busy = new_runner(proxy.url, lease=1, sweep=0.2, concurrency=1)
    found, ran, enough = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @busy.task(name="hold")
    async def orphan(tag: str) -> None:
        found.set()

    @busy.task
    async def work() -> None:
        ran.set()
        if not enough.is_set():
            await runner.dispatch("work")  # there is always one more

    await runner.dispatch("hold", "a")
    victim = crew.start(lease=1, sweep=0.2)
    await crew.until("started")
    victim.kill()
    await runner.dispatch_many(runner.named("work").message() for _ in range(5))
    await busy.start()
    await ran.wait()
    proxy.cut()
    await asyncio.wait_for(found.wait(), 10)
    await until(lambda: busy.worker is not None and busy.worker.healthy)
    enough.set()
