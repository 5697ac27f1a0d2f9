"""Processes fork, are killed, frozen, thawed and asked to stop; no task is lost by it, and none is settled twice."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from firetime import Status
from tests.kit.waiting import until
from tests.story.stage import let_pass

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import Handle, TaskRunner
    from tests.conftest import StartWorker
    from tests.faults.crew import Crew
    from tests.story.stage import Drain, LookAt

LEASE_S = 1.0
SHORT: dict[str, Any] = {"lease": LEASE_S, "sweep": 0.2, "leader_lease": 0.6}


@pytest.fixture
def served(crew: Crew, runner: TaskRunner) -> Served:
    return Served(crew, runner)


class Served:
    """The workers of a queue as its register knows them."""

    def __init__(self, crew: Crew, runner: TaskRunner) -> None:
        self.crew = crew
        self.runner = runner

    async def by(self, count: int) -> None:
        """Until so many have said that they are there."""

        async def all_are_there() -> bool:
            return len(await self.runner.overview.workers("default")) >= count

        await until(all_are_there, timeout=20)


async def ended(handle: Handle[object]) -> None:
    async def is_done() -> bool:
        return await handle.status() in {Status.UNKNOWN, Status.DONE}

    await until(is_done, timeout=20)


# ------------------------------------------------------------------------------------------------------------- killing


@pytest.mark.usefixtures("server")
async def test_what_a_killed_worker_ran_is_run_again_by_another(crew: Crew, runner: TaskRunner) -> None:
    handle = await runner.named("hold", result_ttl=60).dispatch("a")
    first = crew.start(**SHORT)
    await crew.until("started")
    crew.start(**SHORT)
    first.kill()
    await crew.until("started", times=2)
    crew.let_go("a")
    await handle.result(timeout=20)
    one, other = crew.lines("started")
    assert (one.attempt, one.crashes, one.failures, one.fence) == (1, 0, 0, 1)
    assert (other.attempt, other.crashes, other.failures, other.fence) == (2, 1, 0, 2)
    assert [line.pid for line in crew.lines("ended")] == [other.pid]


async def test_it_is_run_again_within_a_lease_and_a_sweep(crew: Crew, runner: TaskRunner, served: Served) -> None:
    await runner.dispatch("hold", "a")
    first = crew.start(lease=2, sweep=0.5)
    await crew.until("started")
    crew.start(lease=2, sweep=0.5)
    await served.by(2)
    clock = asyncio.get_running_loop().time
    first.kill()
    killed = clock()
    await crew.until("started", times=2)
    assert clock() - killed < 2 + 0.5 + 0.5  # and a moment on a busy machine
    crew.let_go("a")
    await crew.until("ended")


async def test_a_killed_leader_is_replaced_and_what_is_due_runs_on_time_or_a_second_late(
    crew: Crew, runner: TaskRunner, served: Served, raw: Redis
) -> None:
    first = crew.start(lease=3)
    await served.by(1)

    async def it_leads() -> bool:
        return bool((await runner.stats()).leader)

    await until(it_leads)
    crew.start(lease=3)
    await served.by(2)
    handle = await runner.named("note", delay=0.5).dispatch("due")
    fire_ms = (await handle.look()).fire_ms
    first.kill()
    await crew.until("ran")
    assert fire_ms is not None
    assert (await runner.stats()).server_ms - fire_ms < 1000 + 500


# ------------------------------------------------------------------------------------------------------------ freezing


async def test_a_worker_frozen_past_its_lease_is_refused_and_learns_it_when_it_is_thawed(
    crew: Crew, runner: TaskRunner, served: Served, look_at: LookAt
) -> None:
    handle = await runner.named("hold", result_ttl=60).dispatch("a")
    frozen = crew.start(**SHORT)
    await crew.until("started")
    other = crew.start(**SHORT)
    await served.by(2)
    frozen.freeze()
    await crew.until("started", times=2)
    crew.let_go("a")
    assert await handle.result(timeout=20) == str(other.pid)
    frozen.thaw()
    # its own task ends as well, or is cancelled first, as the renewal that comes first tells it; neither is settled
    learned = await until(lambda: crew.lines("lost") + crew.lines("refused"))
    assert learned[0].pid == frozen.pid
    await runner.dispatch("note", "after")
    await crew.until("ran")
    assert await handle.result() == str(other.pid)
    assert [(task.task, task.runs) for task in (await runner.stats()).tasks] == [("hold", 1), ("note", 1)]


async def test_a_worker_frozen_for_less_than_its_lease_goes_on_as_if_nothing_had_been(
    crew: Crew, runner: TaskRunner, raw: Redis, served: Served
) -> None:
    handle = await runner.dispatch("hold", "a")
    frozen = crew.start(lease=3, sweep=0.2)
    await crew.until("started")
    crew.start(lease=3, sweep=0.2)
    await served.by(2)
    frozen.freeze()
    await let_pass(raw, 1)
    frozen.thaw()
    await let_pass(raw, 2.5)
    crew.let_go("a")
    await ended(handle)
    assert len(crew.lines("started")) == 1


async def test_a_frozen_leader_keeps_nobody_waiting_and_moves_nothing_twice(
    crew: Crew, runner: TaskRunner, served: Served
) -> None:
    frozen = crew.start(**SHORT)

    async def it_leads() -> bool:
        return bool((await runner.stats()).leader)

    await until(it_leads)
    crew.start(**SHORT)
    await served.by(2)
    await runner.dispatch_many(runner.named("note", delay=0.3).message(str(number)) for number in range(200))
    frozen.freeze()
    await crew.until("ran", times=200)
    frozen.thaw()
    await runner.dispatch("note", "after")
    await crew.until("ran", "after")
    assert sorted(line.tag for line in crew.lines("ran")) == sorted([*map(str, range(200)), "after"])
    assert (await runner.stats()).leader_epoch == 2


# --------------------------------------------------------------------------------------------------- the lease is kept


async def test_a_blocked_event_loop_keeps_its_leases(
    crew: Crew, runner: TaskRunner, served: Served, look_at: LookAt
) -> None:
    first = crew.start(**SHORT)
    await served.by(1)
    await runner.dispatch("hold", "beside")
    await crew.until("started", "beside")
    await runner.dispatch("block", "a", 2.5 * LEASE_S)
    await crew.until("started", "a")
    crew.start(**SHORT)
    await crew.until("ended", "a")
    crew.let_go("beside")
    await crew.until("ended", "beside")
    assert {line.pid for line in crew.lines("started")} == {first.pid}
    assert [line.tag for line in crew.lines("started")] == ["beside", "a"]
    assert crew.lines("lost") + crew.lines("refused") == []


async def test_a_blocked_event_loop_keeps_what_a_claim_in_flight_has_given_it(crew: Crew, runner: TaskRunner) -> None:
    load = "x" * 400_000  # three of them are all that one claim gives, so that the next is on its way at once
    messages = [runner.named("block").message("block", 4 * LEASE_S, load)]
    messages += [runner.named("note").message(str(number), load) for number in range(8)]
    await runner.dispatch_many(messages)
    crew.start(**SHORT)
    await crew.until("started", "block")
    crew.start(**SHORT)
    ran = await crew.until("ran", times=8)
    await crew.until("ended", "block")
    assert [line.crashes for line in ran] == [0] * 8
    assert sorted(line.tag for line in ran) == [str(number) for number in range(8)]


async def test_a_worker_whose_event_loop_was_closed_under_it_lets_its_leases_run_out(
    runner: TaskRunner, start_worker: StartWorker, url: str, prefix: str, crew: Crew
) -> None:
    careless = """
        import asyncio, sys, time
        from firetime import TaskRunner

        async def main() -> None:
            runner = TaskRunner(sys.argv[1], prefix=sys.argv[2], lease=1, sweep=0.2)
            started = asyncio.Event()

            @runner.task
            async def hold(tag: str) -> None:
                started.set()
                await asyncio.Event().wait()

            await runner.start()
            await started.wait()

        asyncio.run(main())
        print("over", flush=True)
        time.sleep(60)
    """
    await runner.dispatch("hold", "a")
    worker = start_worker(careless, url, prefix)
    await until(lambda: "over" in worker.printed, timeout=20)
    crew.start(**SHORT)
    await crew.until("started", "a")
    crew.let_go("a")
    await crew.until("ended", "a")


# ------------------------------------------------------------------------------------------------------------ stopping


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_worker_that_is_asked_to_stop_finishes_what_runs(
    crew: Crew, runner: TaskRunner, served: Served, look_at: LookAt, number: signal.Signals
) -> None:
    worker = crew.start()
    await served.by(1)
    for tag, task in (("coroutine", "hold"), ("thread", "hold_thread")):
        await runner.dispatch(task, tag)
    await crew.until("started", times=2)
    os.kill(worker.pid, number)

    async def it_claims_no_more() -> bool:
        await runner.dispatch("note", "late")
        return (await runner.stats()).ready > 1

    await until(it_claims_no_more)
    assert worker.running
    crew.let_go("coroutine")
    crew.let_go("thread")
    assert worker.wait(20) == 0
    assert len(crew.lines("ended")) == 2
    left = await look_at()
    assert (left.pending, left.consumers, left.state) == ({}, set(), {})


async def test_what_does_not_end_in_time_is_given_back_at_no_cost(
    crew: Crew, runner: TaskRunner, served: Served
) -> None:
    worker = crew.start(shutdown=0.2)
    await served.by(1)
    handles = [await runner.dispatch(task, task) for task in ("hold", "hold_thread")]
    await crew.until("started", times=2)
    worker.terminate()
    assert worker.wait(20) == 0
    for handle in handles:
        found = await handle.look()
        assert (found.status, found.crashes, found.state.failures) == (Status.READY, 0, 0)


async def test_a_second_signal_does_not_wait_for_what_runs(crew: Crew, runner: TaskRunner, served: Served) -> None:
    worker = crew.start(shutdown=60)
    await served.by(1)
    handle = await runner.dispatch("hold", "a")
    await crew.until("started")
    worker.terminate()

    async def it_stops() -> bool:
        await runner.dispatch("note", "late")
        return (await runner.stats()).ready > 1

    await until(it_stops)
    worker.terminate()
    assert worker.wait(20) == 0
    found = await handle.look()
    assert (found.status, found.crashes, found.state.failures) == (Status.READY, 0, 0)


# ------------------------------------------------------------------------------------------------------------- forking

PRELOADED = """
    import asyncio, os, sys, threading, time
    from firetime import TaskRunner

    runner = TaskRunner(sys.argv[1], prefix=sys.argv[2])

    @runner.task
    def see(who: str) -> None: ...

    def sockets() -> set[str]:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        inodes = {os.readlink(link)[8:-1] for link in links if os.path.exists(link) and "socket:" in os.readlink(link)}
        return inodes & {line.split()[9] for line in open("/proc/self/net/tcp").readlines()[1:]}

    def tell_sockets() -> None:
        # in one write: the children share this process's output
        os.write(1, f"sockets {' '.join(sockets())}\\n".encode())

    see.dispatch_sync("master")  # at import, as with gunicorn's preload
    asyncio.run(see.dispatch("master in a loop of its own"))
    busy = threading.Thread(target=lambda: [see.dispatch_sync("meanwhile") for _ in range(200)])
    busy.start()
    children = []
    for number in range(3):
        if child := os.fork():
            children.append(child)
            continue
        threads = [threading.Thread(target=see.dispatch_sync, args=(f"child {number}",)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(see.dispatch(f"child {number}"))
        tell_sockets()
        sys.exit(0)  # not os._exit: everything of it is taken down
    busy.join()
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    for _ in range(10):
        see.dispatch_sync("master")
    tell_sockets()
"""


@pytest.mark.usefixtures("server")
async def test_forked_children_share_neither_sockets_nor_numbers_with_their_parent(
    start_worker: StartWorker, runner: TaskRunner, drain: Drain, url: str, prefix: str, look_at: LookAt
) -> None:
    seen = []

    @runner.task
    def see(who: str) -> None:
        seen.append(who)

    master = start_worker(PRELOADED, url, prefix)
    assert await asyncio.to_thread(master.wait, 60) == 0
    senders = [key for key in (await look_at()).keys if key.startswith("call:")]
    await drain()
    expected = {"master": 11, "master in a loop of its own": 1, "meanwhile": 200}
    assert {who: seen.count(who) for who in seen} == expected | {f"child {number}": 11 for number in range(3)}
    # the loop of each, and as many threads of each as sent at the same time
    assert 2 + 3 * 2 <= len(senders) <= 3 + 3 * 11
    sockets = [set(line.split()[1:]) for line in master.printed.splitlines() if line.startswith("sockets")]
    assert len(sockets) == 4
    assert all(sockets)
    assert len(set.union(*sockets)) == sum(map(len, sockets))


async def test_two_event_loops_in_two_threads_share_one_runner(runner: TaskRunner, drain: Drain, url: str) -> None:
    seen = []

    @runner.task
    async def see(who: int, number: int) -> None:
        seen.append((who, number))

    def program(who: int) -> None:
        async def send() -> None:
            await asyncio.gather(*(see.dispatch(who, number) for number in range(300)))
            await runner.desk.aclose()

        asyncio.run(send())

    await asyncio.gather(*(asyncio.to_thread(program, who) for who in range(4)))
    await drain()
    assert sorted(seen) == [(who, number) for who in range(4) for number in range(300)]


async def test_a_program_that_starts_loop_after_loop_keeps_no_connection_of_those_that_are_over(
    start_worker: StartWorker, runner: TaskRunner, url: str, prefix: str
) -> None:
    loops = """
        import asyncio, os, sys
        from firetime import TaskRunner

        runner = TaskRunner(sys.argv[1], prefix=sys.argv[2])
        counts = []
        for number in range(20):
            asyncio.run(runner.dispatch("see", number))
            counts.append(len(os.listdir("/proc/self/fd")))
        print(max(counts[2:]) - counts[1])
    """
    program = start_worker(loops, url, prefix)
    assert await asyncio.to_thread(program.wait, 30) == 0
    assert program.printed.splitlines()[-1] == "0"
    assert (await runner.stats()).ready == 20
