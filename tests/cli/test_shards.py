"""On the command line a spread queue is one queue, whichever of its shards a message is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firetime import TaskRunner
from firetime.values.shards import shard_name
from tests.cli.shell import soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.cli.shell import Said, Shell

    Type = Callable[..., Awaitable[Said]]


@pytest.fixture
async def runner(shell: Shell) -> AsyncIterator[TaskRunner]:
    """A producer without the code."""
    made = TaskRunner(shell.env["FIRETIME_URL"], queue_shards={shell.queue: 3})
    yield made
    await made.aclose()


@pytest.fixture
def spread(shell: Shell) -> dict[str, str]:
    return shell.env | {"FIRETIME_QUEUE_SHARDS": f"{shell.queue}=3"}


@pytest.fixture
def typed(shell: Shell, spread: dict[str, str]) -> Type:
    async def typed(*words: str) -> Said:
        return await shell.type(*words, env=spread)

    return typed


async def test_a_worker_of_the_queue_serves_its_shards(
    shell: Shell, spread: dict[str, str], typed: Type, runner: TaskRunner
) -> None:
    worker = shell.start("worker", "app:runner", "-q", shell.queue, env=spread)
    greet = runner.named("greet", queue=shell.queue, result_ttl=60)
    handles = [await greet.dispatch(f"{number}") for number in range(6)]
    assert [await handle.result(timeout=60) for handle in handles] == [f"hello {number}" for number in range(6)]
    checked = await typed("check", "--worker", "-q", shell.queue)
    assert checked.code == 0
    (told,) = (await typed("queues", "-q", shell.queue, "--json")).json
    assert (told["workers"], told["ready"], told["unserved"]) == (1, 0, [])
    worker.terminate()
    assert worker.wait(60) == 0


async def test_the_queue_is_one_row_and_its_shards_more_if_asked(shell: Shell, typed: Type, runner: TaskRunner) -> None:
    for number in range(6):
        await runner.named("greet", queue=shell.queue).dispatch(f"{number}")
    names = [shell.queue, *(shard_name(shell.queue, shard) for shard in range(3))]
    found = {each["queue"]: each["ready"] for each in (await typed("queues", "--json")).json}
    assert found[shell.queue] == 6
    assert not found.keys() & set(names[1:])
    assert "3 shards" in (await typed("queues", "-q", shell.queue)).out
    detailed = (await typed("queues", "-q", shell.queue, "--shards", "--json")).json
    assert [(each["queue"], each["ready"]) for each in detailed] == list(zip(names, (6, 2, 2, 2), strict=True))
    settings = {each["name"]: each["value"] for each in (await typed("check", "--json")).json["settings"]}
    assert settings["queue_shards"] == {shell.queue: 3}
    # without the setting nobody knows that they belong together
    assert {each["queue"] for each in (await shell.type("queues", "--json")).json} >= set(names[1:])


async def test_a_message_is_shown_and_cancelled_by_its_id(shell: Shell, typed: Type, runner: TaskRunner) -> None:
    handle = await runner.named("greet", queue=shell.queue, delay=600).dispatch("Ada")
    mine = await runner.named("greet", queue=shell.queue, delay=600, task_id="mine").dispatch("Ada")
    assert (await typed("tasks", "ls", "--delayed", "--json", "-q", shell.queue)).json["total"] == 2
    for task_id in (handle.task_id, mine.task_id):
        shown = (await typed("tasks", "show", task_id, "--json", "-q", shell.queue)).json
        assert (shown["queue"], shown["status"]) == (shell.queue, "delayed")
        assert (await typed("tasks", "cancel", task_id, "-q", shell.queue)).out == f"{task_id} is cancelled\n"


async def test_dead_letters_are_replayed_from_whichever_shard(
    shell: Shell, spread: dict[str, str], typed: Type, runner: TaskRunner
) -> None:
    handles = [await runner.named("fail", queue=shell.queue).dispatch("no") for _ in range(3)]
    worker = shell.start("worker", "app:runner", env=spread)

    async def dead() -> bool:
        return await runner.dead(shell.queue).count() == 3

    await soon(dead)
    worker.terminate()
    assert worker.wait(60) == 0
    listed = (await typed("dead", "ls", "--json", "-q", shell.queue)).json
    assert {each["queue"] for each in listed["dead"]} == {shell.queue}
    assert (await typed("dead", "show", handles[0].task_id, "-q", shell.queue)).code == 0
    assert (await typed("dead", "replay", handles[0].task_id, "-q", shell.queue)).out == "1 replayed\n"
    assert (await typed("dead", "purge", "--all", "--yes", "-q", shell.queue)).out == "2 purged\n"
    assert (await typed("pause", shell.queue)).code == 0
    assert (await runner.stats(shell.queue)).paused
    assert (await typed("resume", shell.queue)).out == f"{shell.queue} is open again\n"


async def test_check_warns_of_shards_that_no_worker_serves(
    shell: Shell, spread: dict[str, str], typed: Type, runner: TaskRunner
) -> None:
    worker = shell.start("worker", "app:runner", env=spread)

    async def serves() -> bool:
        return (await runner.stats(shell.queue)).workers == 1

    await soon(serves)
    more = TaskRunner(shell.env["FIRETIME_URL"], queue_shards={shell.queue: 5})
    for _ in range(5):
        await more.named("greet", queue=shell.queue).dispatch("Ada")
    await more.aclose()
    checked = await typed("check", "-q", shell.queue)
    assert checked.code == 0
    assert f"messages wait in {shell.queue}:3, {shell.queue}:4, which no worker serves" in checked.out.replace("\n", "")
    worker.terminate()
    assert worker.wait(60) == 0


async def test_a_setting_that_cannot_be_meant_is_named(shell: Shell) -> None:
    said = await shell.type("queues", env=shell.env | {"FIRETIME_QUEUE_SHARDS": "default:8"})
    assert said.code != 0
    assert "FIRETIME_QUEUE_SHARDS='default:8': expected queues with the number of their shards" in said.err
