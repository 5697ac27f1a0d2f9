"""A message out of attempts is a dead letter: its handler is told, and it is kept until it is replayed or purged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from firetime import DeadLetter, Fixed, MessageNotFound, Status, current_task
from tests.kit.waiting import until
from tests.story.stage import server_ms

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")


async def test_a_dead_letter_says_what_it_was_and_what_it_died_of(runner: TaskRunner, drain: Drain, raw: Redis) -> None:
    @runner.task(max_retry=2, backoff=Fixed(0), priority="high")
    async def pay(invoice: int, *, to: str) -> None:
        raise LookupError(f"no account {to}, try {current_task().attempt}")

    from_ms = await server_ms(raw)
    handle = await pay.options(headers={"trace": "7"}).dispatch(12, to="Ada")
    await drain()
    letter = await runner.dead().show(handle.task_id)
    assert (letter.id, letter.queue, letter.task) == (handle.task_id, "default", "pay")
    assert (letter.args, letter.kwargs, letter.headers, letter.priority) == (
        [12],
        {"to": "Ada"},
        {"trace": "7"},
        "high",
    )
    assert (letter.reason, letter.failures, letter.crashes) == ("exhausted", 3, 0)
    assert [(note.type, note.text) for note in letter.errors] == [
        ("LookupError", f"no account Ada, try {attempt}") for attempt in (1, 2, 3)
    ]
    assert "raise LookupError" in letter.errors[0].traceback
    assert letter.died_ms is not None
    assert from_ms <= letter.errors[0].at_ms <= letter.died_ms + 1 <= await server_ms(raw) + 1


async def test_of_many_errors_the_first_and_the_last_are_kept(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(max_retry=29, backoff=Fixed(0))
    async def fail() -> None:
        raise ValueError(current_task().attempt)

    handle = await fail.dispatch()
    await drain()
    letter = await runner.dead().show(handle.task_id)
    assert [note.text for note in letter.errors] == [str(n) for n in (*range(1, 10), *range(22, 31))]


# --------------------------------------------------------------------------------------------------------- the handler


async def test_the_handler_is_told_before_the_letter_is_put_away(runner: TaskRunner, drain: Drain) -> None:
    told: list[tuple[DeadLetter, str, Status]] = []

    @runner.on_failed
    async def hear(letter: DeadLetter, error: BaseException) -> None:
        told.append((letter, str(error), await runner.handle(letter.id).status()))

    @runner.task(max_retry=0)
    async def fail(number: int) -> None:
        raise ValueError("no")

    handle = await fail.dispatch(7)
    await drain()
    (letter, error, status) = told[0]
    assert (letter.id, letter.task, letter.args, letter.reason) == (handle.task_id, "fail", [7], "exhausted")
    assert error == "task 'fail' failed 1 times and has no retry left: ValueError('no')"
    assert status == Status.RUNNING
    assert await handle.status() == Status.DEAD


async def test_every_handler_is_told_and_a_plain_one_runs_in_a_thread(runner: TaskRunner, drain: Drain) -> None:
    told = []

    @runner.on_failed
    async def first(letter: DeadLetter, error: BaseException) -> None:
        told.append("first")

    @runner.on_failed
    def second(letter: DeadLetter, error: BaseException) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        told.append("second")

    @runner.task(max_retry=0)
    def fail() -> None:
        raise ValueError

    await fail.dispatch()
    await drain()
    assert told == ["first", "second"]


@pytest.mark.parametrize("mistake", [RuntimeError, SystemExit, asyncio.CancelledError], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_a_handler_that_raises_is_told_again_and_the_task_is_not_run_again(
    new_runner: NewRunner, mistake: type[BaseException], kind: str
) -> None:
    runner = new_runner(lease=0.3)
    runs, told = [], []

    async def hear(letter: DeadLetter, error: BaseException) -> None:
        hear_in_a_thread(letter, error)

    def hear_in_a_thread(letter: DeadLetter, error: BaseException) -> None:
        told.append((letter.failures, letter.reason, type(error).__name__))
        if len(told) < 3:
            raise mistake("the pager is down")

    runner.on_failed(hear if kind == "coroutine" else hear_in_a_thread)

    @runner.task(max_retry=0)
    async def fail() -> None:
        runs.append(1)
        raise ValueError("why")

    handle = await fail.dispatch()
    await runner.start()

    async def dead() -> bool:
        return await handle.status() == Status.DEAD

    await until(dead)
    assert len(runs) == 1
    assert [failures for failures, _, _ in told] == [1, 1, 1]
    assert {reason for _, reason, _ in told} == {"exhausted"}
    letter = await runner.dead().show(handle.task_id)
    assert [note.type.rpartition(".")[2] for note in letter.errors] == ["ValueError", *[mistake.__name__] * 2]


async def test_a_worker_that_stops_while_a_handler_runs_leaves_it_to_the_next(new_runner: NewRunner) -> None:
    first, second = new_runner(), new_runner()
    begun, told, runs = asyncio.Event(), [], []

    @first.on_failed
    async def hang(letter: DeadLetter, error: BaseException) -> None:
        begun.set()
        await asyncio.Event().wait()

    @second.on_failed
    async def hear(letter: DeadLetter, error: BaseException) -> None:
        told.append(letter.failures)

    async def fail() -> None:
        runs.append(1)
        raise ValueError

    for each in (first, second):
        each.task(max_retry=0)(fail)
    handle = await first.dispatch("fail")
    await first.start()
    await asyncio.wait_for(begun.wait(), 10)
    await first.stop(within=0.05)
    await second.start()
    await until(lambda: told)

    async def dead() -> bool:
        return await handle.status() == Status.DEAD

    await until(dead)
    assert told == [1]


# --------------------------------------------------------------------------------------------- list, show, replay, purge


@pytest.fixture
async def cemetery(runner: TaskRunner, drain: Drain) -> dict[str, str]:
    """Dead letters of two tasks and two errors: what -> id."""

    @runner.task(max_retry=0)
    async def mail(error: str) -> None:
        if (await runner.handle(current_task().id).look()).state.deliveries == 0:
            raise {"key": KeyError, "value": ValueError}[error]

    @runner.task(max_retry=0)
    async def bill(error: str) -> None:
        await mail.definition.function(error)

    ids = {}
    for what, task, error in (("mail key", mail, "key"), ("mail value", mail, "value"), ("bill key", bill, "key")):
        ids[what] = (await task.dispatch(error)).task_id
        await drain()
    await runner.stop()
    return ids


async def test_dead_letters_are_listed_oldest_first(runner: TaskRunner, cemetery: dict[str, str]) -> None:
    assert [letter.id for letter in await runner.dead().page()] == list(cemetery.values())
    assert [letter.id for letter in await runner.dead().page(limit=2)] == list(cemetery.values())[:2]
    assert await runner.dead().count() == 3
    assert await runner.dead("other").page() == []


async def test_dead_letters_are_found_by_task_and_by_error(runner: TaskRunner, cemetery: dict[str, str]) -> None:
    async def found(**by: str) -> list[str]:
        return [letter.id for letter in await runner.dead().page(**by)]  # type: ignore[arg-type]

    assert await found(task="mail") == [cemetery["mail key"], cemetery["mail value"]]
    assert await found(error="KeyError") == [cemetery["mail key"], cemetery["bill key"]]
    assert await found(task="bill", error="ValueError") == []


async def test_a_replayed_letter_runs_again_with_fresh_counters(
    runner: TaskRunner, drain: Drain, cemetery: dict[str, str]
) -> None:
    await runner.dead().replay(cemetery["mail key"])
    found = await runner.handle(cemetery["mail key"]).look()
    assert (found.status, found.state.failures, found.state.first) == (Status.READY, 0, ())
    await drain()
    assert await runner.handle(cemetery["mail key"]).status() == Status.UNKNOWN  # it is done
    assert await runner.dead().count() == 2


async def test_the_fence_grows_through_a_replay_too(runner: TaskRunner, drain: Drain) -> None:
    fences = []

    @runner.task(max_retry=1, backoff=Fixed(0))
    async def fail() -> None:
        fences.append(current_task().fence)
        raise ValueError

    handle = await fail.dispatch()
    await drain()
    await runner.dead().replay(handle.task_id)
    await drain()
    assert fences == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("by", "left"),
    [
        ({}, []),
        ({"task": "mail"}, ["bill key"]),
        ({"error": "KeyError"}, ["mail value"]),
        ({"task": "mail", "error": "KeyError"}, ["mail value", "bill key"]),
        ({"task": "nobody"}, ["mail key", "mail value", "bill key"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("what", ["replay_all", "purge_all"])
async def test_letters_of_one_task_or_one_error_are_replayed_or_purged_together(
    runner: TaskRunner, drain: Drain, cemetery: dict[str, str], what: str, by: dict[str, str], left: list[str]
) -> None:
    count = await getattr(runner.dead(), what)(**by)
    assert count == 3 - len(left)
    await drain()
    assert [letter.id for letter in await runner.dead().page()] == [cemetery[name] for name in left]


async def test_what_dies_again_while_all_are_replayed_is_not_replayed_twice(runner: TaskRunner, drain: Drain) -> None:
    @runner.task(max_retry=0)
    async def fail() -> None:
        raise ValueError

    await runner.dispatch_many(fail.message() for _ in range(250))
    await drain()
    assert await runner.dead().replay_all() == 250
    await drain()
    assert await runner.dead().count() == 250


async def test_a_purged_letter_leaves_nothing(runner: TaskRunner, look_at: LookAt, cemetery: dict[str, str]) -> None:
    await runner.dead().purge(cemetery["mail key"])
    left = await look_at()
    assert cemetery["mail key"] not in {*left.tasks, *left.state, *left.dead}
    await runner.dead().purge_all()
    left = await look_at()
    assert (left.tasks, left.state, left.dead) == ({}, {}, [])


async def test_what_is_not_dead_cannot_be_shown_replayed_or_purged(runner: TaskRunner) -> None:
    @runner.task
    async def alive() -> None: ...

    handle = await alive.dispatch()
    for act in (runner.dead().show, runner.dead().replay, runner.dead().purge):
        for id in (handle.task_id, "nobody-knows"):
            with pytest.raises(MessageNotFound, match=f"no message '{id}' among the dead letters of 'default'"):
                await act(id)
    assert await handle.status() == Status.READY
