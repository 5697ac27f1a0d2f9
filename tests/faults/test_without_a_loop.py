"""Code without an event loop dispatches through the same trouble, in the thread that calls."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from firetime import BrokerRefused, BrokerUnavailable, TaskRunner
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

    from tests.conftest import StartServer, StartWorker
    from tests.kit.proxy import FaultProxy
    from tests.story.stage import NewRunner

A_MOMENT_S = 5
"""A loaded machine's; what is waited for otherwise takes a minute."""


async def blocking(function: Callable[..., Any], *args: Any) -> Any:
    """In a thread without an event loop."""
    return await asyncio.to_thread(function, *args)


@pytest.fixture
def proxy(start_proxy: Callable[[str], FaultProxy], url: str) -> FaultProxy:
    return start_proxy(url)


@pytest.fixture
def far(proxy: FaultProxy, new_runner: NewRunner) -> TaskRunner:
    """A producer behind the proxy."""
    return new_runner(proxy.url)


@pytest.mark.usefixtures("server")
async def test_a_dispatch_whose_reply_was_lost_is_repeated_and_sent_once(
    far: TaskRunner, proxy: FaultProxy, runner: TaskRunner
) -> None:
    await blocking(far.dispatch_sync, "see")
    proxy.swallow_replies(1, only="EVALSHA")
    await blocking(far.dispatch_sync, "see")
    assert (await runner.stats()).ready == 2
    assert (await blocking(far.dispatch_sync, "see")).task_id
    assert (await runner.stats()).ready == 3


@pytest.mark.usefixtures("server")
async def test_a_script_that_the_server_forgot_is_sent_again(runner: TaskRunner, raw: Redis) -> None:
    await blocking(runner.dispatch_sync, "see")
    await raw.script_flush()
    await blocking(runner.dispatch_sync, "see")
    assert (await runner.stats()).ready == 2


async def test_a_server_that_comes_back_is_found_again(start_server: StartServer) -> None:
    server = start_server(append_only=True)
    runner = TaskRunner(server.url, dispatch_deadline=30)
    await blocking(runner.dispatch_sync, "see")
    await asyncio.to_thread(server.restart)
    await blocking(runner.dispatch_sync, "see")
    assert (await runner.stats()).ready == 2
    await runner.aclose()
    await blocking(runner.close)


@pytest.mark.parametrize("how", ["gone", "frozen"])
async def test_a_dispatch_says_within_its_deadline_that_the_server_is_away(start_server: StartServer, how: str) -> None:
    server = start_server()
    runner = TaskRunner(server.url, dispatch_deadline=0.5)
    await blocking(runner.dispatch_sync, "see")
    await asyncio.to_thread(server.freeze if how == "frozen" else server.stop)
    began = time.perf_counter()
    with pytest.raises(BrokerUnavailable) as away:
        await blocking(runner.dispatch_sync, "see")
    assert time.perf_counter() - began < 0.5 + A_MOMENT_S
    assert away.value.maybe_accepted == (how == "frozen")
    server.thaw()
    await runner.aclose()
    await blocking(runner.close)


@pytest.mark.parametrize("url", ["redis://:secret@{}", "redis://{}/2", "rediss://{}"])
async def test_a_server_that_takes_the_connection_and_says_nothing_is_given_up_within_the_deadline(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        runner = TaskRunner(url.format(f"127.0.0.1:{mute.getsockname()[1]}"), dispatch_deadline=0.5)
        began = time.perf_counter()
        with pytest.raises(BrokerUnavailable) as away:
            await asyncio.wait_for(blocking(runner.dispatch_sync, "see"), 0.5 + A_MOMENT_S)
        assert time.perf_counter() - began < 0.5 + A_MOMENT_S
        assert not away.value.maybe_accepted
    await runner.aclose()
    await blocking(runner.close)


async def test_wrong_credentials_are_refused_and_not_shown(start_server: StartServer) -> None:
    server = start_server(requirepass="right")
    runner = TaskRunner(server.url.replace(":right@", ":wrong@"))
    with pytest.raises(BrokerRefused, match="credentials") as refused:
        await blocking(runner.dispatch_sync, "see")
    assert "wrong@" not in str(refused.value)
    await runner.aclose()
    await blocking(runner.close)


@pytest.mark.usefixtures("server")
async def test_calls_go_on_after_the_runner_was_closed_as_they_do_with_a_loop(runner: TaskRunner) -> None:
    await blocking(runner.dispatch_sync, "see")
    await blocking(runner.close)
    await blocking(runner.dispatch_sync, "see")
    assert (await runner.stats()).ready == 2


@pytest.mark.one_server
@pytest.mark.usefixtures("server")
async def test_a_runner_that_only_dispatched_closes_its_connections(url: str, prefix: str, raw: Redis) -> None:
    async def connections() -> int:
        return int((await raw.info("clients"))["connected_clients"])

    async def as_before() -> bool:
        return await connections() == before

    runner = TaskRunner(url, prefix=prefix)
    before = await connections()
    await blocking(runner.dispatch_sync, "see")
    assert await connections() == before + 1
    await blocking(runner.close)
    await until(as_before)


INTERRUPTED = """
    import faulthandler, os, signal, threading, time
    from firetime import TaskRunner

    runner = TaskRunner("redis://127.0.0.1:1")

    @runner.task
    def see() -> None: ...

    ids, handled, sent = [], [0], [0]

    def interrupt(*_: object) -> None:
        ids.append(see.message().task_id)
        handled[0] += 1

    def poke(thread: int) -> None:
        while True:
            if handled[0] == sent[0]:
                sent[0] += 1
                signal.pthread_kill(thread, signal.SIGUSR1)
            time.sleep(0.0005)

    signal.signal(signal.SIGUSR1, interrupt)
    faulthandler.dump_traceback_later(50, exit=True)
    threading.Thread(target=poke, args=(threading.get_ident(),), daemon=True).start()
    while handled[0] < 200:
        ids.append(see.message().task_id)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os._exit(0 if len(set(ids)) == len(ids) else 1)
"""


def test_a_signal_handler_may_make_messages_while_one_is_made(start_worker: StartWorker) -> None:
    assert start_worker(INTERRUPTED).wait(60) == 0
