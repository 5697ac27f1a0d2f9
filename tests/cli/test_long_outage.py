"""The server is away for long: a worker waits for it without a noise, and goes on when it is back."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firetime import TaskRunner
from tests.cli.shell import Shell, send, soon, told
from tests.story.stage import ticking

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import StartServer
    from tests.kit.proxy import FaultProxy

OUTAGE_S = 12.0
"""30 s are promised; what grows with time is measured by the second."""
MOST_LINES = 20
MOST_CPU = 0.05
"""Of one core; 30 s at this rate are 1.5 s of work. Measured: below 0.01."""
RESUMES_S = 2.0


def cpu_s(pid: int) -> float:
    """The time that a process has computed so far."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("how", ["gone", "silent"])
async def test_a_long_outage_costs_few_lines_and_hardly_any_time_and_ends_by_itself(
    shell: Shell, start_server: StartServer, start_proxy: Callable[[str], FaultProxy], how: str
) -> None:
    server = start_server(append_only=True)
    proxy = start_proxy(server.url)
    queues = [word for queue in (shell.queue, *map(str, range(9))) for word in ("--queue", queue)]
    worker = shell.start("worker", "app", *queues, env={"FIRETIME_URL": proxy.url})
    runner = TaskRunner(server.url)
    await send(runner, shell.queue, "greet", "before")
    await soon(lambda: told(worker, "promoted") == 10 and "done in" in worker.printed)
    lines, used_s = len(worker.printed.splitlines()), cpu_s(worker.pid)
    if how == "gone":
        server.stop()
    else:
        # connections stand, and nothing passes: only deadlines can tell
        proxy.blackhole()
    await asyncio.sleep(OUTAGE_S)  # that is what is asked about
    used_s = cpu_s(worker.pid) - used_s
    assert "disconnected" in worker.printed
    if how == "gone":
        server.start()
    else:
        proxy.heal()
    clock = asyncio.get_running_loop().time
    async with ticking() as ticks:
        back = clock()
        await send(runner, shell.queue, "greet", "after")
        await soon(lambda: "greet after" in shell.journal())
        took_s = clock() - back
    await soon(lambda: told(worker, "reconnected"))
    said = worker.printed.splitlines()[lines:]
    sys.stdout.write(f"{OUTAGE_S:g} s: {len(said)} lines, {used_s:.2f} s of a core; goes on after {took_s:.2f} s\n")
    assert len(said) < MOST_LINES, "\n".join(said)
    assert used_s < MOST_CPU * OUTAGE_S
    # what was sent into the silence is answered, or given up at its deadline of 5 s
    assert took_s < RESUMES_S + (5 if how == "silent" else 0) + 10 * ticks.longest_s
    worker.terminate()
    assert worker.wait(60) == 0
    await runner.aclose()


async def test_a_connection_that_died_without_a_word_is_given_up_at_its_deadline(
    shell: Shell, start_server: StartServer, start_proxy: Callable[[str], FaultProxy]
) -> None:
    server = start_server()
    first, second = start_proxy(server.url), start_proxy(server.url)
    worker = shell.start("worker", "app", env={"FIRETIME_URL": first.url})
    other = shell.start("worker", "app", env={"FIRETIME_URL": second.url})
    await soon(lambda: told(worker, "ready") and told(other, "ready"))
    first.blackhole()
    await soon(lambda: told(worker, "disconnected"), what="the silence to be noticed")
    assert told(other, "disconnected") == 0
    first.heal()
    await soon(lambda: told(worker, "reconnected"))
    for each in (worker, other):
        each.terminate()
        assert each.wait(60) == 0
