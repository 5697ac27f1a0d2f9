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
from tests.kit.cluster import Cluster
from tests.kit.launch import end_with
from tests.kit.leaks import unexpected_keys
from tests.kit.processes import WorkerProcess, is_configuration
from tests.kit.proxy import FaultProxy
from tests.kit.sentinels import Sentinels
from tests.kit.servers import KINDS, ServerProcess
from tests.kit.shared import FLEETS, Lent, Shared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from redis.asyncio import Redis as AsyncRedis


EVERYWHERE = [*KINDS, *FLEETS]
"""Four servers, a cluster, and what sentinels watch over."""


FAIL_OVER_S = 1.5
"""How long a primary is silent before its replica takes over, where that is what a test is about."""


class StartServer(Protocol):
    def __call__(self, kind: str = "valkey9", *, append_only: bool = False, **config: str) -> ServerProcess: ...


class StartWorker(Protocol):
    def __call__(self, script: Path | str, *arguments: str, env: Mapping[str, str] | None = None) -> WorkerProcess: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on",
        choices=EVERYWHERE,
        help="run all that does not need a server of one kind on this one alone, also what usually runs on Valkey 9 only",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        kinds = list(KINDS) if _wants_one(metafunc.definition, metafunc.fixturenames) else EVERYWHERE
        only = metafunc.config.getoption("--on")
        chosen = kinds if only is None else [only] if only in kinds else ["valkey9"]
        metafunc.parametrize("server", chosen, indirect=True)


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
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """One of each kind for this xdist worker, started when first asked for."""
    started = Shared(tmp_path_factory.mktemp("servers"))
    yield started
    started.stop()


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Shared) -> Iterator[Lent]:
    """Each of the six in turn; shared and emptied after the test: to kill or freeze one, use `start_server`."""
    lent = servers[request.param]
    yield lent
    _leave_clean(lent)


@pytest.fixture
def valkey(request: pytest.FixtureRequest, servers: Shared) -> Iterator[Lent]:
    """Just Valkey 9, or what the option --on says; shared like `server`."""
    alone = _wants_one(request.node, request.fixturenames)
    lent = servers["valkey9" if alone else request.config.getoption("--on") or "valkey9"]
    yield lent
    _leave_clean(lent)


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
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of the test's own, quick to fail over; it keeps what it answered through SIGKILL."""
    with Cluster(tmp_path / "cluster", timeout_s=FAIL_OVER_S, append_only=True) as started:
        yield started


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    """A primary, a replica and sentinels of the test's own, quick to fail over."""
    with Sentinels(tmp_path / "sentinels", down_after_s=FAIL_OVER_S, append_only=True) as started:
        yield started


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
    lent: Lent = request.getfixturevalue(name)
    async with raw_client(lent.url) as redis:
        yield redis


def _outlived_by_servers(request: pytest.FixtureRequest) -> None:
    """The test's servers are made first, however it names its fixtures: so they are emptied when nobody writes any more."""
    for name in ("server", "valkey", "start_server"):
        if name in request.fixturenames:
            request.getfixturevalue(name)


def _wants_one(node: pytest.Function, fixtures: Sequence[str]) -> bool:
    # a proxy can stand before one server only: the nodes of a cluster say themselves where they are
    return "start_proxy" in fixtures or node.get_closest_marker("one_server") is not None


def _leave_clean(lent: Lent) -> None:
    """Fails when a key is left that nobody documented; the server is empty afterwards."""
    keys: list[str] = []
    for url in lent.data_urls:
        with Redis.from_url(url, protocol=2, socket_timeout=10, socket_connect_timeout=10) as redis:
            keys += sorted(key.decode(errors="backslashreplace") for key in redis.scan_iter(count=1000))
            redis.flushall()
    if leaked := unexpected_keys(keys):
        pytest.fail(f"keys left behind in {lent.kind}: {', '.join(leaked[:20])}", pytrace=False)
