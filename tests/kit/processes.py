"""A script runs as a real worker process, to be killed, frozen and asked to stop."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.child import Child

if TYPE_CHECKING:
    from collections.abc import Mapping

_SRC = Path(__file__).parents[2] / "src"


class WorkerProcess(Child):
    """A Python script with firetime at hand: a `Path` is run as it is, a `str` is its source.

    Sees the caller's environment without what would configure firetime, and `env` on top.
    """

    def __init__(self, script: Path | str, *arguments: str, folder: Path, env: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(script, str):
            source, script = script, folder / "script.py"
            script.write_text(textwrap.dedent(source))
        super().__init__(
            [sys.executable, script, *arguments],
            output=folder / "output.txt",
            env={**bare_environment(), "PYTHONPATH": str(_SRC), "PYTHONUNBUFFERED": "1", **(env or {})},
        )

    @property
    def printed(self) -> str:
        """All that it has printed so far, errors too."""
        return self.output.read_text(errors="replace")


def bare_environment() -> dict[str, str]:
    """The environment without the variables that firetime reads."""
    return {name: value for name, value in os.environ.items() if not is_configuration(name)}


def is_configuration(name: str) -> bool:
    return name == "REDIS_URL" or (name.startswith("FIRETIME_") and not name.startswith("FIRETIME_TEST_"))
