"""Nobody sleeps past an earlier head, nobody asks without a pause, nobody starts anything early."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from firetime import CancelAnswer, current_task
from tests.kit.waiting import until
from tests.story.stage import server_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis

    from firetime import TaskRunner
    from firetime.store.connect import Server
    from tests.kit.servers import ServerProcess
    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("valkey")

LATE_MS = 3000
"""What a busy machine may be late by; who sleeps without hearing anything is late by 5 s."""


@pytest.fixture
async def sleeper(new_runner: NewRunner) -> TaskRunner:
    """It leads, and asks by itself every 5 s only."""
    runner = new_runner(leader_lease=60)
    runner.task(name="note")(note)
    return runner


started: list[tuple[int, int]] = []
"""Number and lateness in ms of what has started, by the clock of this machine, which is the server's."""


async def note(number: int) -> None:
    import time

    started.append((number, time.time_ns() // 1_000_000 - (current_task().fire_ms or 0)))


@pytest.fixture(autouse=True)
def nothing_started() -> None:
    started.clear()


async def leads(runner: TaskRunner) -> TaskRunner:
    await runner.start()
    await until(lambda: runner.worker is not None and runner.worker.leads)
    return runner


def late_ms() -> int:
    """The worst, of tasks none of which was early."""
    found = [late for _, late in started]
    assert min(found) >= 0
    return max(found)


async def test_nothing_starts_early_and_everything_on_time(sleeper: TaskRunner) -> None:
    await leads(sleeper)
    for number in range(200):
        await sleeper.named("note", delay=0.05 + number * 0.002).dispatch(number)
    await until(lambda: len(started) == 200)
    assert late_ms() < LATE_MS


@pytest.mark.parametrize("delay", [0.001, 0.2])
async def test_an_earlier_head_is_heard_of_by_one_who_sleeps(sleeper: TaskRunner, delay: float) -> None:
    await leads(sleeper)
    await sleeper.named("note", delay=3600).dispatch(0)
    for number in range(1, 20):
        await sleeper.named("note", delay=delay).dispatch(number)
        await until(lambda: len(started) == number)  # noqa: B023 - it is awaited here
    assert late_ms() < LATE_MS


async def test_an_earlier_head_that_arrives_while_another_is_promoted_is_not_lost(sleeper: TaskRunner) -> None:
    await leads(sleeper)
    for round_ in range(25):
        sends = [sleeper.named("note", delay=0.02 - number / 1000).dispatch(number) for number in range(20)]
        await asyncio.gather(*sends, sleeper.named("note", delay=3600).dispatch(0))
        await until(lambda: len(started) == 20 * (round_ + 1))  # noqa: B023 - it is awaited here
    assert late_ms() < LATE_MS


async def test_news_that_overtakes_an_answer_is_not_lost(sleeper: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    from firetime.store.connect import Server

    original, held = Server.run, asyncio.Event()

    async def slow(self: Server, name: str, *args: Any, **kwargs: Any) -> Any:
        reply = await original(self, name, *args, **kwargs)
        if name == "lead" and armed:
            armed.clear()
            # the script has run, and said that nothing is due; before its answer is read, something is
            await sleeper.named("note", delay=0.2).dispatch(1)
            await until(lambda: schedule.head.at_ms is not None)
            held.set()
        return reply

    armed: list[int] = []
    await leads(sleeper)
    assert sleeper.worker is not None
    schedule = sleeper.worker._scheduler.schedules["default"]
    monkeypatch.setattr(Server, "run", slow)
    armed.append(1)
    schedule._lead_at = 0.0
    schedule._stir.notify()
    await held.wait()
    await until(lambda: started, timeout=4)
    assert late_ms() < LATE_MS


async def test_when_the_head_is_cancelled_the_next_one_comes_at_its_own_time(sleeper: TaskRunner) -> None:
    await leads(sleeper)
    head = await sleeper.named("note", delay=0.3).dispatch(0)
    await sleeper.named("note", delay=0.6).dispatch(1)
    assert await head.cancel() == CancelAnswer.CANCELLED
    await until(lambda: started)
    assert [number for number, _ in started] == [1]
    assert late_ms() < LATE_MS


async def test_a_head_that_is_moved_forward_or_back_comes_when_it_should(sleeper: TaskRunner, raw: Redis) -> None:
    await leads(sleeper)
    sooner = await sleeper.named("note", delay=3600).dispatch(0)
    later = await sleeper.named("note", delay=0.3).dispatch(1)
    await later.reschedule(0.8)
    asked_ms = await server_ms(raw)
    await sooner.reschedule(0.1)
    await until(lambda: len(started) == 2)
    assert [number for number, _ in started] == [0, 1]
    assert late_ms() < LATE_MS
    assert await server_ms(raw) >= asked_ms + 700
    now = await sleeper.named("note", delay=3600).dispatch(2)
    await now.run_now()
    await until(lambda: len(started) == 3, timeout=4)


# ------------------------------------------------------------------------------------------- clocks, and asking in vain


async def calls_of(raw: Redis, script_calls: Callable[[], Awaitable[object]]) -> int:
    """How many script calls there were meanwhile."""
    before = (await raw.info("commandstats")).get("cmdstat_evalsha", {}).get("calls", 0)
    await script_calls()
    return int((await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]) - int(before)


async def test_when_the_servers_clock_is_set_back_nothing_is_early_and_nobody_asks_without_a_pause(
    new_runner: NewRunner, raw: Redis
) -> None:
    runner = new_runner(leader_lease=60)
    seen = []

    @runner.task
    async def see() -> None:
        seen.append((await server_ms(raw)) + runner.clock_shift.us // 1000 - (current_task().fire_ms or 0))

    await leads(runner)
    await see.dispatch_delayed(0.3)
    runner.clock_shift.us -= 700_000

    async def it_came() -> None:
        await until(lambda: seen)

    assert await calls_of(raw, it_came) < 60
    assert seen[0] >= 0


@pytest.mark.parametrize("lease_s", [0.6, 600])
async def test_when_the_servers_clock_is_set_forward_it_comes_when_somebody_asks(
    new_runner: NewRunner, lease_s: float
) -> None:
    runner = new_runner(leader_lease=lease_s)
    seen = []

    @runner.task
    async def see() -> None:
        seen.append(1)

    await leads(runner)
    await see.dispatch_delayed(3600)
    runner.clock_shift.us += 3_600_000_000
    await until(lambda: seen, timeout=9)  # nobody goes longer than 5 s without asking


async def test_a_leader_whose_lease_was_deleted_does_not_ask_without_a_pause(
    sleeper: TaskRunner, raw: Redis, prefix: str
) -> None:
    await leads(sleeper)
    await sleeper.named("note", delay=0.3).dispatch(0)
    await raw.delete(f"{prefix}:{{default}}:leader")

    async def it_came() -> None:
        await until(lambda: started)

    assert await calls_of(raw, it_came) < 60
    assert late_ms() < LATE_MS


@pytest.mark.one_server  # on a cluster each queue has lines of its own
async def test_an_idle_runner_sends_two_commands_a_second_and_one_for_each_further_queue(
    valkey: ServerProcess, new_runner: NewRunner, prefix: str, raw: Redis
) -> None:
    one = new_runner(prefix=f"{prefix}.one")
    five = new_runner(prefix=f"{prefix}.five", queues=tuple("abcde"))
    for each in (one, five):
        each.task(name="note")(note)
        await leads(each)
    sent: Counter[str] = Counter()
    seconds = 6
    async with raw.monitor() as heard:
        try:
            async with asyncio.timeout(seconds):
                async for command in heard.listen():
                    if command["client_type"] == "lua" or command["command"].split()[0] in ("SCRIPT", "INFO", "CLIENT"):
                        continue  # what a script does, and what a new connection begins with
                    sent["five" if f"{prefix}.five" in command["command"] else "one"] += 1
        except TimeoutError:
            pass
    # one more each for the first renewal of leases, which asks once whether there is something to renew
    assert 0 < sent["one"] <= 2 * seconds + 1
    assert 0 < sent["five"] <= (2 + 4) * seconds + 5
