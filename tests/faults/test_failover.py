"""A primary goes in mid-run: workers and senders find the new one by themselves, and what it has in its data is done."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from tests.faults.flow import Flow, flowing, kept
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kit.cluster import Cluster, Node
    from tests.kit.sentinels import Sentinels
    from tests.kit.servers import ServerProcess

TAKES_OVER_S = 60.0
"""How long a test waits for a failover, which takes 3 s where nothing else goes on."""


@pytest.fixture
def queues(cluster: Cluster) -> list[str]:
    """One on each primary."""
    found: dict[int, str] = {}
    for number in range(100):
        found.setdefault(cluster.owner(f"{{q{number}}}").server.port, f"q{number}")
        if len(found) == 3:
            break
    return list(found.values())


@pytest.fixture(autouse=True)
def report(request: pytest.FixtureRequest) -> Iterator[list[Flow]]:
    """What a test says at its end, also when all is well: some losses are nobody's fault, and none is passed over."""
    flows: list[Flow] = []
    yield flows
    for flow in flows:
        sys.stdout.write(f"{request.node.name}: {flow.story}\n")


async def test_a_cluster_hands_a_primary_over_and_nothing_is_lost(
    cluster: Cluster, queues: list[str], report: list[Flow]
) -> None:
    async with flowing(cluster.url, _primary(cluster), queues) as flow:
        report.append(flow)
        before = cluster.owner(_tag(queues[0]))
        after = cluster.replica_of(before)
        await asyncio.to_thread(after.ask, "CLUSTER", "FAILOVER")
        await _taken_over(cluster, queues[0], after)
        await flow.goes_on("the flow goes on after the hand-over")
    # the two agreed on where the one ends and the other begins: this kind of failover loses nothing
    assert (flow.lost, flow.early) == (set(), []), flow.story


async def test_a_cluster_goes_on_when_a_primary_is_killed(
    cluster: Cluster, queues: list[str], report: list[Flow]
) -> None:
    async with flowing(cluster.url, _primary(cluster), queues) as flow:
        report.append(flow)
        before = cluster.owner(_tag(queues[0]))
        after = cluster.replica_of(before)
        others = flow.queues[1:]
        await asyncio.to_thread(before.server.kill)
        await _taken_over(cluster, queues[0], after)
        has = await asyncio.to_thread(kept, _primary(cluster), queues[:1])
        await flow.goes_on("the flow goes on after the failover")
    assert {flow.ids[id] for id in has if id in flow.ids} <= flow.ran.keys(), flow.story
    # without min_replicas what the killed one had not yet passed on is lost; the other primaries lose nothing
    assert {flow.accepted[number] for number in flow.lost} <= {queues[0]}, flow.story
    assert others
    assert flow.early == []


async def test_with_a_replica_waited_for_a_killed_primary_of_a_cluster_loses_nothing(
    cluster: Cluster, queues: list[str], report: list[Flow]
) -> None:
    async with flowing(cluster.url, _primary(cluster), queues, min_replicas=1) as flow:
        report.append(flow)
        before = cluster.owner(_tag(queues[0]))
        after = cluster.replica_of(before)
        await asyncio.to_thread(before.server.kill)
        await _taken_over(cluster, queues[0], after)
        # until it is back the new primary has no replica that could have anything
        await asyncio.to_thread(before.server.start)
        await flow.goes_on("the flow goes on after the failover")
    assert (flow.lost, flow.early) == (set(), []), flow.story


@pytest.mark.parametrize("how", ["killed", "asked"])
async def test_under_sentinels_another_primary_takes_over(sentinels: Sentinels, how: str, report: list[Flow]) -> None:
    async with flowing(sentinels.url, lambda _: sentinels.primary()) as flow:
        report.append(flow)
        await _fails_over(sentinels, how)
        has = await asyncio.to_thread(kept, lambda _: sentinels.primary(), flow.queues)
        await flow.goes_on("the flow goes on after the failover")
    assert {flow.ids[id] for id in has if id in flow.ids} <= flow.ran.keys(), flow.story
    assert flow.early == []


async def test_with_a_replica_waited_for_a_killed_primary_under_sentinels_loses_nothing(
    sentinels: Sentinels, report: list[Flow]
) -> None:
    async with flowing(sentinels.url, lambda _: sentinels.primary(), min_replicas=1) as flow:
        report.append(flow)
        before = sentinels.primary()
        await _fails_over(sentinels, "killed")
        await asyncio.to_thread(before.start)
        await flow.goes_on("the flow goes on after the failover")
    assert (flow.lost, flow.early) == (set(), []), flow.story


async def _fails_over(sentinels: Sentinels, how: str) -> None:
    before, after = sentinels.primary(), sentinels.replica()
    if how == "killed":
        await asyncio.to_thread(before.kill)
    else:
        await asyncio.to_thread(sentinels.fail_over)
    await until(lambda: sentinels.primary() is after, timeout=TAKES_OVER_S, what="the sentinels name the other one")


async def _taken_over(cluster: Cluster, queue: str, after: Node) -> None:
    await until(
        lambda: cluster.owner(_tag(queue)) == after, timeout=TAKES_OVER_S, what="the replica has become the primary"
    )


def _primary(cluster: Cluster) -> Callable[[str], ServerProcess]:
    return lambda queue: cluster.owner(_tag(queue)).server


def _tag(queue: str) -> str:
    return f"{{{queue}}}"
