"""A queue of its own for each test, which must be sound when the test is over.

There are many tests here, and each is short: they share one event loop, and with it the connections.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.edges.driver import connected, sound_driver
from tests.kit.servers import KINDS, ServerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from redis.asyncio import Redis

    from firetime.store.connect import Server
    from tests.edges.driver import Driver
    from tests.kit.shared import Shared

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


class Connections:
    """Made when first asked for, one pair for each kind of server."""

    def __init__(self, servers: Shared, stack: AsyncExitStack) -> None:
        self._servers = servers
        self._stack = stack
        self._made: dict[str, tuple[Server, Redis]] = {}

    async def to(self, kind: str) -> tuple[Server, Redis]:
        if kind not in self._made:
            self._made[kind] = await self._stack.enter_async_context(connected(self._servers[kind]))
        return self._made[kind]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def connections(servers: Shared) -> AsyncIterator[Connections]:
    async with AsyncExitStack() as stack:
        yield Connections(servers, stack)


@pytest_asyncio.fixture(params=[*KINDS, "cluster"], loop_scope="session")
async def q(request: pytest.FixtureRequest, connections: Connections, queue_name: str) -> AsyncIterator[Driver]:
    """On each of the four servers, and on a cluster, which sees to it that a script keeps to its queue's keys."""
    async with sound_driver(*await connections.to(request.param), queue_name) as driver:
        yield driver


@pytest.fixture(scope="module", params=list(KINDS))
def own_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that a module may flush and fill up: nobody else is connected to it."""
    with ServerProcess(request.param, tmp_path_factory.mktemp("own")) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def own(own_server: ServerProcess, queue_name: str) -> AsyncIterator[Driver]:
    """Like `q`, on the module's own server."""
    async with connected(own_server) as pair, sound_driver(*pair, queue_name) as driver:
        yield driver
