"""A run that raises is tried again, after a pause, as often as its task allows; then it is a dead letter."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from firetime import (
    Backoff,
    Exponential,
    Fixed,
    Linear,
    Reclaim,
    Reject,
    Retry,
    Status,
    TaskMaxRetryExceeded,
    TaskRejected,
    current_task,
)
from tests.kit.waiting import until
from tests.story.stage import server_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.story.stage import Drain, NewRunner

pytestmark = pytest.mark.usefixtures("server")

AT_ONCE = Fixed(0)


async def test_a_failed_task_is_tried_again(runner: TaskRunner, drain: Drain) -> None:
    tries = []

    @runner.task(max_retry=2, backoff=AT_ONCE)
    async def flaky() -> None:
        tries.append(current_task().attempt)
        raise ValueError

    await flaky.dispatch()
    await drain()
    assert tries == [1, 2, 3]


async def test_a_task_that_succeeds_at_last_is_done(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(backoff=AT_ONCE, result_ttl=60)
    def flaky() -> int:
        if current_task().failures < 3:
            raise ValueError
        return current_task().attempt

    handle = await flaky.dispatch()
    await drain()
    assert await handle.result() == 4
    assert await runner.dead().count() == 0


async def test_without_retries_there_is_one_run(runner: TaskRunner, drain: Drain) -> None:
    tries = []

    @runner.task(max_retry=0)
    async def flaky() -> None:
        tries.append(1)
        raise ValueError

    handle = await flaky.dispatch()
    await drain()
    assert tries == [1]
    assert await handle.status() == Status.DEAD


async def test_a_dispatch_may_allow_other_retries_than_its_task(runner: TaskRunner, drain: Drain) -> None:
    tries = []

    @runner.task(max_retry=0, backoff=AT_ONCE)
    async def flaky() -> None:
        tries.append(1)
        raise ValueError

    await flaky.options(max_retry=4).dispatch()
    await drain()
    assert len(tries) == 5


def half_a_minute_per_failure(failures: int, error: BaseException) -> timedelta:
    assert isinstance(error, ValueError)
    return timedelta(seconds=30 * failures)


@pytest.mark.parametrize(
    ("backoff", "expected_s"),
    [
        (Fixed(40), (40, 40)),
        (Fixed(timedelta(minutes=1)), (60, 60)),
        (45.5, (45.5, 45.5)),
        (Linear(20), (20, 20)),
        (Exponential(30, jitter=False), (30, 30)),
        (Exponential(30, cap=10, jitter=False), (10, 10)),
        (Exponential(60), (0, 60)),
        (Reclaim(), (1.5, 1.5)),
        (half_a_minute_per_failure, (30, 30)),
    ],
    ids=["fixed", "timedelta", "plain seconds", "linear", "exponential", "cap", "full jitter", "one lease", "function"],
)
async def test_the_pause_before_the_next_run_is_what_the_backoff_says(
    new_runner: NewRunner,
    drain: Drain,
    raw: Redis,
    backoff: Backoff | float | Callable[[int, BaseException], timedelta],
    expected_s: tuple[float, float],
) -> None:
    runner = new_runner(lease=1.5)

    @runner.task(backoff=backoff)
    async def flaky() -> None:
        raise ValueError

    before_ms = await server_ms(raw)
    handle = await flaky.dispatch()
    await drain(runner)
    found = await handle.look()
    assert found.status == Status.DELAYED
    assert found.fire_ms is not None
    least, most = before_ms + expected_s[0] * 1000, await server_ms(raw) + expected_s[1] * 1000 + 1
    assert least <= found.fire_ms <= most


async def test_the_pause_grows_with_each_failure(runner: TaskRunner, drain: Drain, raw: Redis) -> None:
    runs: list[int] = []

    @runner.task(backoff=Linear(0.05), max_retry=3)
    async def flaky() -> None:
        runs.append(await server_ms(raw))
        raise ValueError

    await flaky.dispatch()
    await drain()
    await until(lambda: len(runs) == 4)
    pauses = [later - earlier for earlier, later in pairwise(runs)]
    assert [pause >= least for pause, least in zip(pauses, (50, 100, 150), strict=True)] == [True, True, True]


async def test_only_errors_that_are_worth_it_are_tried_again(runner: TaskRunner, drain: Drain) -> None:
    tries = []

    @runner.task(retry_on=(OSError, KeyError), no_retry_on=FileNotFoundError, backoff=AT_ONCE, max_retry=1)
    async def flaky(kind: str) -> None:
        tries.append(kind)
        raise {"key": KeyError, "connection": ConnectionError, "file": FileNotFoundError, "value": ValueError}[kind]

    handles = {kind: await flaky.dispatch(kind) for kind in ("key", "connection", "file", "value")}
    await drain()
    assert sorted(tries) == ["connection", "connection", "file", "key", "key", "value"]
    reasons = {kind: (await runner.dead().show(handle.task_id)).reason for kind, handle in handles.items()}
    assert reasons == {"key": "exhausted", "connection": "exhausted", "file": "failed", "value": "failed"}


async def test_a_task_may_ask_to_be_tried_again_in_a_while(runner: TaskRunner, drain: Drain, raw: Redis) -> None:
    @runner.task(retry_on=KeyError)
    async def impatient() -> None:
        raise Retry(60, "not there yet")

    before_ms = await server_ms(raw)
    handle = await impatient.dispatch()
    await drain()
    found = await handle.look()
    assert found.fire_ms is not None
    assert before_ms + 60_000 <= found.fire_ms <= await server_ms(raw) + 60_001
    assert [note.text for note in found.state.first] == ["not there yet"]


async def test_the_while_may_be_a_timedelta(runner: TaskRunner, drain: Drain) -> None:
    @runner.task
    async def impatient() -> None:
        raise Retry(timedelta(days=1))

    handle = await impatient.dispatch()
    await drain()
    assert await handle.status() == Status.DELAYED


async def test_asking_to_be_tried_again_is_bounded_too(runner: TaskRunner, drain: Drain) -> None:
    tries = []

    @runner.task(max_retry=2)
    async def impatient() -> None:
        tries.append(1)
        raise Retry(0)

    handle = await impatient.dispatch()
    await drain()
    assert len(tries) == 3
    assert await handle.status() == Status.DEAD


@pytest.mark.parametrize("pause", [float("nan"), -1, float("inf"), "soon"], ids=str)
async def test_asking_for_a_pause_that_cannot_be_meant_is_a_failure_like_any_other(
    runner: TaskRunner, drain: Drain, pause: float
) -> None:
    ran = []

    @runner.task(max_retry=0)
    async def confused() -> None:
        raise Retry(pause)

    @runner.task
    async def other() -> None:
        ran.append(1)

    handle = await confused.dispatch()
    await drain()
    await other.dispatch()
    await drain()
    assert ran == [1]
    letter = await runner.dead().show(handle.task_id)
    assert "seconds" in letter.errors[-1].text


def raises(failures: int, error: BaseException) -> float:
    raise LookupError("no such pause")


def gives_nan(failures: int, error: BaseException) -> float:
    return float("nan")


def gives_words(failures: int, error: BaseException) -> float:
    return "soon"  # type: ignore[return-value]


@pytest.mark.parametrize("backoff", [raises, gives_nan, gives_words])
async def test_a_backoff_that_fails_itself_loses_no_task(
    runner: TaskRunner, drain: Drain, backoff: Callable[[int, BaseException], float]
) -> None:
    @runner.task(backoff=backoff)
    async def flaky() -> None:
        raise ValueError("why it failed")

    handle = await flaky.dispatch()
    await drain()
    found = await handle.look()
    assert (found.status, found.state.failures) == (Status.DELAYED, 1)
    assert found.state.first[0].text == "why it failed"
    assert len(found.state.first) == 2  # and what is wrong with the backoff


async def test_a_task_may_refuse_its_message_for_good(runner: TaskRunner, drain: Drain) -> None:
    tries, told = [], []

    @runner.on_failed
    def hear(letter: object, error: BaseException) -> None:
        told.append(error)

    @runner.task(max_retry=5, backoff=AT_ONCE)
    def picky() -> None:
        tries.append(1)
        raise Reject("no such customer")

    handle = await picky.dispatch()
    await drain()
    letter = await runner.dead().show(handle.task_id)
    assert (len(tries), letter.reason, letter.failures) == (1, "rejected", 1)
    assert isinstance(told[0], TaskRejected)
    assert told[0].reason == "no such customer"


@pytest.mark.parametrize("leaving", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_a_task_that_tries_to_leave_fails_and_its_worker_stays(
    runner: TaskRunner, drain: Drain, leaving: type[BaseException], kind: str
) -> None:
    @runner.task(max_retry=0, name="coroutine")
    async def coroutine() -> None:
        raise leaving

    @runner.task(max_retry=0, name="thread")
    def thread() -> None:
        raise leaving

    handle = await runner.dispatch(kind)
    await drain()
    letter = await runner.dead().show(handle.task_id)
    assert (letter.reason, letter.failures) == ("exhausted", 1)
    assert leaving.__name__ in letter.errors[0].text


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


async def test_an_error_that_cannot_be_shown_is_a_failure_like_any_other(runner: TaskRunner, drain: Drain) -> None:
    tries = []

    @runner.task(max_retry=1, backoff=AT_ONCE)
    async def flaky() -> None:
        tries.append(1)
        raise Unprintable

    handle = await flaky.dispatch()
    await drain()
    letter = await runner.dead().show(handle.task_id)
    assert (len(tries), letter.reason) == (2, "exhausted")
    assert letter.errors[0].text == "<its text raised RuntimeError>"


async def test_a_failure_tells_its_handler_how_often_it_was_tried(runner: TaskRunner, drain: Drain) -> None:
    told = []

    @runner.on_failed
    async def hear(letter: object, error: BaseException) -> None:
        told.append(error)

    @runner.task(max_retry=1, backoff=AT_ONCE)
    async def flaky() -> None:
        raise ValueError("at last")

    await flaky.dispatch()
    await drain()
    assert isinstance(told[0], TaskMaxRetryExceeded)
    assert (told[0].task, told[0].failures, str(told[0].error)) == ("flaky", 2, "at last")


async def test_a_task_whose_function_only_promises_to_run_fails(runner: TaskRunner, drain: Drain) -> None:
    """A plain function that gives a coroutine has done nothing yet."""

    async def work() -> None: ...

    @runner.task(max_retry=0)
    def careless() -> object:
        return work()

    handle = await careless.dispatch()
    await drain()
    letter = await runner.dead().show(handle.task_id)
    assert "async def" in letter.errors[0].text
