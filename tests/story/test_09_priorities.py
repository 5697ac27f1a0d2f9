"""Each queue has three lanes; the high one goes first, and the others still get their share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from firetime import Fixed
from tests.kit.waiting import until

if TYPE_CHECKING:
    from firetime import TaskRunner
    from firetime.values.states import Priority
    from tests.story.stage import Drain, NewRunner

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def narrow(new_runner: NewRunner) -> TaskRunner:
    """A runner that runs one task at a time."""
    return new_runner(concurrency=1)


async def test_the_high_ones_go_first_whenever_they_were_sent(narrow: TaskRunner, drain: Drain) -> None:
    seen = []

    @narrow.task
    async def see(priority: str, number: int) -> None:
        seen.append((priority, number))

    priorities: tuple[Priority, ...] = ("low", "normal", "high")
    for number in range(2):
        for priority in priorities:
            await see.options(priority=priority).dispatch(priority, number)
    await drain(narrow)
    assert seen == [("high", 0), ("high", 1), ("normal", 0), ("normal", 1), ("low", 0), ("low", 1)]


async def test_a_task_may_have_a_priority_of_its_own(runner: TaskRunner) -> None:
    @runner.task(priority="low")
    async def see() -> None: ...

    await see.dispatch()
    await see.options(priority="high").dispatch()
    assert (await runner.stats()).by_priority == {"high": 1, "normal": 0, "low": 1}


@pytest.mark.parametrize("patient", ["normal", "low"])
@pytest.mark.parametrize("rest", ["alone", "together"])
async def test_behind_a_flood_of_high_ones_the_others_get_their_share(
    narrow: TaskRunner, drain: Drain, patient: Priority, rest: str
) -> None:
    seen = []

    @narrow.task
    async def see(priority: str) -> None:
        seen.append(priority)

    lanes: tuple[Priority, ...] = ("high", patient) if rest == "alone" else ("high", "normal", "low")
    messages = [see.options(priority=lane).message(lane) for lane in lanes for _ in range(200)]
    await narrow.dispatch_many(messages)
    await drain(narrow)
    assert seen[:100].count(patient) >= 5
    assert seen[:100].count("high") >= 75


async def test_priority_is_kept_through_a_delay(runner: TaskRunner) -> None:
    @runner.task
    async def see() -> None: ...

    await see.options(priority="high").dispatch_delayed(0.05)
    await see.options(priority="low").dispatch_delayed(0.05)
    await runner.start(workers=False)

    async def promoted() -> bool:
        return (await runner.stats()).by_priority == {"high": 1, "normal": 0, "low": 1}

    await until(promoted)


@pytest.mark.parametrize("pause", [0, 0.05])
async def test_priority_is_kept_through_a_retry(narrow: TaskRunner, new_runner: NewRunner, pause: float) -> None:
    failed = asyncio.Event()

    @narrow.task(priority="high", backoff=Fixed(pause))
    async def flaky() -> None:
        failed.set()
        raise ValueError

    await flaky.dispatch()
    await narrow.start()
    await asyncio.wait_for(failed.wait(), 10)
    await narrow.stop()
    scheduler = new_runner()
    await scheduler.start(workers=False)

    async def waits_again() -> bool:
        return (await narrow.stats()).by_priority["high"] == 1

    await until(waits_again)
    assert (await narrow.stats()).by_priority == {"high": 1, "normal": 0, "low": 0}
