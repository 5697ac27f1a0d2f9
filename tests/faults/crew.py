"""Worker processes, and the journal in which their tasks write down what they do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartWorker
    from tests.kit.processes import WorkerProcess
    from tests.kit.shared import Shared

_PROGRAM = Path(__file__).with_name("program.py")
_COMPUTING = Path(__file__).with_name("computing.py")


@dataclass(frozen=True, slots=True)
class Line:
    """Something that happened in a worker process."""

    what: str
    """started, ended, ran; trouble, lost, refused."""
    tag: str
    """Of the task; of trouble, the type of the error."""
    pid: int
    attempt: int = 0
    crashes: int = 0
    failures: int = 0
    fence: int = 0


class Crew:
    """The workers of one test; see ``program.py`` for what they can do."""

    def __init__(self, start_worker: StartWorker, url: str, prefix: str, paper_url: str) -> None:
        self.url = url
        self.prefix = prefix
        self._start_worker = start_worker
        self._paper_url = paper_url
        self._paper = Redis.from_url(paper_url, socket_timeout=10)

    def start(self, url: str | None = None, **settings: Any) -> WorkerProcess:
        """One more worker process."""
        return self._start(_PROGRAM, url or self.url, settings)

    def start_computing(self, **settings: Any) -> WorkerProcess:
        """One more whose tasks run in processes of their own; see ``computing.py``."""
        return self._start(_COMPUTING, self.url, settings)

    def _start(self, program: Path, url: str, settings: dict[str, Any]) -> WorkerProcess:
        words = (url, self.prefix, json.dumps(settings))
        return self._start_worker(program, *words, env={"TEST_JOURNAL": self._paper_url})

    @property
    def journal(self) -> list[Line]:
        """All that was written down so far."""
        lines: Any = self._paper.lrange(f"{self.prefix}:journal", 0, -1)
        return [Line(*json.loads(line)) for line in lines]

    def lines(self, what: str, tag: str | None = None) -> list[Line]:
        """Those that say so."""
        return [line for line in self.journal if line.what == what and tag in {None, line.tag}]

    async def until(self, what: str, tag: str | None = None, *, times: int = 1, timeout: float = 20) -> list[Line]:
        """Those lines, as soon as there are so many."""
        waited_for = f"{what} {tag or ''} x {times}"
        return await until(
            lambda: found if len(found := self.lines(what, tag)) >= times else [], timeout=timeout, what=waited_for
        )

    def let_go(self, tag: str) -> None:
        """Lets a task that holds end."""
        self._paper.set(f"{self.prefix}:go:{tag}", "1")

    def close(self) -> None:
        written: Any = self._paper.keys(f"{self.prefix}:*")
        if self._paper_url != self.url and written:
            self._paper.delete(*written)
        self._paper.close()


@pytest.fixture
def crew(start_worker: StartWorker, url: str, prefix: str, servers: Shared) -> Iterator[Crew]:
    # where the tasks' server is more than one, the journal is kept on another
    paper_url = url if url.startswith("redis://") else servers["valkey9"].url
    made = Crew(start_worker, url, prefix, paper_url)
    yield made
    made.close()
