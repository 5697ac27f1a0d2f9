"""Slots move from node to node in mid-run, and servers say why they cannot serve: calls follow, wait, or say so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from redis.crc import key_slot
from redis.exceptions import BusyLoadingError, RedisError

from firetime import BrokerRefused, BrokerUnavailable, Status, TaskRunner
from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.keys import QueueKeys
from firetime.store.places import connect
from firetime.store.replies import NoScript
from firetime.store.scripts import Script
from tests.faults.flow import PREFIX, flowing
from tests.kit.cluster import Cluster, Node, node_client
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import StartServer
    from tests.kit.sentinels import Sentinels

KEYS = QueueKeys(PREFIX, "default")
SLOT = int(key_slot(KEYS.tasks.encode()))


@pytest.fixture
def still(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster in which nobody takes over from anybody."""
    with Cluster(tmp_path / "cluster", timeout_s=30) as started:
        yield started


async def test_a_slot_moves_key_by_key_in_mid_run_and_nothing_is_lost(still: Cluster) -> None:
    source, target = _from_and_to(still)
    async with flowing(still.url, lambda _: still.owner(KEYS.tasks).server) as flow:
        await asyncio.to_thread(_begin, source, target)
        # the sets of keys of a script are never all at one end: TRYAGAIN, until the slot is handed over
        await until(lambda: asyncio.to_thread(_said, source, "TRYAGAIN"), timeout=60, what="a call met the open slot")
        await asyncio.to_thread(_finish, still, source, target)
        await flow.goes_on("the flow goes on at the other node")
        assert still.owner(KEYS.tasks) == target
        assert flow.refused == []
    assert (flow.lost, flow.early) == (set(), []), flow.story


