"""Queues, messages and dead letters are looked at and acted on: as text for people, as JSON for programs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from firetime import Status, TaskRunner
from firetime.values.ids import new_id
from tests.cli.shell import SRC, Shell, send, soon
from tests.embedded.users import ended, sweep
from tests.kit.processes import bare_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def working(shell: Shell, runner: TaskRunner) -> AsyncIterator[TaskRunner]:
    """A runner with a worker in this process, which serves the test's queue."""
    served = TaskRunner(shell.env["FIRETIME_URL"], queues=(shell.queue,))

    @served.task(queue=shell.queue, max_retry=0)
    async def fail(text: str) -> None:
        raise ValueError(text)

    @served.task(queue=shell.queue, max_retry=0, name="other")
    async def fail_otherwise() -> None:
        raise OSError("\x1b[31mno route\x1b[0m to host")

    @served.task(queue=shell.queue, result_ttl=60)
    async def double(number: int) -> int:
        return 2 * number

    await served.start()
    yield served
    await served.aclose()


# --- queues


async def test_queues_tells_lengths_and_who_leads(shell: Shell, working: TaskRunner) -> None:
    await send(working, shell.queue, "double", 1, delay=600)
    await send(working, shell.queue, "fail", "no")
    await soon(lambda: _dead(working, shell.queue, 1))
    (told,) = (await shell.type("queues", "--json", "-q", shell.queue)).json
    worker = working.worker
    assert worker is not None
    assert (told["delayed"], told["dead"], told["workers"], told["paused"]) == (1, 1, 1, False)
    assert (told["leader"], told["leader_epoch"]) == (worker.token, 1)
    assert told["leader_since_ms"] <= told["server_ms"] < told["next_fire_ms"] <= told["server_ms"] + 600_000
    said = await shell.type("queues")
    assert said.code == 0
    assert f"{worker.token}, epoch 1" in said.out
    assert "since " in said.out
    assert "1, next in 10 min" in said.out
    assert "\x1b" not in said.out


async def test_no_queues_are_no_error(shell: Shell) -> None:
    assert (await shell.type("queues", "--prefix", "nobody-uses-this")).out == "no queues yet\n"
    assert (await shell.type("queues", "--prefix", "nobody-uses-this", "--json")).json == []


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(shell: Shell, working: TaskRunner) -> None:
    assert (await shell.type("pause", shell.queue)).out.startswith(f"{shell.queue} is paused")
    task_id = await send(working, shell.queue, "double", 1)
    assert "paused" in (await shell.type("queues")).out
    assert (await working.handle(task_id, queue=shell.queue).status()) is Status.READY
    assert (await shell.type("resume", shell.queue, "--json")).json == {"queue": shell.queue, "paused": False}
    assert await working.handle(task_id, queue=shell.queue).result(10) == 2
    assert (await shell.type("resume", shell.queue)).out == f"{shell.queue} was not paused\n"


# --- tasks


async def test_tasks_ls_pages_through_the_future_by_fire_time(shell: Shell, runner: TaskRunner) -> None:
    near, far = shell.queue, f"{shell.queue}.far"
    ids = {}
    for hours in (5, 1, 4, 2, 3):
        ids[hours] = await send(runner, far if hours % 2 else near, "greet", f"{hours}", delay=hours * 3600)
    chosen = ("tasks", "ls", "--delayed", "-q", near, "-q", far)
    pages = [
        (await shell.type(*chosen, "--json", "--limit", "2", "--offset", str(offset))).json for offset in (0, 2, 4)
    ]
    assert [page["total"] for page in pages] == [5, 5, 5]
    listed = [each for page in pages for each in page["tasks"]]
    assert [each["id"] for each in listed] == [ids[hours] for hours in range(1, 6)]
    assert listed[0]["args"] == ["1"]
    assert listed[0]["fire_ms"] < listed[1]["fire_ms"]
    said = await shell.type(*chosen, "--limit", "2")
    assert 'greet("1")' in said.out
    assert "in 60 min" in said.out or "in 1.0 h" in said.out
    assert said.out.splitlines()[-1] == "1 to 2 of 5 delayed; next page: --offset 2"


