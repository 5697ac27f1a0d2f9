"""A folder with an app in it, where commands are typed and workers started."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from firetime.runner import TaskRunner
from tests.kit.processes import bare_environment
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.processes import WorkerProcess

SRC = Path(__file__).parents[2] / "src"
MAIN = "import os, sys; os.chdir(sys.argv.pop(1)); from firetime.faces.cli import main; main()"
APP = '''
import asyncio, os, time
from pathlib import Path
from firetime import Fixed, TaskRunner

runner = TaskRunner()
task = runner.task(queue=os.environ["QUEUE"], backoff=Fixed(0), max_retry=1)

def note(what: str) -> None:
    """One write of a short line to a file opened for appending: processes do not tear each other's lines."""
    with open("journal", "a") as file:
        file.write(f"{what} {os.getpid()}\\n")

@task
async def greet(name: str) -> str:
    note(f"greet {name}")
    return f"hello {name}"

@task
async def hold(name: str) -> None:
    note(f"begin {name}")
    while not Path("go").exists():
        await asyncio.sleep(0.005)
    note(f"end {name}")

@task
def hold_thread(name: str) -> None:
    note(f"begin {name}")
    while not Path("go").exists():
        time.sleep(0.005)
    note(f"end {name}")

@task
async def fail(text: str) -> None:
    raise ValueError(text)
'''


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as the one document that it must be."""
        return json.loads(self.out)


class Typist:
    """Runs commands, each as a process of its own."""

    def __init__(self) -> None:
        self._zygote = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("zygote.py")],
            env=bare_environment() | {"PYTHONPATH": str(SRC)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, order: dict[str, Any]) -> int:
        """The exit code."""
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps(order) + "\n")
        self._zygote.stdin.flush()
        return int(self._zygote.stdout.readline())

    def close(self) -> None:
        """Ends it."""
        with self._zygote:
            self._zygote.kill()


class StartScript(Protocol):
    def __call__(self, script: str, *arguments: str, env: dict[str, str]) -> WorkerProcess: ...


class Shell:
    """Types commands in a folder of its own, against one server and one queue."""

    def __init__(self, folder: Path, url: str, queue: str, start: StartScript, typist: Typist) -> None:
        self.folder = folder
        self.queue = queue
        self.env = {"FIRETIME_URL": url, "QUEUE": queue}
        self._start = start
        self._typist = typist
        (folder / "app.py").write_text(APP)

    async def type(self, *words: str, env: dict[str, str] | None = None) -> Said:
        """A command that ends by itself."""
        out, err = self.folder / "out.txt", self.folder / "err.txt"
        out.unlink(missing_ok=True)
        err.unlink(missing_ok=True)
        order = {
            "folder": str(self.folder),
            "env": bare_environment() | {"PYTHONPATH": str(SRC), "COLUMNS": "160"} | (self.env if env is None else env),
            "words": words,
            "out": str(out),
            "err": str(err),
        }
        code = await asyncio.to_thread(self._typist.run, order)
        return Said(code, out.read_text(), err.read_text())

    def start(self, *words: str, env: dict[str, str] | None = None) -> WorkerProcess:
        """A command that goes on."""
        return self._start(MAIN, str(self.folder), *words, env=self.env | (env or {}))

    def journal(self) -> list[str]:
        """What tasks have noted so far, without the processes that did."""
        return [line.rpartition(" ")[0] for line in self._lines()]

    def process_of(self, note: str) -> int:
        """The process that noted this last."""
        return int(next(line for line in reversed(self._lines()) if line.startswith(f"{note} ")).rpartition(" ")[2])

    def let_go(self) -> None:
        """Lets tasks that hold on end."""
        (self.folder / "go").touch()

    def _lines(self) -> list[str]:
        file = self.folder / "journal"
        return [line for line in file.read_text().splitlines(keepends=False) if line] if file.exists() else []


def told(worker: WorkerProcess, what: str) -> int:
    """How many workers among its processes have logged that they are ready, stopping, promoted..."""
    return len(re.findall(rf"worker [0-9a-f]{{16}} {what}\b", worker.printed))


async def soon(predicate: Callable[[], object], *, what: str | None = None) -> Any:
    """Waits for a condition, as long as a busy machine takes to start a process that starts another."""
    return await until(predicate, timeout=60, what=what)


def process_ids(worker: WorkerProcess) -> list[int]:
    """The processes that ``--processes`` has started so far."""
    return [int(pid) for pid in re.findall(r"started: pid (\d+)", worker.printed)]


async def send(runner: TaskRunner, queue: str, task: str, *args: object, **options: Any) -> str:
    """Dispatches by name; returns the id."""
    handle = await runner.named(task, queue=queue, **options).dispatch(*args)
    return handle.task_id
