"""`firetime cron`: schedules are listed, run now, paused, resumed and removed from a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firetime import TaskRunner
from tests.cli.conftest import shell, typist

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cli.shell import Shell

__all__ = ["shell", "typist"]


@pytest.fixture
async def owner(shell: Shell) -> AsyncIterator[TaskRunner]:
    """A runner with two schedules."""
    runner = TaskRunner(shell.env["FIRETIME_URL"])

    @runner.task(queue=shell.queue)
    async def report(to: str) -> None: ...

    await runner.schedules.add("nightly", report, args=["Ada"], cron="30 2 * * *", tz="Europe/Berlin", jitter=60)
    await runner.schedules.add("often", report, args=["Ada"], every=300, misfire="all", overlap="skip")
    yield runner
    await runner.aclose()


async def test_schedules_are_listed(shell: Shell, owner: TaskRunner) -> None:
    told = (await shell.type("cron", "ls", "--json", "-q", shell.queue)).json
    assert [each["name"] for each in told] == ["nightly", "often"]
    assert (told[0]["cron"], told[0]["tz"], told[0]["task"]) == ("30 2 * * *", "Europe/Berlin", "report")
    assert (told[1]["every_s"], told[1]["overlap"], told[1]["paused"]) == (300, "skip", False)
    said = await shell.type("cron", "ls")
    assert said.code == 0
    for text in ("30 2 * * *", "Europe/Berlin, up to 1 min later", "every 5 min", "skips while it runs", "in 5 min"):
        assert text in said.out


async def test_one_is_run_paused_resumed_and_removed(shell: Shell, owner: TaskRunner) -> None:
    sent = (await shell.type("cron", "run", "nightly", "--json")).json
    assert sent["queue"] == shell.queue
    assert (await owner.overview.look(shell.queue, sent["id"])).status == "ready"
    said = await shell.type("cron", "pause", "often")
    assert (said.code, said.out) == (0, "often is paused\n")
    assert "paused" in (await shell.type("cron", "ls")).out
    assert (await shell.type("cron", "resume", "often", "--json")).json["paused"] is False
    assert (await shell.type("cron", "rm", "often")).out == "often is removed\n"
    assert [each.name for each in await owner.schedules.list(queue=shell.queue)] == ["nightly"]


async def test_what_is_not_there_is_told(shell: Shell, owner: TaskRunner) -> None:
    for command in ("run", "pause", "resume", "rm"):
        said = await shell.type("cron", command, "nobody", "-q", shell.queue)
        assert (said.code, said.out) == (1, "")
        assert "nobody" in said.err
    await owner.schedules.remove("nightly", queue=shell.queue)
    await owner.schedules.remove("often", queue=shell.queue)
    assert (await shell.type("cron", "ls", "-q", shell.queue)).out == "no schedules\n"


async def test_one_name_in_two_queues_needs_a_queue(shell: Shell, owner: TaskRunner) -> None:
    other = TaskRunner(shell.env["FIRETIME_URL"])

    @other.task(queue=f"{shell.queue}.other")
    async def report() -> None: ...

    await other.schedules.add("often", report, every=60)
    said = await shell.type("cron", "pause", "often")
    assert said.code == 2
    assert "give --queue" in said.err
    assert (await shell.type("cron", "pause", "often", "-q", shell.queue)).code == 0
    await other.aclose()
