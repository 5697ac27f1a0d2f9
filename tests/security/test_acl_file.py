"""What `firetime acl` prints is an ACL file: with it three users do one story, each their own part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from firetime import BrokerRefused, Fixed, InvalidOption, TaskRunner
from firetime.faces.cli.command import make
from tests.kit.clients import raw_client
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.conftest import StartServer

PREFIX = "shop"


def printed(*arguments: str) -> tuple[str, dict[str, str]]:
    """The file, and the passwords by user."""
    answer = CliRunner().invoke(make(), ["acl", *arguments])
    assert answer.exit_code == 0, answer.output
    passwords = dict(line.split(" ") for line in answer.stderr.splitlines())
    assert not any(password in answer.stdout for password in passwords.values())
    return answer.stdout, passwords


@pytest.fixture(params=["valkey9", "redis70", "redis62"])
async def as_user(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path
) -> AsyncIterator[Callable[..., TaskRunner]]:
    """Makes a runner of a user, on a server that knows its users from the file."""
    old = ["--redis-6"] if request.param == "redis62" else []
    said, passwords = printed("--prefix", PREFIX, "--queue", "orders", *old)
    file = tmp_path / "users.acl"
    file.write_text("user default on nopass sanitize-payload ~* &* +@all\n" + said)
    server = start_server(request.param, aclfile=str(file))
    made: list[TaskRunner] = []

    def runner(role: str, **settings: Any) -> TaskRunner:
        user = f"{PREFIX}-{role}"
        login: dict[str, Any] = {"username": user, "password": passwords[user], "prefix": PREFIX}
        made.append(TaskRunner(server.url, **login, **settings))
        return made[-1]

    yield runner
    for each in made:
        await each.aclose()
    async with raw_client(server.url) as raw:
        await raw.flushall()


def declare(runner: TaskRunner, ran: list[int]) -> Any:
    @runner.task(
        queue="orders", result_ttl=60, max_retry=1, backoff=Fixed(0.01), unique_for="done", delete_on_ack=False
    )
    async def pay(invoice: int) -> int:
        ran.append(invoice)
        if invoice < 0:
            raise ValueError(invoice)
        return 2 * invoice

    return pay


async def test_a_story_of_four_users(as_user: Callable[..., TaskRunner], queue_name: str) -> None:
    ran: list[int] = []
    troubles: list[BaseException] = []
    producer, dashboard, operator = as_user("producer"), as_user("dashboard"), as_user("operator")
    worker = as_user("worker", sweep=0.1, long_queue_threshold=1000)
    worker.on_error(troubles.append)
    pay = declare(producer, [])
    worker.every(0.2, name="often", args=(7,), overlap="skip")(declare(worker, ran))
    await worker.start()
    assert await (await pay.dispatch(21)).result(timeout=60) == 42
    assert await (await pay.dispatch_delayed(0.05, 4)).result(timeout=60) == 8
    bad = await pay.dispatch(-1)

    async def is_dead() -> bool:
        return await dashboard.dead("orders").count() == 1

    await until(is_dead, timeout=60)
    assert (await dashboard.dead("orders").show(bad.task_id)).args == [-1]
    later = await pay.dispatch_delayed(3600, 9)
    stats = await dashboard.stats("orders")
    assert (stats.dead, stats.delayed >= 1, stats.workers) == (1, True, 1)
    assert "orders" in await dashboard.overview.queues()
    await until(lambda: 7 in ran, timeout=60)
    assert [each.name for each in await dashboard.schedules.list(queue="orders")] == ["often"]
    await operator.schedules.remove("often", queue="orders")
    assert await operator.handle(later.task_id, queue="orders").cancel() == "cancelled"
    await operator.dead("orders").purge(bad.task_id)
    if (
        "redis62" not in queue_name
    ):  # it cannot tell that a producer may look whether a queue is paused, and not pause it
        with pytest.raises(BrokerRefused):
            await producer.pause("orders")
    for attempt in (
        producer.handle(later.task_id, queue="orders").cancel(),
        dashboard.dispatch("pay", 1),
        dashboard.pause("orders"),
        dashboard.named("pay", queue="orders").dispatch(1),
        operator.named("pay", queue="another").dispatch(1),
    ):
        with pytest.raises(BrokerRefused):
            await attempt
    await worker.stop()
    assert troubles == []


async def test_a_worker_that_may_not_claim_says_so_and_does_not_spin(as_user: Callable[..., TaskRunner]) -> None:
    runner = as_user("dashboard")
    declare(runner, [])
    troubles: list[BaseException] = []
    runner.on_error(troubles.append)
    try:
        await runner.start()
        await until(lambda: bool(troubles), timeout=60)
    except BrokerRefused as error:
        troubles.append(error)
    assert isinstance(troubles[0], BrokerRefused)


async def test_a_result_is_refused_to_who_may_not_listen(start_server: StartServer) -> None:
    said, passwords = printed("app=producer")
    server = start_server("valkey9")
    words = [word for word in said.split()[2:] if not word.startswith("&")]
    async with raw_client(server.url) as raw:
        await raw.execute_command("ACL", "SETUSER", "app", "reset", *words)
    runner = TaskRunner(server.url, username="app", password=passwords["app"])
    handle = await runner.named("any", result_ttl=60).dispatch()
    for _ in range(2):
        with pytest.raises(BrokerRefused, match="rights"):
            await handle.result(timeout=60)
    await runner.aclose()


@pytest.mark.parametrize("said", ["boss", "me=boss", "me=", "worker+boss"])
def test_a_role_that_there_is_not_is_named(said: str) -> None:
    answer = CliRunner().invoke(make(), ["acl", said])
    assert answer.exit_code == 1
    assert "expected one of producer, worker, dashboard, operator" in str(answer.exception)


def test_it_needs_no_server_whatever_the_environment_says_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRETIME_TLS_CA", "/nowhere/ca.pem")
    monkeypatch.setenv("FIRETIME_PREFIX", "shop")
    answer = CliRunner().invoke(make(), ["acl", "worker"])
    assert answer.exit_code == 0
    assert answer.stdout.startswith("user shop-worker on ")
    assert isinstance(CliRunner().invoke(make(), ["acl", "--prefix", "a b"]).exception, InvalidOption)
