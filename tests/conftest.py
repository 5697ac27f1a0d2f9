"""What every test may ask for: a real server of each kind, a fresh queue name, faults, worker processes."""

from __future__ import annotations

import os
import re
import sys
from itertools import count
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import hypothesis
import pytest
from redis import Redis

from tests.kit.clients import raw_client
from tests.kit.launch import end_with
from tests.kit.leaks import unexpected_keys
from tests.kit.processes import WorkerProcess, is_configuration
from tests.kit.proxy import FaultProxy
from tests.kit.servers import KINDS, ServerProcess, Servers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from redis.asyncio import Redis as AsyncRedis


class StartServer(Protocol):
    def __call__(self, kind: str = "valkey9", *, append_only: bool = False, **config: str) -> ServerProcess: ...


class StartWorker(Protocol):
    def __call__(self, script: Path | str, *arguments: str, env: Mapping[str, str] | None = None) -> WorkerProcess: ...


def pytest_configure() -> None:
    # What configures firetime on this machine is no business of its tests.
    for name in filter(is_configuration, list(os.environ)):
        del os.environ[name]
    if "PYTEST_XDIST_WORKER" in os.environ:  # else it would finish its test after pytest was killed
        end_with(os.getppid())
    # A busy machine is slow at times; that is no defect of what is tested.
    hypothesis.settings.register_profile("firetime", deadline=None, print_blob=True)
    hypothesis.settings.load_profile("firetime")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One server of each kind for this xdist worker, started when first asked for."""
    started = Servers(tmp_path_factory.mktemp("servers"))
    yield started
    started.stop()


@pytest.fixture(params=list(KINDS))
def server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[ServerProcess]:
    """Each of the four in turn; shared and emptied after the test: to kill or freeze one, use `start_server`."""
    yield servers[request.param]
    _leave_clean(servers[request.param])


@pytest.fixture
def valkey(servers: Servers) -> Iterator[ServerProcess]:
    """Just Valkey 9; shared like `server`."""
    yield servers["valkey9"]
    _leave_clean(servers["valkey9"])


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts a server of the test's own, to kill, freeze, restart and configure."""
    started: list[ServerProcess] = []

    def start(kind: str = "valkey9", *, append_only: bool = False, **config: str) -> ServerProcess:
        directives = {name.replace("_", "-"): value for name, value in config.items()}
        folder = tmp_path / f"{kind}-{len(started)}"
        started.append(ServerProcess(kind, folder, append_only=append_only, config=directives))
        return started[-1].start()

    yield start
    try:
        for one in started:
            if one.answering:
                _leave_clean(one)
    finally:
        for one in started:
            one.stop()


@pytest.fixture
def start_proxy(request: pytest.FixtureRequest) -> Iterator[Callable[[str], FaultProxy]]:
    """Puts a `FaultProxy` before a url."""
    _outlived_by_servers(request)
    started: list[FaultProxy] = []

    def start(target_url: str) -> FaultProxy:
        started.append(FaultProxy(target_url))
        return started[-1]

    yield start
    for proxy in started:
        proxy.close()


@pytest.fixture
def start_worker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartWorker]:
    """Runs a script (a `Path`, or source text) as a process that ends with the test; shows its output if that fails."""
    _outlived_by_servers(request)
    started: list[WorkerProcess] = []
    numbers = count()

    def start(script: Path | str, *arguments: str, env: Mapping[str, str] | None = None) -> WorkerProcess:
        started.append(WorkerProcess(script, *arguments, folder=tmp_path / f"worker-{next(numbers)}", env=env))
        return started[-1]

    yield start
    for worker in started:
        worker.close()
        sys.stdout.write(f"--- {worker.output.parent.name} (exit code {worker.returncode}) ---\n{worker.printed}")


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    """A queue that no other test has, named after this one."""
    # uuid4 asks the kernel; pytest-randomly seeds `random` alike for each test and each xdist worker.
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '.', request.node.name)[:60]}.{uuid4().hex[:12]}"


@pytest.fixture
async def raw(request: pytest.FixtureRequest) -> AsyncIterator[AsyncRedis]:
    """A plain client for looking into the test's `server`, or into `valkey` when it has none; bytes in, bytes out."""
    name = "server" if "server" in request.fixturenames else "valkey"
    lent: ServerProcess = request.getfixturevalue(name)
    async with raw_client(lent.url) as redis:
        yield redis


def _outlived_by_servers(request: pytest.FixtureRequest) -> None:
    """The test's servers are made first, however it names its fixtures: so they are emptied when nobody writes any more."""
    for name in ("server", "valkey", "start_server"):
        if name in request.fixturenames:
            request.getfixturevalue(name)


def _leave_clean(server: ServerProcess) -> None:
    """Fails when a key is left that nobody documented; the server is empty afterwards."""
    with Redis.from_url(server.url, protocol=2, socket_timeout=10, socket_connect_timeout=10) as redis:
        keys = sorted(key.decode(errors="backslashreplace") for key in redis.scan_iter(count=1000))
        redis.flushall()
    if leaked := unexpected_keys(keys):
        pytest.fail(f"keys left behind in {server.kind}: {', '.join(leaked[:20])}", pytrace=False)
