"""What workers did, told outside Redis: one file a process, to which each task writes that it began and how it ended."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from firetime import CurrentTask, current_task


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a journal."""

    what: Literal["ready", "began", "ended", "raised"]
    pid: int
    at: float
    """``time.time()``: the server runs on this machine, so it is the server's clock too."""
    task: str = ""
    id: str = ""
    fence: int = 0
    crashes: int = 0
    fire_ms: int | None = None


class Journal:
    """The journal of this process. A line is handed to the kernel before the task goes on, so SIGKILL loses none."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{os.getpid()}.jsonl"
        self._descriptor: int | None = None

    @contextmanager
    def run(self) -> Generator[None]:
        """The running task began; and it ended, or raised."""
        now = current_task()
        self._write("began", now)
        try:
            yield
        except BaseException:
            self._write("raised", now)
            raise
        self._write("ended", now)

    def ready(self) -> None:
        """This process has started."""
        self._append(Entry(what="ready", pid=os.getpid(), at=time.time()))

    def _write(self, what: Literal["began", "ended", "raised"], run: CurrentTask) -> None:
        self._append(
            Entry(
                what=what,
                pid=os.getpid(),
                at=time.time(),
                task=run.name,
                id=run.id,
                fence=run.fence,
                crashes=run.crashes,
                fire_ms=run.fire_ms,
            )
        )

    def _append(self, entry: Entry) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # one write for each line: lines of two threads do not mix
        os.write(self._descriptor, msgspec.json.encode(entry) + b"\n")


class Journals:
    """The journals of all processes, as far as they have been read."""

    def __init__(self, folder: Path) -> None:
        self.entries: list[Entry] = []
        self.endings: Counter[str] = Counter()
        """Task id -> how many of its runs ended well."""
        self.ended_of: Counter[str] = Counter()
        """Task name -> how many of its runs ended well."""
        self._folder = folder
        self._read: Counter[Path] = Counter()

    def read(self) -> None:
        """Reads on from where it was."""
        for path in self._folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read[path])
                told, _, _ = file.read().rpartition(b"\n")  # the last line may be half written
            if told:
                self._read[path] += len(told) + 1
                self._take([msgspec.json.decode(line, type=Entry) for line in told.split(b"\n")])

    def ready(self) -> set[int]:
        """The processes that have started."""
        return {entry.pid for entry in self.entries if entry.what == "ready"}

    def unfinished(self, pid: int) -> list[Entry]:
        """The runs that a process began and did not end."""
        of_process = [entry for entry in self.entries if entry.pid == pid]
        over = {(entry.id, entry.fence) for entry in of_process if entry.what in ("ended", "raised")}
        return [entry for entry in of_process if entry.what == "began" and (entry.id, entry.fence) not in over]

    def _take(self, entries: list[Entry]) -> None:
        self.entries += entries
        ended = [entry for entry in entries if entry.what == "ended"]
        self.endings.update(entry.id for entry in ended)
        self.ended_of.update(entry.task for entry in ended)
