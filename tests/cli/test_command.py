"""The command as a whole: quick to start, exact in its help."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from firetime import __version__
from firetime.faces.cli.command import make
from tests.cli.shell import SRC, Shell
from tests.kit.processes import bare_environment


def test_it_starts_without_the_redis_client_and_without_rich_tables() -> None:
    ask = "import sys, firetime.faces.cli; print(sorted({'redis', 'uvloop', 'rich.table'} & set(sys.modules)))"
    environment = bare_environment() | {"PYTHONPATH": str(SRC)}
    said = subprocess.run(
        [sys.executable, "-c", ask], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    assert said.stdout == "[]\n"


async def test_it_tells_its_version(shell: Shell) -> None:
    assert (await shell.type("--version")).out == f"firetime {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        (),
        *[(group,) for group in ("worker", "scheduler", "demo", "check", "queues", "pause", "resume", "tasks", "dead")],
        *[("tasks", command) for command in ("ls", "show", "cancel")],
        *[("dead", command) for command in ("ls", "show", "replay", "purge")],
    ],
)
def test_everything_has_help(words: tuple[str, ...]) -> None:
    said = CliRunner().invoke(make(), [*words, "--help"], prog_name="firetime")
    assert said.exit_code == 0
    assert said.stdout.startswith(" ".join(["Usage: firetime", *words]))
    assert said.stderr == ""


async def test_wrong_usage_is_2(shell: Shell) -> None:
    said = await shell.type("queues", "--nonsense")
    assert (said.code, said.out) == (2, "")
    assert "--nonsense" in said.err