async def test_a_slot_moves_at_once_in_mid_run_and_nothing_is_lost(still: Cluster) -> None:
    source, target = _from_and_to(still)
    async with flowing(still.url, lambda _: still.owner(KEYS.tasks).server) as flow:
        # new in Valkey 9: https://valkey.io/topics/atomic-slot-migration/
        await asyncio.to_thread(source.ask, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", SLOT, SLOT, "NODE", target.name)
        await until(lambda: still.owner(KEYS.tasks) == target, timeout=60, what="the slot has moved")
        await flow.goes_on("the flow goes on at the other node")
        assert flow.refused == []
    assert (flow.lost, flow.early) == (set(), []), flow.story


async def test_a_call_for_a_key_that_has_gone_ahead_is_asked_there_with_its_script_loaded(still: Cluster) -> None:
    source, target = _from_and_to(still)
    server = connect(Address(still.url), Shift())
    try:
        await asyncio.to_thread(_begin, source, target)
        before = await asyncio.to_thread(_calls, target)
        # a plain command: the key is not there, so ASK sends it to the other node
        assert await server.ask("GET", KEYS.paused) is None
        assert await server.ask("SET", KEYS.paused, "1") == b"OK"
        assert await asyncio.to_thread(_calls, target) >= before + 2
        # a script of that one key: the other node does not know it yet
        script = Script("look", "local paused = KEYS[1]\nreturn redis.call('GET', paused)")
        words = script.request(KEYS, {})
        with pytest.raises(NoScript) as met:
            await server.ask(*words)
        assert met.value.node == ("127.0.0.1", target.server.port)
        await server.load(script, met.value)
        assert await server.ask(*words) == b"1"
        await asyncio.to_thread(_finish, still, source, target)
        assert await server.ask("GET", KEYS.paused) == b"1"
    finally:
        await server.aclose()


async def test_a_cluster_with_a_slot_that_nobody_serves_says_so_and_dispatches_when_it_is_served_again(
    still: Cluster,
) -> None:
    owner = still.owner(KEYS.tasks)
    runner = TaskRunner(still.url, prefix=PREFIX, dispatch_deadline=30)
    hasty = TaskRunner(still.url, prefix=PREFIX, dispatch_deadline=0.5)
    for node in still.nodes:
        if node.ask("ROLE")[0] == b"master":
            await asyncio.to_thread(node.ask, "CLUSTER", "DELSLOTS", SLOT)
    with pytest.raises(BrokerUnavailable):
        await hasty.dispatch("note", 1)
    sent = asyncio.create_task(runner.dispatch("note", 2))
    await asyncio.sleep(0)
    await asyncio.to_thread(owner.ask, "CLUSTER", "ADDSLOTS", SLOT)
    await asyncio.wait_for(sent, 60)
    await runner.aclose()
    await hasty.aclose()


async def test_a_server_that_loads_its_data_is_waited_for(start_server: StartServer) -> None:
    server = start_server()
    with node_client(server.port) as redis:
        redis.mset({f"firetime:load:{number}": "x" for number in range(6000)})
        redis.save()
    server.kill()
    server.config["key-load-delay"] = "1000"  # in us for each key: it takes 6 s at least, and answers LOADING meanwhile
    server.config["loading-process-events-interval-bytes"] = "1024"
    starting = asyncio.create_task(asyncio.to_thread(server.start))
    await until(lambda: asyncio.to_thread(_is_loading, server.port), timeout=30, what="it says that it is loading")
    patient = TaskRunner(server.url, prefix=PREFIX, dispatch_deadline=60)
    hasty = TaskRunner(server.url, prefix=PREFIX, dispatch_deadline=0.5)
    with pytest.raises(BrokerUnavailable):
        await hasty.dispatch("note", 1)
    handle = await patient.dispatch("note", 2)
    await starting
    assert await handle.status() is Status.READY
    await patient.aclose()
    await hasty.aclose()


async def test_a_demoted_server_is_left_for_the_new_primary(sentinels: Sentinels) -> None:
    runner = TaskRunner(sentinels.url, prefix=PREFIX, dispatch_deadline=60)
    await runner.dispatch("note", 1)
    before, after = sentinels.primary(), sentinels.replica()
    # as in a failover, but that sentinels learn of it later: the connection stays, and READONLY is the only sign
    with node_client(before.port) as old, node_client(after.port) as new:
        await asyncio.to_thread(new.execute_command, "REPLICAOF", "NO", "ONE")
        await asyncio.to_thread(old.execute_command, "REPLICAOF", "127.0.0.1", after.port)
        await runner.dispatch("note", 2)
        roles = [await asyncio.to_thread(each.execute_command, "ROLE") for each in (old, new)]
        now = new if roles[1][0] == b"master" else old
        assert await asyncio.to_thread(now.hlen, KEYS.tasks) >= 1
    await runner.aclose()


# --- moving a slot by hand: https://valkey.io/commands/cluster-setslot/


def _from_and_to(cluster: Cluster) -> tuple[Node, Node]:
    source = cluster.owner(KEYS.tasks)
    return source, next(node for node in cluster.primaries() if node != source)


def _begin(source: Node, target: Node) -> None:
    target.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", source.name)
    source.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", target.name)


def _finish(cluster: Cluster, source: Node, target: Node) -> None:
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", SLOT, 10):
        source.ask("MIGRATE", "127.0.0.1", target.server.port, "", 0, 5000, "KEYS", *keys)
    target.ask("CLUSTER", "SETSLOT", SLOT, "NODE", target.name)
    source.ask("CLUSTER", "SETSLOT", SLOT, "NODE", target.name)
    for node in cluster.primaries():
        if node not in {source, target}:
            node.ask("CLUSTER", "SETSLOT", SLOT, "NODE", target.name)


def _said(node: Node, error: str) -> bool:
    with node_client(node.server.port) as redis:
        counts: Any = redis.info("errorstats")
    return f"errorstat_{error}" in counts


def _calls(node: Node) -> int:
    with node_client(node.server.port) as redis:
        stats: Any = redis.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("get", "set"))


def _is_loading(port: int) -> bool:
    try:
        with node_client(port) as redis:
            redis.execute_command("GET", "x")
    except BusyLoadingError:
        return True
    except RedisError:
        return False
    return False


async def test_who_takes_a_node_for_a_server_is_told_what_to_write(still: Cluster) -> None:
    alone = TaskRunner(next(iter(still.data_urls)))
    sent = (alone.named("see", queue=f"queue-{number}").dispatch() for number in range(50))
    said = {
        str(each) for each in await asyncio.gather(*sent, return_exceptions=True) if isinstance(each, BrokerRefused)
    }
    assert said
    assert all("redis+cluster://host:port" in words for words in said)
    await alone.aclose()
