"""F19: the server restarts with 20 tasks running and 100 queued; all finish, and what held its lease is not run again."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.kit.clients import raw_client
from tests.kit.waiting import until
from tests.story.stage import unsound

if TYPE_CHECKING:
    from tests.conftest import StartServer
    from tests.story.stage import NewRunner


@pytest.mark.parametrize("how", ["asked to stop", "killed"])
async def test_all_finish_and_nothing_is_doubled(
    start_server: StartServer, new_runner: NewRunner, prefix: str, how: str
) -> None:
    server = start_server(append_only=True)
    runner = new_runner(server.url, concurrency=20, dispatch_deadline=60)
    started: Counter[int] = Counter()
    ended: Counter[int] = Counter()
    go_on = asyncio.Event()

    @runner.task
    async def work(number: int) -> None:
        started[number] += 1
        await go_on.wait()
        ended[number] += 1

    await runner.dispatch_many(work.message(number) for number in range(120))
    await runner.start()
    await until(lambda: len(started) == 20)
    await asyncio.to_thread(server.stop if how == "asked to stop" else server.kill)
    await until(lambda: runner.worker is not None and not runner.worker.healthy)
    await asyncio.to_thread(server.start)
    go_on.set()
    await until(lambda: len(ended) == 120, timeout=40)
    assert started == ended == Counter(range(120))
    # nobody has to do anything: what is sent now is run too
    await work.dispatch(120)
    await until(lambda: ended[120], timeout=20)
    assert runner.worker is not None
    async with asyncio.timeout(20):
        await runner.worker.until_idle()
    async with raw_client(server.url) as raw:
        assert await unsound(raw, prefix) == []
        assert await raw.exists(f"{prefix}:{{default}}:tasks") == 0