async def test_tasks_ls_pages_through_what_is_ready(shell: Shell, runner: TaskRunner) -> None:
    ids = [await send(runner, shell.queue, "greet", str(number)) for number in range(4)]
    urgent = await send(runner, shell.queue, "greet", "urgent", priority="high")
    await send(runner, shell.queue, "greet", "later", delay=600)
    pages = [
        (await shell.type("tasks", "ls", "--json", "--limit", "3", "--offset", offset)).json for offset in ("0", "3")
    ]
    assert [each["id"] for page in pages for each in page["tasks"]] == [urgent, *ids]
    assert {each["status"] for page in pages for each in page["tasks"]} == {"ready"}
    assert (await shell.type("tasks", "ls")).out.splitlines()[-1].startswith("5 ready or running; 1 delayed: ")


async def test_tasks_show_tells_a_result(shell: Shell, working: TaskRunner) -> None:
    task_id = await send(working, shell.queue, "double", 21)
    await working.handle(task_id, queue=shell.queue).result(10)
    told = (await shell.type("tasks", "show", task_id, "--json")).json
    assert (told["status"], told["result"], told["queue"]) == ("done", 42, shell.queue)
    assert "result  42" in _squeezed((await shell.type("tasks", "show", task_id)).out)


async def test_tasks_show_tells_what_group_a_message_is_a_member_of(shell: Shell, runner: TaskRunner) -> None:
    member, then = (runner.named("absent", queue=shell.queue).message() for _ in range(2))
    group = await runner.group([member], then=then)
    shown = ("tasks", "show", group.members[0].task_id, "-q", shell.queue)
    assert (await shell.type(*shown, "--json")).json["group"] == group.group_id
    assert f"member of group  {group.group_id}" in _squeezed((await shell.type(*shown)).out)


async def test_tasks_show_tells_what_waits(shell: Shell, runner: TaskRunner) -> None:
    options: dict[str, Any] = {"delay": 90, "headers": {"trace": "t1"}, "task_id": f"own-{new_id()}"}
    task_id = await send(runner, shell.queue, "greet", "you", **options)
    lines = _squeezed((await shell.type("tasks", "show", task_id, "-q", shell.queue)).out).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["id", "call", "queue", "status", "due", "priority", "headers"]
    assert 'call      greet("you")' in lines
    assert 'headers   {"trace":"t1"}' in lines
    assert any(line.startswith("due") and line.endswith(("in 2 min", "in 1 min", " s")) for line in lines)


async def test_tasks_cancel_tells_truthfully(shell: Shell, runner: TaskRunner) -> None:
    task_id = await send(runner, shell.queue, "greet", "you", delay=600)
    said = await shell.type("tasks", "cancel", task_id)
    assert (said.code, said.out) == (0, f"{task_id} is cancelled\n")
    again = await shell.type("tasks", "cancel", task_id, "--json")
    assert (again.code, again.json) == (1, {"id": task_id, "answer": "finished"})


@pytest.mark.parametrize("words", [("tasks", "show"), ("tasks", "cancel"), ("dead", "show"), ("dead", "replay")])
async def test_an_unknown_id_is_one_line(shell: Shell, runner: TaskRunner, words: tuple[str, ...]) -> None:
    await send(runner, shell.queue, "greet", "you")
    said = await shell.type(*words, "nope", "--json")
    assert (said.code, said.out) == (1, "")
    (line,) = said.err.splitlines()
    assert line.startswith("no message 'nope' ")
    assert shell.queue in line


# --- dead


async def test_dead_letters_are_listed_and_shown(shell: Shell, working: TaskRunner) -> None:
    first = await send(working, shell.queue, "fail", "no [red]way[/red]")
    await soon(lambda: _dead(working, shell.queue, 1))
    second = await send(working, shell.queue, "other")
    await soon(lambda: _dead(working, shell.queue, 2))
    assert [each["id"] for each in (await shell.type("dead", "ls", "--json")).json["dead"]] == [first, second]
    told = (await shell.type("dead", "ls", "--json", "--error", "OSError")).json
    assert ([each["id"] for each in told["dead"]], told["total"]) == ([second], 2)
    said = await shell.type("dead", "ls")
    assert "ValueError: no [red]way[/red]" in said.out
    assert "exhausted after 1 failure" in said.out
    assert r"OSError: \x1b[31mno route\x1b[0m to host" in said.out
    shown = await shell.type("dead", "show", first)
    assert "Traceback (most recent call last):" in shown.out
    assert 'call      fail("no [red]way[/red]")' in shown.out
    (error,) = (await shell.type("dead", "show", first, "--json")).json["errors"]
    assert (error["type"], error["text"]) == ("ValueError", "no [red]way[/red]")


