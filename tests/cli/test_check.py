"""The check tells what is in force and what is wrong, and its exit code is for probes."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from redis import Redis

from firetime import TaskRunner
from tests.cli.shell import Shell, send, soon, told

if TYPE_CHECKING:
    from tests.conftest import StartServer

BLOCK = """
@task
async def block() -> None:
    note("begin")
    while not Path("go").exists():
        time.sleep(0.01)
    note("end")
"""


async def test_a_healthy_server_is_0(shell: Shell) -> None:
    said = await shell.type("check")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "healthy"
    assert "Valkey 9.1." in said.out
    assert "warning: appendonly is off" in said.out
    assert "maxmemory-policy" not in said.out
    told = (await shell.type("check", "--json")).json
    assert (told["healthy"], told["problems"], told["address_source"]) == (True, [], "FIRETIME_URL")


async def test_every_setting_tells_where_it_came_from(shell: Shell) -> None:
    environment = shell.env | {"FIRETIME_LEASE": "6", "FIRETIME_PREFIX": "other"}
    told = (await shell.type("check", "--prefix", "mine", "--json", env=environment)).json
    settings = {each["name"]: (each["value"], each["source"]) for each in told["settings"]}
    assert settings["prefix"] == ("mine", "argument")
    assert settings["lease"] == (6.0, "FIRETIME_LEASE")
    assert settings["heartbeat"] == (2.0, "default")
    assert settings["max_leaked_threads"] == (settings["threads"][0], "default")
    assert settings["task_processes"][0] >= 1
    assert settings["promote_batch"] == (250, "default")
    line = next(
        line for line in (await shell.type("check", env=environment)).out.splitlines() if line.startswith("lease")
    )
    assert line.split()[:4] == ["lease", "6", "s", "FIRETIME_LEASE"]


async def test_no_server_is_1(shell: Shell, start_server: StartServer) -> None:
    server = start_server()
    server.stop()
    said = await shell.type("check", "--url", server.url)
    assert said.code == 1
    assert f"problem: no connection from {server.url}" in said.out.splitlines()[-1]
    assert "promote_batch" in said.out, "the settings are told all the same"
    told = await shell.type("check", "--url", server.url, "--json")
    assert (told.code, told.json["healthy"], told.json["server"], told.err) == (1, False, None, "")


async def test_wrong_credentials_are_1_and_never_shown(shell: Shell, start_server: StartServer) -> None:
    server = start_server(requirepass="secret")
    assert (await shell.type("check", "--url", server.url)).code == 0
    said = await shell.type("check", "--url", server.url.replace("secret", "guess"))
    assert said.code == 1
    assert "problem: the server refuses these credentials" in said.out
    assert "redis://:***@127.0.0.1" in said.out
    assert "guess" not in said.out + said.err


async def test_a_server_that_may_evict_is_warned_of(shell: Shell, start_server: StartServer) -> None:
    server = start_server(append_only=True, maxmemory_policy="allkeys-lru")
    said = await shell.type("check", "--url", server.url)
    assert said.code == 0
    assert "warning: maxmemory-policy is allkeys-lru" in said.out
    assert "appendonly" not in said.out


async def test_a_replica_is_1(shell: Shell, start_server: StartServer) -> None:
    primary, replica = start_server(), start_server()
    with Redis.from_url(replica.url) as line:
        line.replicaof("127.0.0.1", primary.port)
        said = await shell.type("check", "--url", replica.url)
        line.replicaof("NO", "ONE")
    assert said.code == 1
    assert "problem: the server is a read-only replica" in said.out


async def test_fewer_replicas_than_a_dispatch_waits_for_are_1(shell: Shell) -> None:
    said = await shell.type("check", env=shell.env | {"FIRETIME_MIN_REPLICAS": "1"})
    assert said.code == 1
    assert "problem: min_replicas is 1, the server has 0: no dispatch can be confirmed" in said.out


async def test_a_probe_wants_a_worker_that_was_seen(shell: Shell, runner: TaskRunner) -> None:
    probe = ("check", "--worker", "--here", "-q", shell.queue)
    said = await shell.type(*probe)
    assert said.code == 1
    assert f"problem: no worker of queue {shell.queue} on {socket.gethostname()} was seen for 45 s" in said.out
    scheduler = shell.start("scheduler", "app")
    await soon(lambda: told(scheduler, "promoted"))
    assert (await shell.type(*probe)).code == 1, "a scheduler is no worker"
    worker = shell.start("worker", "app")
    await soon(lambda: _has_worker(runner, shell.queue))
    said = await shell.type(*probe)
    assert said.code == 0
    assert "epoch 1" in said.out
    assert (await shell.type("check", "--worker", "--app", "app")).code == 0
    for each in (worker, scheduler):
        each.terminate()
        assert each.wait(60) == 0
    assert (await shell.type(*probe)).code == 1


async def test_a_worker_whose_loop_is_blocked_is_no_worker_to_a_probe(shell: Shell, runner: TaskRunner) -> None:
    with (shell.folder / "app.py").open("a") as app:
        app.write(BLOCK)
    probe = ("check", "--worker", "-q", shell.queue)
    blocked = shell.start("worker", "app")
    await soon(lambda: _has_worker(runner, shell.queue))
    assert (await shell.type(*probe)).code == 0
    await send(runner, shell.queue, "block")
    await soon(lambda: "begin" in shell.journal())

    async def it_says_so() -> bool:
        return any(each.ailing for each in await runner.overview.workers(shell.queue))

    await soon(it_says_so)
    said = await shell.type(*probe)
    assert said.code == 1
    assert f"problem: worker {(await runner.overview.workers(shell.queue))[0].worker} (" in said.out
    assert "does not work: event loop" in said.out
    other = shell.start("worker", "app")
    await soon(lambda: told(other, "ready"))
    said = await shell.type(*probe)
    assert (said.code, "warning: worker " in said.out) == (0, True)
    shell.let_go()
    await soon(lambda: "end" in shell.journal())
    for each in (blocked, other):
        each.terminate()
        assert each.wait(60) == 0


async def test_the_queues_are_shown(shell: Shell, runner: TaskRunner) -> None:
    await send(runner, shell.queue, "greet", "you")
    (queue,) = (await shell.type("check", "--json")).json["queues"]
    assert (queue["queue"], queue["ready"], queue["leader"]) == (shell.queue, 1, "")


async def _has_worker(runner: TaskRunner, queue: str) -> bool:
    return any(each.works for each in await runner.overview.workers(queue))
