"""min_replicas: a dispatch returns when so many replicas have the message, or says that they have not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from firetime import InvalidOption, NotReplicated, TaskRunner
from firetime.store.keys import QueueKeys
from tests.kit.servers import ServerProcess
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.kit.cluster import Cluster
    from tests.kit.proxy import FaultProxy

PREFIX = "firetime:replicas"


@pytest.fixture
def pair(start_server: StartServer, tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """A primary and its replica, in step."""
    primary = start_server(repl_diskless_sync_delay="0")
    with ServerProcess("valkey9", tmp_path / "replica", config={"replicaof": f"127.0.0.1 {primary.port}"}) as replica:
        yield primary, replica


@pytest.fixture
async def replica_of(pair: tuple[ServerProcess, ServerProcess]) -> AsyncIterator[Redis]:
    """A look into the replica, once it is in step."""
    async with Redis(port=pair[1].port, protocol=2) as redis:

        async def in_step() -> bool:
            return bool((await redis.info("replication"))["master_link_status"] == "up")

        await until(in_step, timeout=30)
        yield redis


@pytest.fixture
async def runner(pair: tuple[ServerProcess, ServerProcess], replica_of: Redis) -> AsyncIterator[TaskRunner]:
    made = TaskRunner(pair[0].url, prefix=PREFIX, min_replicas=1, dispatch_deadline=20)
    yield made
    await made.aclose()


async def test_what_was_dispatched_is_on_the_replica_when_the_dispatch_returns(
    runner: TaskRunner, replica_of: Redis
) -> None:
    for number in range(50):
        handle = await runner.dispatch("work", number)
        assert await replica_of.hexists(QueueKeys(PREFIX, "default").tasks, handle.task_id)


async def test_a_batch_is_too(runner: TaskRunner, replica_of: Redis) -> None:
    handles = await asyncio.gather(*(runner.dispatch("work", number) for number in range(1000)))
    kept = await replica_of.hkeys(QueueKeys(PREFIX, "default").tasks)
    assert {handle.task_id.encode() for handle in handles} <= set(kept)


async def test_a_replica_that_does_not_answer_in_time_is_told_of_and_the_message_runs(
    pair: tuple[ServerProcess, ServerProcess], replica_of: Redis
) -> None:
    _, replica = pair
    ran = asyncio.Event()
    async with TaskRunner(pair[0].url, prefix=PREFIX, min_replicas=1, dispatch_deadline=1) as runner:

        @runner.task
        async def work() -> None:
            ran.set()

        replica.freeze()
        try:
            with pytest.raises(NotReplicated, match="0 of 1 replicas") as met:
                await work.dispatch()
        finally:
            replica.thaw()
        assert (met.value.wanted, met.value.reached, met.value.maybe_accepted) == (1, 0, True)
        await asyncio.wait_for(ran.wait(), 30)
        await until(work.dispatch, timeout=30)


async def test_a_replica_that_comes_back_in_time_makes_the_dispatch_succeed_once(
    pair: tuple[ServerProcess, ServerProcess], runner: TaskRunner, replica_of: Redis
) -> None:
    _, replica = pair
    replica.freeze()
    sent = asyncio.create_task(runner.named("work").dispatch(1))
    async with Redis(port=pair[0].port, protocol=2) as primary:
        tasks = QueueKeys(PREFIX, "default").tasks
        await until(lambda: primary.hlen(tasks), timeout=30, what="the primary has it")

        async def repeated() -> bool:
            calls = (await primary.info("commandstats")).get("cmdstat_wait", {}).get("calls", 0)
            return bool(calls >= 2)

        await until(repeated, timeout=30, what="the call is repeated, and answered from memory")
        assert not sent.done()
        replica.thaw()
        handle = await asyncio.wait_for(sent, 30)
        assert await primary.hkeys(tasks) == [handle.task_id.encode()]


async def test_a_repeat_after_a_lost_reply_waits_for_the_replica_as_well(
    pair: tuple[ServerProcess, ServerProcess], replica_of: Redis, start_proxy: Callable[[str], FaultProxy]
) -> None:
    _, replica = pair
    proxy = start_proxy(pair[0].url)
    runner = TaskRunner(proxy.url, prefix=PREFIX, min_replicas=1, dispatch_deadline=20)
    await runner.dispatch("work", 0)
    replica.freeze()
    sent = asyncio.create_task(runner.dispatch("work", 1))
    async with Redis(port=pair[0].port, protocol=2) as primary:
        await until(lambda: _has(primary, 2), timeout=30, what="the primary has it")
        # its connection goes, so that the repeat has written nothing yet over the one it comes by
        proxy.cut()

        async def repeated() -> bool:
            return bool((await primary.info("commandstats"))["cmdstat_wait"]["calls"] >= 3)

        await until(repeated, timeout=30, what="it is repeated over another connection")
        assert not sent.done()
        replica.thaw()
        await asyncio.wait_for(sent, 30)
        assert await _has(primary, 2)
    await runner.aclose()


async def test_in_a_cluster_the_replica_of_the_queues_own_node_counts(cluster: Cluster) -> None:
    keys = QueueKeys(PREFIX, "default")
    owner = cluster.owner(keys.tasks)
    replica = cluster.replica_of(owner)
    runner = TaskRunner(cluster.url, prefix=PREFIX, min_replicas=1, dispatch_deadline=20)
    handle = await runner.dispatch("work", 1)
    async with Redis(port=replica.server.port, protocol=2) as redis:
        await redis.execute_command("READONLY")
        assert await redis.hexists(keys.tasks, handle.task_id)
    await runner.aclose()
    late = TaskRunner(cluster.url, prefix=PREFIX, min_replicas=2, dispatch_deadline=3)
    with pytest.raises(NotReplicated, match="1 of 2 replicas"):
        await late.dispatch("work", 2)
    await late.aclose()


@pytest.mark.parametrize("bad", [-1, 0.5, "many", True])
def test_a_number_of_replicas_that_cannot_be_meant_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidOption, match="min_replicas"):
        TaskRunner("redis://127.0.0.1:1", min_replicas=bad)


def test_it_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRETIME_MIN_REPLICAS", "2")
    assert TaskRunner("redis://127.0.0.1:1").settings.min_replicas == 2


async def _has(redis: Redis, messages: int) -> bool:
    return bool(await redis.hlen(QueueKeys(PREFIX, "default").tasks) == messages)
