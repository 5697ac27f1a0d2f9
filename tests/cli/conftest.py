"""A shell in a folder of its own, and a runner to look at the same server from inside the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firetime import TaskRunner
from tests.cli.shell import Shell, Typist

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.conftest import StartWorker
    from tests.kit.servers import ServerProcess


@pytest.fixture(scope="session")
def typist() -> Iterator[Typist]:
    made = Typist()
    yield made
    made.close()


@pytest.fixture
def shell(tmp_path: Path, valkey: ServerProcess, start_worker: StartWorker, queue_name: str, typist: Typist) -> Shell:
    folder = tmp_path / "shell"
    folder.mkdir()
    return Shell(folder, valkey.url, queue_name, start_worker, typist)


@pytest.fixture
async def runner(valkey: ServerProcess) -> AsyncIterator[TaskRunner]:
    made = TaskRunner(valkey.url)
    yield made
    await made.aclose()
