"""Something blocks the event loop: it is told who, where, once; and a process that stood still as a whole is no blockage."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firetime import LoopBlocked
from firetime.values.events import Event, Trouble, WorkerEvent
from firetime.worker.watchdog import Blockage, look_every_s
from tests.kit.waiting import until
from tests.story.stage import let_pass

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.faults.crew import Crew
    from tests.story.stage import NewRunner

WARNING_S = 0.4
LEASE_S = 1.0
SHORT: dict[str, Any] = {"lease": LEASE_S, "sweep": 0.2}


class Heard:
    """What a runner tells of its event loop."""

    def __init__(self, runner: TaskRunner) -> None:
        self.blocked: list[LoopBlocked] = []
        self.over: list[str] = []
        runner.events.subscribe(self._hear, every_task=False)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Trouble) and isinstance(event.error, LoopBlocked):
            self.blocked.append(event.error)
        if isinstance(event, WorkerEvent) and event.what == "unblocked":
            self.over.append(event.detail)


async def test_the_task_that_blocks_is_named_with_where_it_stands_while_it_does_and_once(new_runner: NewRunner) -> None:
    runner = new_runner(block_warning=WARNING_S)
    heard = Heard(runner)
    seen: list[list[LoopBlocked]] = []

    @runner.task
    async def compute_all() -> None:
        late = time.monotonic() + 30
        while not heard.blocked and time.monotonic() < late:
            time.sleep(0.01)  # that is the point
        time.sleep(2 * WARNING_S)
        seen.append(list(heard.blocked))

    for _ in range(2):
        handle = await compute_all.dispatch()
        await runner.start()
        await until(lambda: heard.over, timeout=40)
        (error,) = heard.blocked
        assert seen.pop() == [error], "it was told while it lasted"
        assert (error.task, error.task_id, error.kind) == ("compute_all", handle.task_id, "loop")
        assert error.blocked_s >= WARNING_S
        assert "in compute_all" in error.stack
        assert f"task 'compute_all' ({handle.task_id}) has blocked the event loop" in str(error)
        assert "compute_all" in heard.over[0]
        await runner.stop()
        heard.blocked.clear()
        heard.over.clear()


async def test_what_is_no_task_is_told_as_well(new_runner: NewRunner) -> None:
    runner = new_runner(block_warning=WARNING_S)
    heard = Heard(runner)
    await runner.start()

    def step_of_a_library() -> None:
        late = time.monotonic() + 30
        while not heard.blocked and time.monotonic() < late:
            time.sleep(0.01)

    asyncio.get_running_loop().call_soon(step_of_a_library)
    await until(lambda: heard.over, timeout=40)
    (error,) = heard.blocked
    assert error.task == ""
    assert "in step_of_a_library" in error.stack


@pytest.mark.usefixtures("server")
async def test_a_frozen_process_is_not_taken_for_a_blocked_one(crew: Crew, runner: TaskRunner, raw: Redis) -> None:
    worker = crew.start(block_warning=WARNING_S)
    await runner.dispatch("hold", "a")
    await crew.until("started")
    for _ in range(3):
        worker.freeze()
        await let_pass(raw, 4 * WARNING_S)
        worker.thaw()
        await runner.dispatch("note", "thawed")
        await crew.until("ran", "thawed")
    assert "LoopBlocked" not in {line.tag for line in crew.lines("trouble")}
    assert "has blocked the event loop" not in worker.printed
    crew.let_go("a")
    await crew.until("ended", "a")


async def test_a_loop_blocked_for_four_leases_loses_no_lease_of_its_own_or_of_a_neighbour(
    crew: Crew, runner: TaskRunner
) -> None:
    first, second = crew.start(**SHORT), crew.start(**SHORT)
    # as many as both can take, so that each has some
    await runner.dispatch_many(runner.named("hold").message(f"{number}") for number in range(8))
    await crew.until("started", times=8)
    await runner.dispatch("block", "blocks", 4 * LEASE_S)
    (blocked,) = await crew.until("started", "blocks")
    await crew.until("ended", "blocks", timeout=60)
    for number in range(8):
        crew.let_go(f"{number}")
    await crew.until("ended", times=9, timeout=40)
    assert len(crew.lines("started")) == 9
    assert crew.lines("lost") + crew.lines("refused") == []
    assert "LoopBlocked" in {line.tag for line in await crew.until("trouble")}
    (named,) = [each for each in (first, second) if each.pid == blocked.pid]
    assert "task 'block' (" in named.printed
    assert 'program.py", line' in named.printed


@given(
    st.lists(st.tuples(st.floats(0.01, 5.0), st.sampled_from(["both", "loop stands", "all stand"])), max_size=60),
    st.floats(0.2, 5.0),
)
def test_only_time_in_which_the_watchdog_ran_counts(steps: list[tuple[float, str]], warn_s: float) -> None:
    """However long everything stands still together, that alone is never told; a loop that stands alone always is."""
    blockage, every_s = Blockage(warn_s), look_every_s(warn_s)
    now = turned = 100.0
    blockage.look(now, turned)
    for length, what in steps:
        if what == "all stand":
            now += length + 10 * warn_s
            told = blockage.look(now, turned)
            assert not told or blockage.lasted_s >= warn_s
        elif what == "both":
            now += min(length, every_s)
            turned = now
            assert not blockage.look(now, turned)
        else:
            stood = 0
            while not blockage.told:
                now += every_s
                stood += 1
                blockage.look(now, turned)
                assert stood <= 8, "told in time"
    now += 100 * warn_s
    turned = now - 0.01
    assert not blockage.look(now, turned)
