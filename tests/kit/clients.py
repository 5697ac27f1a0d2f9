"""Plain Redis clients for looking into a server, with nothing of their own going on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def raw_client(url: str, *, timeout_s: float = 10) -> Any:
    """Bytes in, bytes out, no second attempts; use it in an ``async with``.

    Of sentinels: a client of what is the primary now. Of a cluster: one that asks the node that has the key.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "redis+cluster":
        host, port = rest.split(",")[0].split(":")
        return ClusterClient(host, int(port), protocol=2, socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0))
    return Redis.from_url(
        plain_url(url),
        protocol=2,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        max_connections=64,
    )


def plain_url(url: str) -> str:
    """The URL of the server itself: of sentinels, of what is the primary now."""
    scheme, _, rest = url.partition("://")
    if scheme != "redis+sentinel":
        return url
    hosts, _, service = rest.partition("/")
    with BlockingRedis.from_url(f"redis://{hosts.split(',')[0]}", protocol=2, socket_timeout=10) as sentinel:
        host, port = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
    return f"redis://{host if isinstance(host, str) else host.decode()}:{int(port)}/0"


class ClusterClient(RedisCluster):  # type: ignore[type-arg, unused-ignore]
    """The client's own, but that INFO, DBSIZE and PUBSUB NUMSUB add up what the nodes count."""

    async def info(self, section: str) -> dict[str, Any]:  # type: ignore[override]
        """Numbers are sums over the primaries."""
        told = await super().info(section, target_nodes=RedisCluster.PRIMARIES)
        return _added(list(told.values()))

    async def dbsize(self) -> int:  # type: ignore[override]
        """Of all primaries."""
        total = 0
        for node in self.get_primaries():
            async with Redis(host=node.host, port=int(node.port), protocol=2) as one:
                total += int(await one.dbsize())
        return total

    async def pubsub_numsub(self, *channels: str) -> list[tuple[Any, int]]:  # type: ignore[override]
        """A subscriber is on one node."""
        total: dict[Any, int] = {channel.encode(): 0 for channel in channels}
        for node in self.get_nodes():
            async with Redis(host=node.host, port=int(node.port), protocol=2) as one:
                for channel, count in await one.pubsub_numsub(*channels):
                    total[channel] += count
        return list(total.items())


def _added(facts: list[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for each in facts:
        for name, value in each.items():
            if isinstance(value, dict):
                total[name] = _added([total.get(name, {}), value])
            elif isinstance(value, (int, float)):
                total[name] = total.get(name, 0) + value
            else:
                total[name] = value
    return total


@asynccontextmanager
async def of_key(redis: Any, key: str) -> AsyncIterator[Any]:
    """A client of the one server that has a key, for transactions and whatever else a cluster's client does not do."""
    if not isinstance(redis, ClusterClient):
        yield redis
        return
    await redis.initialize()
    node = redis.get_node_from_key(key)
    assert node is not None
    async with Redis(host=node.host, port=int(node.port), protocol=2, retry=Retry(NoBackoff(), 0)) as one:
        yield one
