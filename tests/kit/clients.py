"""A plain Redis client for looking into a server, with nothing of its own going on."""

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff


def raw_client(url: str, *, timeout_s: float = 10) -> Redis:
    """Bytes in, bytes out, no second attempts; use it in an ``async with``."""
    return Redis.from_url(
        url,
        protocol=2,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        max_connections=64,
    )
