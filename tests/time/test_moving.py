"""A delayed message is moved, run now or taken back; every answer is true, also of two that are asked at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from firetime import CancelAnswer, Fixed, InvalidOption, Status, TaskAlreadyDispatched
from firetime.testing import VirtualClock
from firetime.values.states import RescheduleAnswer
from tests.kit.waiting import until

if TYPE_CHECKING:
    from firetime import Handle, TaskRunner
    from tests.story.stage import Drain

pytestmark = pytest.mark.usefixtures("server")


async def fire_ms(handle: Handle[object]) -> int:
    found = (await handle.look()).fire_ms
    assert found is not None
    return found


async def test_a_delayed_one_moves_in_both_directions_and_to_an_instant(runner: TaskRunner) -> None:
    @runner.task
    async def remind() -> None: ...

    handle = await remind.dispatch_delayed(3600)
    before = await fire_ms(handle)
    assert await handle.reschedule(timedelta(hours=2)) == RescheduleAnswer.RESCHEDULED
    assert 3_600_000 <= await fire_ms(handle) - before < 3_660_000
    assert await handle.reschedule(60) == RescheduleAnswer.RESCHEDULED
    assert await fire_ms(handle) < before
    when = datetime(2199, 12, 31, 23, 59, 59, 1000, tzinfo=UTC)
    assert await handle.reschedule(when) == RescheduleAnswer.RESCHEDULED
    assert await fire_ms(handle) == when.timestamp() * 1000
    for wrong in (-1, datetime(2030, 1, 1), datetime(2201, 1, 1, tzinfo=UTC), float("nan")):  # noqa: DTZ001
        with pytest.raises(InvalidOption, match="when="):
            await handle.reschedule(wrong)


async def test_every_state_has_its_own_true_answer(runner: TaskRunner, drain: Drain) -> None:
    release = asyncio.Event()

    @runner.task(result_ttl=60)
    async def wait() -> None:
        await release.wait()

    @runner.task(max_retry=0)
    async def fail() -> None:
        raise ValueError

    delayed, ready = await wait.dispatch_delayed(3600), await wait.dispatch()
    assert await ready.run_now() == RescheduleAnswer.READY
    assert await ready.reschedule(60) == RescheduleAnswer.READY
    dead = await fail.dispatch()
    await runner.start()
    running = ready

    async def runs() -> bool:
        return await running.status() == Status.RUNNING

    await until(runs)
    assert await running.run_now() == RescheduleAnswer.RUNNING
    assert await running.cancel() == CancelAnswer.REQUESTED
    await drain()
    assert await running.run_now() == RescheduleAnswer.FINISHED
    assert await running.cancel() == CancelAnswer.FINISHED
    assert await dead.run_now() == RescheduleAnswer.FINISHED
    assert await dead.cancel() == CancelAnswer.FINISHED
    release.set()
    done = await wait.dispatch()
    await drain()
    assert await done.reschedule(5) == RescheduleAnswer.FINISHED
    assert await delayed.cancel() == CancelAnswer.CANCELLED
    assert await delayed.run_now() == RescheduleAnswer.FINISHED
    unknown = runner.handle("nobody")
    assert await unknown.run_now() == RescheduleAnswer.NOT_FOUND
    assert await unknown.cancel() == CancelAnswer.NOT_FOUND


async def test_of_two_at_once_exactly_one_wins(runner: TaskRunner) -> None:
    @runner.task
    async def remind() -> None: ...

    for _ in range(20):
        handle = await remind.dispatch_delayed(3600)
        now = await asyncio.gather(*(handle.run_now() for _ in range(5)))
        assert sorted(now) == [*[RescheduleAnswer.READY] * 4, RescheduleAnswer.RESCHEDULED]
        taken_back = await asyncio.gather(*(handle.cancel() for _ in range(5)))
        assert sorted(taken_back) == [CancelAnswer.CANCELLED, *[CancelAnswer.FINISHED] * 4]
        handle = await remind.dispatch_delayed(3600)
        cancelled, moved = await asyncio.gather(handle.cancel(), handle.reschedule(60))
        assert cancelled == CancelAnswer.CANCELLED
        assert moved in (RescheduleAnswer.RESCHEDULED, RescheduleAnswer.FINISHED)
        assert await handle.status() == Status.CANCELLED
    assert (await runner.stats()).ready == 0


async def test_whatever_is_asked_while_it_becomes_due_it_runs_once_or_is_cancelled(runner: TaskRunner) -> None:
    ran: list[int] = []

    @runner.task
    async def note(number: int) -> None:
        ran.append(number)

    await runner.start()
    handles = [await note.options(delay=0.05 + number / 1000).dispatch(number) for number in range(150)]
    answers = await asyncio.gather(*(ask(handle, number) for number, handle in enumerate(handles)))
    cancelled = {number for number, answer in enumerate(answers) if answer == CancelAnswer.CANCELLED}
    asked_to_stop = {number for number, answer in enumerate(answers) if answer == CancelAnswer.REQUESTED}
    # one that is asked to stop before its first step never takes one
    await until(lambda: set(range(150)) - cancelled - asked_to_stop <= set(ran))
    await runner.stop()
    assert len(set(ran)) == len(ran)
    assert set(range(150)) - cancelled - asked_to_stop <= set(ran)
    assert not cancelled & set(ran)


async def ask(handle: Handle[object], number: int) -> object:
    """A third each: cancelled, moved a little, run now; at about the time when it is due anyway."""
    await asyncio.sleep(0.05 + number / 1000)
    match number % 3:
        case 0:
            return await handle.cancel()
        case 1:
            return await handle.reschedule(0.01)
        case _:
            return await handle.run_now()


async def test_one_that_waits_for_its_retry_is_run_now_with_its_failures_counted(
    runner: TaskRunner, drain: Drain
) -> None:
    attempts = []

    @runner.task(backoff=Fixed(3600))
    async def flaky() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError

    handle = await flaky.dispatch()
    await drain()
    assert (await handle.look()).state.failures == 1
    assert await handle.run_now() == RescheduleAnswer.RESCHEDULED
    await drain()
    assert len(attempts) == 2


async def test_a_unique_key_is_held_until_the_new_fire_time(runner: TaskRunner, clock: VirtualClock) -> None:
    @runner.task(unique_for=60)
    async def once() -> None: ...

    handle = await once.dispatch_delayed(3600)
    await handle.reschedule(7200)
    await clock.advance(hours=1, minutes=30)
    with pytest.raises(TaskAlreadyDispatched):
        await once.dispatch()
    await clock.advance(hours=1)
    await once.dispatch()


async def test_what_was_run_now_is_not_late(runner: TaskRunner, drain: Drain) -> None:
    @runner.task
    async def remind() -> None: ...

    handle = await remind.dispatch_delayed(3600)
    await handle.reschedule(datetime(2001, 1, 1, tzinfo=UTC))
    await drain()
    late_ms = (await runner.stats()).mean_late_ms
    assert late_ms is None or late_ms < 60_000
