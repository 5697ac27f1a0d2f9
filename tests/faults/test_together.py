"""What was built apart holds together: sealed messages of a spread queue, with schedules and dead letters, run in processes."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from firetime import Status, TaskExecutionError
from tests.kit.waiting import until

if TYPE_CHECKING:
    from firetime import TaskRunner
    from tests.faults.crew import Crew
    from tests.story.stage import NewRunner

pytestmark = pytest.mark.usefixtures("server")


def keys() -> str:
    return f"k:{base64.b64encode(secrets.token_bytes(32)).decode()}"


@pytest.fixture
def both() -> dict[str, Any]:
    """What those who send and those who work must say alike."""
    return {"signing_keys": keys(), "encryption_keys": keys(), "queue_shards": "default=3"}


@pytest.fixture
def sender(crew: Crew, new_runner: NewRunner, both: dict[str, Any]) -> TaskRunner:
    crew.start_computing(**both)
    return new_runner(**both)


async def test_results_and_errors_of_processes_come_back_sealed_from_every_shard(sender: TaskRunner) -> None:
    handles = [await sender.named("note", result_ttl=60).dispatch(f"a {number}") for number in range(6)]
    assert [(await each.result(timeout=30)).split()[1] for each in handles] == [str(number) for number in range(6)]
    bad = await sender.named("fail", result_ttl=60).dispatch("a", "refused")
    with pytest.raises(TaskExecutionError, match="refused a"):
        await bad.result(timeout=30)


async def test_a_dead_letter_is_shown_and_replayed_in_its_shard(sender: TaskRunner) -> None:
    bad = await sender.named("fail").dispatch("a", "refused")

    async def is_dead() -> bool:
        return await bad.status() == Status.DEAD

    await until(is_dead, timeout=30)
    letter = await sender.dead().show(bad.task_id)
    assert (letter.args, letter.queue) == (["a", "refused"], "default")
    await sender.dead().replay(bad.task_id)
    await until(is_dead, timeout=30)
    await sender.dead().purge(bad.task_id)
    assert await sender.dead().count() == 0


async def test_a_schedule_at_home_is_ticked_and_run(sender: TaskRunner, crew: Crew) -> None:
    await sender.schedules.add("often", "note", args=("tick",), every=0.2)
    await until(lambda: len(crew.lines("ran")) >= 2, timeout=30)
    await sender.schedules.trigger("often")
    await sender.schedules.remove("often")


async def test_what_follows_a_group_is_sealed_for_its_shard(sender: TaskRunner, crew: Crew) -> None:
    note = sender.named("note", result_ttl=60)
    group = await sender.group([note.message(f"a {number}") for number in range(5)], then=note.message("b last"))
    await until(lambda: len(crew.lines("ran")) == 6, timeout=30)
    assert (await group.then.result(timeout=30)).split()[1] == "last"


async def test_a_worker_without_the_keys_buries_what_it_cannot_read(
    crew: Crew, new_runner: NewRunner, both: dict[str, Any]
) -> None:
    crew.start_computing(queue_shards=both["queue_shards"])
    sent = await new_runner(**both).named("note").dispatch("a")
    strange = new_runner(queue_shards=both["queue_shards"])

    async def is_dead() -> bool:
        return await strange.dead().count() == 1

    await until(is_dead, timeout=30)
    assert (await strange.dead().show(sent.task_id)).reason == "malformed"
    assert crew.lines("ran") == []
