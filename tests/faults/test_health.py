"""Somebody asks whether a worker is well, and hears the truth also while its event loop cannot answer."""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from firetime import InvalidOption
from firetime.worker.wellbeing import Facts, examine
from tests.kit.asking import ask
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from firetime import TaskRunner
    from tests.kit.proxy import FaultProxy
    from tests.story.stage import NewRunner


def port_of(runner: TaskRunner) -> int:
    assert runner.worker is not None
    assert runner.worker.health_page is not None
    host, port = runner.worker.health_page
    assert host == "127.0.0.1"
    return port


async def until_it_says(port: int, path: str, status: int, *, timeout: float = 30) -> Any:
    """What it says then."""
    told: list[Any] = []

    async def said() -> bool:
        answered, document = await ask(port, path)
        told[:] = [document]
        return answered == status

    await until(said, timeout=timeout, what=f"{path} to be {status}")
    return told[0]


async def test_a_worker_that_works_is_alive_and_ready(new_runner: NewRunner) -> None:
    runner = new_runner(health="0")
    async with runner:
        port = port_of(runner)
        for path in ("/livez", "/readyz", "/health", "/health?full"):
            status, told = await ask(port, path)
            assert (status, told["alive"], told["ready"], told["ailing"]) == (200, True, True, {})
            assert told["queues"] == ["default"]
        assert (await ask(port, "/health", method="HEAD")) == (200, None)
        assert (await ask(port, "/health", method="POST"))[0] == 405
        assert (await ask(port, "/"))[0] == 404
    with pytest.raises(OSError):  # noqa: PT011 - nobody listens any more
        await ask(port, "/health")


async def test_what_is_no_question_harms_nobody(new_runner: NewRunner) -> None:
    runner = new_runner(health="127.0.0.1:0")
    async with runner:
        port = port_of(runner)
        for rubbish in (b"", b"\r\n\r\n", b"\x00" * 20_000, b"GET\r\n\r\n", b"GET /health HTTP/1.1\r\n"):
            with socket.create_connection(("127.0.0.1", port)) as line:
                line.sendall(rubbish)
        assert (await ask(port, "/health"))[0] == 200


async def test_an_address_that_is_taken_is_refused_at_the_start(new_runner: NewRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        runner = new_runner(health=str(taken.getsockname()[1]))
        with pytest.raises(InvalidOption, match="an address of this machine that is free"):
            await runner.start()
        assert runner.worker is None
    for wrong in ("here", "1.2.3.4:port", "70000"):
        with pytest.raises(InvalidOption, match="health"):
            new_runner(health=wrong)


@pytest.mark.parametrize("how", ["refuse", "blackhole"])
async def test_a_worker_without_its_server_is_not_ready_though_its_process_lives(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str, how: str
) -> None:
    proxy = start_proxy(url)
    runner = new_runner(proxy.url, health="0", lease=3)
    await runner.start()
    port = port_of(runner)
    await until_it_says(port, "/readyz", 200)
    if how == "refuse":
        proxy.refuse()
        proxy.cut()
    else:
        proxy.blackhole()
    told = await until_it_says(port, "/readyz", 503, timeout=60)
    assert any("has failed for" in why for why in told["ailing"].values())
    # a new process would not find the server either
    assert (await ask(port, "/livez"))[0] == 200
    proxy.heal()
    assert (await until_it_says(port, "/readyz", 200))["ailing"] == {}


async def test_a_worker_is_well_again_as_soon_as_it_consumes_again(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str
) -> None:
    proxy = start_proxy(url)
    runner = new_runner(proxy.url)
    await runner.start()
    worker = runner.worker
    assert worker is not None
    for _ in range(3):
        proxy.refuse()
        proxy.cut()
        await until(lambda: not worker.healthy)
        proxy.heal()
        began = time.monotonic()
        await until(lambda: worker.healthy)
        # the bell, which is listened to for 5 s at a time, used to be the last to notice
        assert time.monotonic() - began < 4


async def test_a_blocked_event_loop_is_told_by_a_page_that_does_not_need_it(new_runner: NewRunner) -> None:
    runner = new_runner(health="0", block_warning=0.5)
    told: list[tuple[int, Any]] = []

    @runner.task
    async def block() -> None:
        line = http.client.HTTPConnection("127.0.0.1", port_of(runner), timeout=10)
        late = time.monotonic() + 60
        while time.monotonic() < late and not (told and told[-1][0] == 503):
            line.request("GET", "/readyz")
            answer = line.getresponse()
            told.append((answer.status, json.loads(answer.read())))
            time.sleep(0.05)
        line.request("GET", "/livez")
        told.append((line.getresponse().status, None))
        line.close()

    handle = await block.dispatch()
    await runner.start()
    await until(lambda: told and told[-1][1] is None, timeout=70)
    *_, (status, document), (alive, _) = told
    assert status == 503
    assert alive == 200
    assert f"task 'block' ({handle.task_id}) has blocked it for " in document["ailing"]["event loop"]
    await until_it_says(port_of(runner), "/readyz", 200)


async def test_a_loop_that_turns_no_more_is_what_a_new_process_would_mend(new_runner: NewRunner) -> None:
    runner = new_runner(health="0")
    await runner.start()
    assert runner.worker is not None
    port = port_of(runner)
    # nothing known brings a loop to hang: here one is said to have promised to turn long ago
    runner.worker._health.turns("claims of a loop that hangs", -60)
    told = await until_it_says(port, "/livez", 503)
    assert list(told["ailing"]) == ["claims of a loop that hangs"]
    assert not runner.worker.healthy
    runner.worker._health.turns("claims of a loop that hangs", math.inf)
    await until_it_says(port, "/readyz", 200)


def test_what_passes_by_itself_is_told_apart_from_what_does_not() -> None:
    def seen(**facts: Any) -> tuple[bool, bool]:
        found = examine(Facts(stall_limit_s=300, **facts), worker="w", queues=[], running=0, leaked_threads=0)
        return found.alive, found.ready

    assert seen() == (True, True)
    assert seen(blocked_s=2.9) == (True, True)
    assert seen(blocked_s=3.1) == (True, False)
    assert seen(blocked_s=301) == (False, False)
    assert seen(troubled={"claims": "no answer"}) == (True, False)
    assert seen(stuck={"claims": "late"}) == (False, False)
    assert seen(broken="a part of it broke") == (False, False)
    assert seen(spent="17 threads are lost") == (False, False)
    assert seen(stopping=True) == (True, False)