async def test_dead_letters_are_replayed_one_or_many(shell: Shell, working: TaskRunner) -> None:
    one = await send(working, shell.queue, "fail", "1")
    await send(working, shell.queue, "fail", "2")
    await send(working, shell.queue, "other")
    await soon(lambda: _dead(working, shell.queue, 3))
    await working.stop()
    assert (await shell.type("dead", "replay", one)).out == "1 replayed\n"
    look = await working.handle(one, queue=shell.queue).look()
    assert (look.status, look.state.failures) == (Status.READY, 0)
    assert (await shell.type("dead", "replay", "--all", "--task", "other", "--json")).json == {"replayed": 1}
    assert (await shell.type("dead", "replay", "--all", "--error", "KeyError", "--json")).json == {"replayed": 0}
    assert (await shell.type("dead", "replay", "--all")).out == "1 replayed\n"
    assert (await working.stats(shell.queue)).ready == 3


async def test_purge_asks_before_it_deletes_all(shell: Shell, working: TaskRunner) -> None:
    one = await send(working, shell.queue, "fail", "1")
    await send(working, shell.queue, "fail", "2")
    await soon(lambda: _dead(working, shell.queue, 2))
    unanswered = await shell.type("dead", "purge", "--all")
    assert (unanswered.code, unanswered.out) == (1, "")
    assert "Delete all dead letters for good?" in unanswered.err
    assert await working.dead(shell.queue).count() == 2
    assert (await shell.type("dead", "purge", one)).out == "1 purged\n"
    assert (await shell.type("dead", "purge", "--all", "--yes", "--json")).json == {"purged": 1}


@pytest.mark.parametrize("words", [(), ("some-id", "--all"), ("some-id", "--task", "a")])
async def test_either_an_id_or_all(shell: Shell, words: tuple[str, ...]) -> None:
    assert (await shell.type("dead", "replay", *words)).code == 2


# --- which server


async def test_without_a_server_nothing_is_started(shell: Shell) -> None:
    said = await shell.type("queues", env={})
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("which server? Give --url or --app, or set FIRETIME_URL")
    assert not (shell.folder / ".firetime").exists()


async def test_an_embedded_server_is_joined_where_there_is_one(shell: Shell) -> None:
    home = shell.folder / ".firetime"
    dispatch = "from app import *; greet.dispatch_sync('you'); runner.close()"
    try:
        environment = bare_environment() | {"PYTHONPATH": str(SRC), "QUEUE": shell.queue}
        subprocess.run([sys.executable, "-c", dispatch], cwd=shell.folder, env=environment, check=True, timeout=60)
        said = await shell.type("queues", "--json", env={})
        assert [(each["queue"], each["ready"]) for each in said.json] == [(shell.queue, 1)]
        assert said.err == ""
        await soon(lambda: ended(home))
    finally:
        sweep(home)


async def test_an_app_brings_its_server(shell: Shell, runner: TaskRunner) -> None:
    await send(runner, shell.queue, "greet", "you")
    url = shell.env["FIRETIME_URL"]
    (shell.folder / "other.py").write_text(f"from firetime import TaskRunner\nmine = TaskRunner({url!r})")
    said = await shell.type("tasks", "ls", "--app", "other:mine", "--json", env={})
    assert [each["queue"] for each in said.json["tasks"]] == [shell.queue]
    assert (await shell.type("tasks", "ls", "--app", "other:mine", "--url", url)).code == 2


async def test_an_impossible_url_is_one_line_without_its_password(shell: Shell) -> None:
    said = await shell.type("queues", "--url", "http://:secret@nowhere")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("url='http://...': expected redis://")
    assert "secret" not in said.err


async def _dead(runner: TaskRunner, queue: str, count: int) -> bool:
    return await runner.dead(queue).count() == count


def _squeezed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())
