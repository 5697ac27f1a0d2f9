"""The stage is set: runners and queues, a virtual clock, and the scripts themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.places import connect
from firetime.testing import VirtualClock
from tests.edges.driver import Driver
from tests.story.stage import drain, look_at, new_runner, prefix, runner, url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.kit.servers import ServerProcess

__all__ = ["drain", "look_at", "new_runner", "prefix", "runner", "url"]


@pytest.fixture
def clock(runner: TaskRunner) -> VirtualClock:
    return VirtualClock(runner)


@pytest.fixture
async def q(valkey: ServerProcess, raw: Redis, queue_name: str) -> AsyncIterator[Driver]:
    """The scripts, on one server: what they do on the others is shown in tests/edges."""
    server = connect(Address(valkey.url), Shift())
    yield Driver(server, raw, queue_name)
    await server.aclose()
