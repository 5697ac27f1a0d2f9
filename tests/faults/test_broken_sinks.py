"""Logs, errors, hooks and news that are broken themselves stop no worker."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from firetime import Status
from firetime.store.keys import QueueKeys
from tests.kit.child import Child
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redis.asyncio import Redis

    from firetime import DeadLetter, Handle, TaskRunner

pytestmark = pytest.mark.usefixtures("valkey")


class _BrokenSink(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("the disk is full")


@pytest.fixture
def _broken_log() -> Iterator[None]:
    log, sink = logging.getLogger("firetime"), _BrokenSink()
    log.addHandler(sink)
    yield
    log.removeHandler(sink)


@pytest.mark.usefixtures("_broken_log")
async def test_a_log_that_fails_stops_no_worker(runner: TaskRunner) -> None:
    @runner.task(max_retry=0)
    async def fail() -> None:
        raise ValueError

    @runner.task(result_ttl=60)
    async def work() -> str:
        return "done"

    await runner.start()
    letter = await fail.dispatch()
    await until(lambda: _stands(letter, Status.DEAD), what="the dead letter")
    assert await (await work.dispatch()).result(10) == "done"
    assert runner.worker is not None
    assert runner.worker.healthy


@pytest.mark.usefixtures("_broken_log")
async def test_a_failure_handler_that_fails_under_a_log_that_fails_is_told_again_later(runner: TaskRunner) -> None:
    @runner.task(max_retry=0)
    async def fail() -> None:
        raise ValueError

    @runner.on_failed
    async def tell(_letter: DeadLetter, _error: BaseException) -> None:
        raise RuntimeError

    await runner.start()
    letter = await fail.dispatch()
    await until(lambda: _stands(letter, Status.DELAYED), what="the handler's next try")


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even my text")

    __repr__ = __str__


class _SlippyText(str):
    __slots__ = ()

    def __getitem__(self, _: object) -> str:
        raise RuntimeError


class _Slippy(Exception):
    def __str__(self) -> str:
        return _SlippyText("text")


class _Nameless(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise RuntimeError


@pytest.mark.parametrize("kind", [_Unspeakable, _Slippy, _Nameless])
async def test_an_error_that_cannot_be_looked_at_is_a_failure_like_any_other(
    runner: TaskRunner, kind: type[Exception]
) -> None:
    @runner.task(max_retry=1, backoff=0)
    async def fail() -> None:
        raise kind

    @runner.task(max_retry=1, backoff=0)
    def fail_in_a_thread() -> None:
        raise kind

    await runner.start()
    for letter in (await fail.dispatch(), await fail_in_a_thread.dispatch()):
        await until(partial(_stands, letter, Status.DEAD), what="the dead letter")


async def test_news_of_a_head_that_somebody_else_wrote_ends_no_scheduler(
    runner: TaskRunner, raw: Redis, prefix: str
) -> None:
    @runner.task(result_ttl=60)
    async def work() -> str:
        return "done"

    await runner.start()
    keys = QueueKeys(prefix, "default")
    for stream in (keys.wake, keys.schedules_wake):
        await raw.xadd(stream, {"f": "no number"}, maxlen=1, approximate=False)
        assert await (await work.dispatch_delayed(0.1)).result(10) == "done"
    assert runner.worker is not None
    assert runner.worker.healthy


_HANGING = """
import asyncio, threading, sys
from firetime import TaskRunner

runner = TaskRunner(sys.argv[1], prefix=sys.argv[2], shutdown=0.2, lease=1)
hangs = threading.Event()

@runner.task(max_retry=0)
async def fail() -> None:
    raise ValueError

@runner.on_failed
def tell(letter: object, error: BaseException) -> None:
    hangs.set()
    threading.Event().wait()

async def main() -> None:
    async with runner:
        await fail.dispatch()
        while not hangs.is_set():
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


def test_a_failure_handler_that_never_ends_does_not_keep_the_process_from_exiting(
    url: str, prefix: str, tmp_path: Path
) -> None:
    child = Child([sys.executable, "-c", _HANGING, url, prefix], output=tmp_path / "out", env=dict(os.environ))
    try:
        assert child.wait(20) == 0, child.tail()
    finally:
        child.close()


async def _stands(letter: Handle[Any], wanted: Status) -> bool:
    return await letter.status() is wanted
