"""The test kit does what it says, shown with real servers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.kit.clients import raw_client
from tests.kit.frames import Frames, command
from tests.kit.leaks import unexpected_keys
from tests.kit.proxy import FaultProxy
from tests.kit.servers import KINDS, ServerProcess, ServerUnusable, binary
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from redis.asyncio import Redis

    from tests.conftest import StartServer, StartWorker

ROOT = Path(__file__).parents[2]


@pytest.fixture
def proxy(valkey: ServerProcess, start_proxy: Callable[[str], FaultProxy]) -> FaultProxy:
    return start_proxy(valkey.url)


@pytest.fixture
async def through(proxy: FaultProxy) -> AsyncIterator[Redis]:
    """A client that goes through the proxy and gives up after a second."""
    async with raw_client(proxy.url, timeout_s=1) as redis:
        yield redis


# --- servers


@pytest.mark.one_server
async def test_each_server_reports_the_version_it_should(server: ServerProcess, raw: Redis) -> None:
    info = await raw.info("server")
    reported = info.get("valkey_version", info["redis_version"])
    assert reported.startswith(KINDS[server.kind].version)
    assert info["process_id"] == server.pid
    assert "graph" not in str(await raw.execute_command("MODULE", "LIST"))  # FalkorDB's module lies beside redis82


def test_a_missing_binary_is_a_failure_and_no_skip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIRETIME_TEST_REDIS70", str(tmp_path / "nothing"))
    binary.cache_clear()
    with pytest.raises(ServerUnusable, match="apt-get install redis-server"):
        binary("redis70")


def test_a_binary_of_another_version_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRETIME_TEST_REDIS70", str(binary("redis62")))
    binary.cache_clear()
    with pytest.raises(ServerUnusable, match=r"should be 7\.0\.x but says .*v=6\.2"):
        binary("redis70")


@pytest.mark.parametrize("kind", KINDS)
async def test_answered_writes_outlive_a_kill(kind: str, start_server: StartServer) -> None:
    server = start_server(kind, append_only=True)
    async with raw_client(server.url) as redis:
        for number in range(200):
            await redis.set("firetime:number", number)
    url, pid = server.url, server.pid
    server.kill()
    assert not server.running
    server.start()
    assert (server.url, server.pid != pid) == (url, True)
    async with raw_client(server.url) as redis:
        assert await redis.get("firetime:number") == b"199"
    server.restart()
    async with raw_client(server.url) as redis:
        assert await redis.get("firetime:number") == b"199"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_takes_directives(kind: str, start_server: StartServer) -> None:
    server = start_server(kind, requirepass="secret", maxmemory="64mb", maxmemory_policy="noeviction")
    assert ":secret@" in server.url
    async with raw_client(server.url) as redis:
        assert (await redis.config_get("maxmemory"))["maxmemory"] == "67108864"
        assert (await redis.config_get("maxmemory-policy"))["maxmemory-policy"] == "noeviction"


async def test_a_frozen_server_answers_when_it_is_thawed(start_server: StartServer) -> None:
    server = start_server()
    async with raw_client(server.url, timeout_s=0.3) as redis:
        await redis.ping()
        server.freeze()
        assert server.running
        assert not server.answering
        with pytest.raises(RedisTimeoutError):
            await redis.ping()
        server.thaw()
        assert await redis.ping()


def test_a_server_that_does_not_start_says_why(start_server: StartServer) -> None:
    with pytest.raises(ServerUnusable, match=r"it said:[\s\S]*nonsense"):
        start_server(maxmemory="nonsense")


async def test_servers_and_workers_end_when_pytest_is_killed(start_worker: StartWorker, tmp_path: Path) -> None:
    pytest_to_be = start_worker(
        """
        import sys, time
        from pathlib import Path
        from tests.kit.processes import WorkerProcess
        from tests.kit.servers import ServerProcess

        folder = Path(sys.argv[1])
        server = ServerProcess("valkey9", folder / "server").start()
        worker = WorkerProcess("import time; time.sleep(600)", folder=folder / "worker")
        print(server.pid, worker.pid, "started")
        time.sleep(600)
        """,
        str(tmp_path / "own"),
        env={"PYTHONPATH": str(ROOT)},
    )
    await until(lambda: pytest_to_be.printed.endswith("started\n"))
    pids = [int(word) for word in pytest_to_be.printed.split()[:2]]
    assert all(lives(pid) for pid in pids)
    pytest_to_be.kill()
    await until(lambda: not any(lives(pid) for pid in pids), what="both to end with the one that started them")


def lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


# --- keys


def test_a_key_that_nobody_documented_is_a_leak() -> None:
    assert unexpected_keys(["firetime:{q}:tasks", "elsewhere"]) == ["elsewhere"]


def test_a_test_that_leaks_a_key_fails(pytester_run: Callable[[str], str]) -> None:
    assert "keys left behind in valkey9: stray" in pytester_run(
        """
        async def test_leaks(raw):
            await raw.set("stray", 1)
        """
    )


def test_the_next_test_finds_the_server_empty(pytester_run: Callable[[str], str]) -> None:
    assert "2 passed" in pytester_run(
        """
        import pytest

        @pytest.mark.parametrize("time", [1, 2])
        async def test_leaves(raw, time):
            assert await raw.dbsize() == 0
            await raw.set("firetime:{q}:tasks", 1)
        """
    )


@pytest.fixture
def pytester_run(tmp_path: Path) -> Callable[[str], str]:
    """Runs a test file with this project's conftest, in a pytest of its own; returns what that says."""

    def run(source: str) -> str:
        folder = tmp_path / "inner"
        folder.mkdir()
        (folder / "conftest.py").write_text("from tests.conftest import *")
        (folder / "test_it.py").write_text(textwrap.dedent(source))
        options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, str(folder)]
        return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=100).stdout

    return run


