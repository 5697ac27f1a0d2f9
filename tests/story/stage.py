"""What a test of the public API stands on: fresh runners whose queues must be sound when the test is over."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from firetime import TaskRunner
from firetime.store.keys import QueueKeys, queue_of
from tests.kit.waiting import until
from tests.story.look import Look, look

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redis.asyncio import Redis

    from tests.kit.shared import Lent


class NewRunner(Protocol):
    """Makes a runner that is closed after the test; all those of a test share a prefix, and so their queues."""

    def __call__(self, url: str | None = None, **settings: Any) -> TaskRunner: ...


class Drain(Protocol):
    """Starts the runner where it is not, and returns when nothing is ready or running any more."""

    async def __call__(self, runner: TaskRunner | None = None, *, within: float = 20) -> None: ...


class LookAt(Protocol):
    """Everything that Redis holds of a queue."""

    async def __call__(self, queue: str = "default") -> Look: ...


@pytest.fixture
def prefix(queue_name: str) -> str:
    """What this test's keys begin with."""
    return f"firetime:{queue_name}"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Where the test's `server` is, or `valkey` when it has none."""
    name = "server" if "server" in request.fixturenames else "valkey"
    lent: Lent = request.getfixturevalue(name)
    return lent.url


@pytest.fixture
async def new_runner(request: pytest.FixtureRequest, prefix: str, raw: Redis) -> AsyncIterator[NewRunner]:
    here: str = request.getfixturevalue("url")
    made: list[TaskRunner] = []

    def new(url: str | None = None, **settings: Any) -> TaskRunner:
        # a busy machine, or a test that waits for its proxy, blocks the event loop that all of a test share
        made.append(TaskRunner(url or here, **{"prefix": prefix, "shutdown": 5.0, "block_warning": 30, **settings}))
        return made[-1]

    yield new
    for runner in made:
        await runner.aclose()
        await asyncio.to_thread(runner.close)
    assert await unsound(raw, prefix) == []


@pytest.fixture
async def runner(new_runner: NewRunner) -> TaskRunner:
    return new_runner()


@pytest.fixture
def drain(runner: TaskRunner) -> Drain:
    usual = runner

    async def drained(runner: TaskRunner | None = None, *, within: float = 20) -> None:
        drains = runner or usual
        if drains.worker is None:
            await drains.start()
        assert drains.worker is not None
        async with asyncio.timeout(within):
            await drains.worker.until_idle()

    return drained


@pytest.fixture
def look_at(raw: Redis, prefix: str) -> LookAt:
    async def at(queue: str = "default") -> Look:
        return await look(raw, QueueKeys(prefix, queue))

    return at


async def unsound(redis: Redis, prefix: str) -> list[str]:
    """What is not as it must be in any queue of the prefix; whoever still writes is given a moment to end."""
    found: list[str] = []

    async def sound() -> bool:
        found.clear()
        names = [name.decode() async for name in redis.scan_iter(match=f"{prefix}:{{*", count=1000)]
        for queue in sorted({queue_of(name) for name in names}):
            found.extend((await look(redis, QueueKeys(prefix, queue))).unsound())
        return not found

    try:
        await until(sound, timeout=1)
    except AssertionError:
        return found
    return []


async def server_ms(redis: Redis) -> int:
    """Milliseconds on the server's clock."""
    seconds, micros = await redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


async def let_pass(redis: Redis, seconds: float) -> None:
    """Until so much time is over on the server's clock: for what must *not* have happened by then."""
    end = await server_ms(redis) + seconds * 1000

    async def over() -> bool:
        return await server_ms(redis) > end

    await until(over, timeout=seconds + 10)


class Ticks:
    """How long nothing happened at most."""

    longest_s = 0.0


@asynccontextmanager
async def ticking(redis: Redis | None = None) -> AsyncIterator[Ticks]:
    """Meanwhile a coroutine looks at the clock all the time, and asks the server, if there is one, each time."""
    ticks, over = Ticks(), asyncio.Event()

    async def tick() -> None:
        last = time.perf_counter()
        while not over.is_set():
            await (asyncio.sleep(0.005) if redis is None else redis.ping())
            now = time.perf_counter()
            ticks.longest_s = max(ticks.longest_s, now - last)
            last = now
            await asyncio.sleep(0.001)

    task = asyncio.create_task(tick())
    try:
        yield ticks
    finally:
        over.set()
        await task