def test_every_test_has_a_queue_of_its_own(queue_name: str, request: pytest.FixtureRequest) -> None:
    assert queue_name.startswith("test_every_test_has_a_queue_of_its_own.")
    assert len(queue_name) <= 100


# --- the proxy


async def test_without_a_fault_all_passes(through: Redis) -> None:
    payload = os.urandom(1 << 20)
    assert await through.set("firetime:large", payload)
    assert await through.get("firetime:large") == payload
    async with through.pipeline(transaction=True) as pipe:
        pipe.incr("firetime:count")
        pipe.mget("firetime:none", "firetime:count")
        pipe.rpush("firetime:list", "", "x")
        assert await pipe.execute() == [1, [None, b"1"], 2]
    with pytest.raises(RedisError, match="wrong"):
        await through.incr("firetime:list")


async def test_published_messages_pass(through: Redis, raw: Redis) -> None:
    async with through.pubsub() as listener:
        await listener.subscribe("one", "two")
        assert [(await listener.get_message(timeout=1) or {})["type"] for _ in range(2)] == ["subscribe", "subscribe"]
        await raw.publish("two", "news")
        assert (await listener.get_message(timeout=1) or {})["data"] == b"news"


async def test_a_cut_ends_the_connections_that_stand(proxy: FaultProxy, through: Redis) -> None:
    await through.ping()
    assert proxy.connections == 1
    blocked = asyncio.ensure_future(through.blpop(["firetime:list"], timeout=0.9))
    await asyncio.sleep(0.05)
    proxy.cut()
    with pytest.raises(RedisConnectionError):
        await blocked
    assert await through.ping()


async def test_who_connects_is_refused_until_the_door_is_open(proxy: FaultProxy, through: Redis) -> None:
    await through.ping()
    proxy.refuse()
    assert await through.ping()  # the connection that stands goes on
    async with raw_client(proxy.url) as late:
        with pytest.raises(RedisConnectionError, match="Connect call failed"):
            await late.ping()
        proxy.accept()
        assert await late.ping()


async def test_who_connects_while_the_door_is_closed_is_cut_or_refused_and_not_forgotten(
    valkey: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        proxy = FaultProxy(valkey.url)
        address = ("127.0.0.1", urlsplit(proxy.url).port)
        clients = [socket.create_connection(address, timeout=10) for _ in range(8)]
        proxy.refuse()
        proxy.cut()
        for client in clients:
            with client, contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
        proxy.accept()
        late = [socket.create_connection(address, timeout=10) for _ in range(8)]
        proxy.close()
        for client in late:
            with client, contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""
    gc.collect()  # what was forgotten makes itself heard as a warning, which is an error
    assert caplog.text == ""


async def test_a_proxy_that_is_pointed_elsewhere_sends_new_connections_there(
    proxy: FaultProxy, through: Redis, start_server: StartServer
) -> None:
    other = start_server()
    async with raw_client(other.url) as there:
        await there.set("firetime:which", "other")
    proxy.point_at(other.url)
    assert await through.get("firetime:which") == b"other"


async def test_in_a_blackhole_nothing_arrives_and_nobody_is_told(proxy: FaultProxy, through: Redis, raw: Redis) -> None:
    await through.ping()
    proxy.blackhole()
    with pytest.raises(RedisTimeoutError):
        await through.set("firetime:standing", 1)
    async with raw_client(proxy.url, timeout_s=0.3) as late:
        with pytest.raises(RedisTimeoutError):
            await late.set("firetime:new", 1)
    assert await raw.dbsize() == 0
    proxy.heal()
    assert await through.set("firetime:after", 1)


async def test_a_server_that_dies_in_a_blackhole_is_not_missed(
    start_server: StartServer, start_proxy: Callable[[str], FaultProxy]
) -> None:
    server = start_server()
    proxy = start_proxy(server.url)
    async with raw_client(proxy.url, timeout_s=0.3) as redis:
        await redis.ping()
        proxy.blackhole()
        server.kill()
        with pytest.raises(RedisTimeoutError):
            await redis.ping()


async def test_a_server_that_is_down_is_a_lost_connection(
    start_server: StartServer, start_proxy: Callable[[str], FaultProxy]
) -> None:
    server = start_server()
    proxy = start_proxy(server.url)
    async with raw_client(proxy.url) as redis:
        await redis.ping()
        server.stop()
        for _ in range(2):  # the connection that stood, and a new one
            with pytest.raises(RedisConnectionError):
                await redis.ping()
        server.start()
        assert await redis.ping()


async def test_a_swallowed_request_was_executed(proxy: FaultProxy, through: Redis, raw: Redis) -> None:
    await through.ping()
    proxy.swallow_replies(1)
    with pytest.raises(RedisConnectionError):
        await through.incr("firetime:count")
    assert await raw.get("firetime:count") == b"1"
    assert await through.incr("firetime:count") == 2


async def test_replies_are_swallowed_of_one_command_only(proxy: FaultProxy, through: Redis, raw: Redis) -> None:
    proxy.swallow_replies(2, only="INCRBY")  # a new connection begins with CLIENT SETINFO, which passes
    for left in (1, 0):
        with pytest.raises(RedisConnectionError):
            await through.incr("firetime:count")
        assert proxy.replies_to_swallow == left
    assert await through.get("firetime:count") == b"2"


async def test_of_a_pipeline_as_many_requests_arrive_as_replies_are_swallowed(
    proxy: FaultProxy, through: Redis, raw: Redis
) -> None:
    await through.ping()
    proxy.swallow_replies(3)
    async with through.pipeline(transaction=False) as pipe:
        for _ in range(5):
            pipe.incr("firetime:count")
        with pytest.raises(RedisConnectionError):
            await pipe.execute()
    assert await raw.get("firetime:count") == b"3"


async def test_a_delay_counts_each_way_and_keeps_the_order(proxy: FaultProxy, through: Redis) -> None:
    await through.ping()
    proxy.delay(0.1)
    began = time.monotonic()
    await asyncio.gather(*(through.rpush("firetime:list", number) for number in range(3)))
    took = time.monotonic() - began
    assert took >= 0.2
    proxy.delay(0)
    began = time.monotonic()
    await through.ping()
    assert time.monotonic() - began < 0.2


async def test_a_held_request_arrives_after_a_later_one(proxy: FaultProxy, through: Redis, raw: Redis) -> None:
    await through.ping()
    held = proxy.hold_next_request(only="SET")
    with pytest.raises(RedisTimeoutError):
        await through.set("firetime:order", "first")
    assert held.caught
    assert b"first" in (held.request or b"")
    await through.connection_pool.disconnect()  # its client is gone
    await through.set("firetime:order", "second")
    assert await raw.get("firetime:order") == b"second"
    assert held.release() == b"+OK\r\n"
    assert await raw.get("firetime:order") == b"first"


async def test_a_client_that_waits_gets_the_reply_to_its_held_request(proxy: FaultProxy, through: Redis) -> None:
    held = proxy.hold_next_request(only="INCRBY")
    waits = asyncio.ensure_future(through.incr("firetime:count"))
    await until(lambda: held.caught)
    assert held.release() == b":1\r\n"
    assert await waits == 1
    assert await through.incr("firetime:count") == 2


async def test_a_held_request_outlives_a_cut(proxy: FaultProxy, through: Redis, raw: Redis) -> None:
    held = proxy.hold_next_request(only="INCRBY")
    lost = asyncio.ensure_future(through.incr("firetime:count"))
    await until(lambda: held.caught)
    proxy.cut()
    with pytest.raises(RedisConnectionError):
        await lost
    assert await raw.get("firetime:count") is None
    assert held.release() == b":1\r\n"
    assert await raw.get("firetime:count") == b"1"


def test_a_request_that_was_not_caught_cannot_be_released(proxy: FaultProxy) -> None:
    with pytest.raises(RuntimeError, match="no request was caught"):
        proxy.hold_next_request().release()


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_frames_are_found_however_their_bytes_arrive(size: int) -> None:
    frames = [
        b"+OK\r\n",
        b"$-1\r\n",
        b"$4\r\n\r\n\r\n\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*1\r\n:1\r\n$0\r\n\r\n",
        b"%1\r\n+a\r\n*1\r\n_\r\n",
        b"|1\r\n+ttl\r\n:9\r\n*1\r\n#t\r\n",
        b">2\r\n+message\r\n=7\r\ntxt:abc\r\n",
        b"PING\r\n",
    ]
    stream, found, reader = b"".join(frames), [], Frames()
    for start in range(0, len(stream), size):
        found += reader.feed(stream[start : start + size])
    assert found == frames


@pytest.mark.parametrize("request_bytes", [b"*2\r\n$3\r\nget\r\n$1\r\nx\r\n", b"get x\r\n"])
def test_a_request_tells_its_command(request_bytes: bytes) -> None:
    assert command(request_bytes) == "GET"


# --- worker processes


async def test_a_worker_process_sees_firetime_and_prints_to_a_file(start_worker: StartWorker) -> None:
    worker = start_worker(
        "import os, sys; print(sys.argv[1], os.environ['GREETING'], os.environ['PYTHONPATH'])",
        "argument",
        env={"GREETING": "hello"},
    )
    assert worker.wait(10) == 0
    assert worker.printed.split() == ["argument", "hello", str(ROOT / "src")]


async def test_a_worker_process_does_not_see_what_configures_firetime(
    start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRETIME_URL", "redis://elsewhere")
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere")
    worker = start_worker("import os; print([n for n in os.environ if n in ('FIRETIME_URL', 'REDIS_URL')])")
    assert worker.wait(10) == 0
    assert worker.printed == "[]\n"


_TICKING = """
    import time
    while True:
        print("tick")
        time.sleep(0.01)
"""


async def test_a_worker_process_is_killed_and_says_so(start_worker: StartWorker) -> None:
    worker = start_worker(_TICKING)
    await until(lambda: "tick" in worker.printed)
    worker.kill()
    assert (worker.running, worker.returncode) == (False, -9)


async def test_a_worker_process_may_answer_a_polite_request(start_worker: StartWorker, tmp_path: Path) -> None:
    script = tmp_path / "polite.py"
    script.write_text(
        "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(3))\nprint('ready')\nwhile True: signal.pause()\n"
    )
    worker = start_worker(script)
    await until(lambda: "ready" in worker.printed)
    worker.terminate()
    assert worker.wait(5) == 3


async def test_a_frozen_worker_process_stands_still(start_worker: StartWorker) -> None:
    worker = start_worker(_TICKING)
    await until(lambda: "tick" in worker.printed)
    worker.freeze()
    before = worker.printed
    with pytest.raises(TimeoutError, match="still runs after"):
        worker.wait(0.1)
    assert worker.printed == before
    worker.thaw()
    await until(lambda: worker.printed > before)


async def test_what_a_worker_process_started_ends_with_the_test(start_worker: StartWorker) -> None:
    worker = start_worker(
        """
        import subprocess, sys, time
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
        time.sleep(600)
        """
    )
    await until(lambda: worker.printed.endswith("\n"))
    child = int(worker.printed)
    worker.kill()
    assert lives(child)  # as in real life
    worker.close()
    await until(lambda: not lives(child))


# --- waiting


async def test_waiting_returns_the_first_true_answer() -> None:
    answers = iter([0, None, "yes"])

    async def asked() -> object:
        return next(answers)

    assert await until(asked) == "yes"
    assert await until(lambda: 7) == 7


async def test_waiting_in_vain_says_for_what() -> None:
    found: list[int] = []
    with pytest.raises(AssertionError, match=r"waited 0\.01 s for: .*len\(found\) > 3.*; the last answer: False"):
        await until(lambda: len(found) > 3, timeout=0.01)
    with pytest.raises(AssertionError, match="for: three finds"):
        await until(lambda: len(found) > 3, timeout=0.01, what="three finds")
