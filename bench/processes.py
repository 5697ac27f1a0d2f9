"""A system's processes as the run sees them: started, asked, frozen, weighed, ended."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.systems import OWN, ROOT, System

_START_S = 20.0


class Broken(Exception):
    """A system did not do what it was asked; its text stands in the table."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run's processes find each other."""

    url: str
    marks: Path
    folder: Path
    environments: Path

    def python(self, system: System) -> Path:
        """The interpreter of a system's environment."""
        if system.environment == OWN:
            return Path(sys.executable)
        return self.environments / system.environment / "bin" / "python"


class Role:
    """One process of a system, with all that it starts, as one session of its own."""

    def __init__(self, place: Place, system: System, role: str, tasks: tuple[str, ...] = ()) -> None:
        self.system = system
        python = place.python(system)
        if not python.exists():
            raise Broken("not installed: make bench installs it")
        self._log = place.folder / f"{system.name}-{role}.log"
        paths = [str(ROOT), str(ROOT / "src")] if system.environment == OWN else [str(ROOT)]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("FIRETIME_", "REDIS_"))},
            "BENCH_URL": place.url,
            "BENCH_MARKS": str(place.marks),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        self._command = [str(python), "-m", "bench.role", role, system.module, system.variant, *tasks]
        self._environment = environment
        self._start()

    def _start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=self._environment,
                start_new_session=True,
            )
        self._answers = b""
        try:
            self._read(_START_S)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def running(self) -> bool:
        """Whether the process it was started as still runs."""
        return self._process.poll() is None

    def ask(self, do: str, *, timeout_s: float, **words: Any) -> dict[str, Any]:
        """One order to a producer, and what it told. Raises ``Broken``."""
        if self._process.stdin is None:
            raise Broken("it has no standard input")
        try:
            self._process.stdin.write(json.dumps({"do": do, **words}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Broken(self._last_words()) from None
        told = self._read(timeout_s)
        if "error" in told:
            raise Broken(str(told["error"])[:200])
        return told

    def freeze(self) -> None:
        """Stops all its processes where they are."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets them go on."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Kills the session: its figures are taken, and what it left in the server is dropped."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def memory_mib(self, what: str = "Pss") -> float:
        """Memory of all its processes: ``Pss`` (pages that several map are shared out) or ``Rss``."""
        return sum(_mapped_kib(pid, what) for pid in self.members()) / 1024

    def cpu_us(self) -> float:
        """Processor time of all its processes and threads so far."""
        return sum(_cpu_ns(pid) for pid in self.members()) / 1000

    def members(self) -> list[int]:
        """The processes of its session."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    words = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(words[3]) == self._process.pid and words[0] != "Z":
                        found.append(int(entry.name))
        return found

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self, timeout_s: float) -> dict[str, Any]:
        out = self._process.stdout
        if out is None:
            raise Broken("it has no standard output")
        give_up = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while b"\n" not in self._answers:
                left_s = give_up - time.monotonic()
                if left_s <= 0 or not selector.select(left_s):
                    raise Broken(f"no answer within {timeout_s:.0f} s")
                read = os.read(out.fileno(), 1 << 20)
                if not read:
                    raise Broken(self._last_words())
                self._answers += read
        line, _, self._answers = self._answers.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"it ended: {lines[-1][:200]}" if lines else "it ended without a word"


def _mapped_kib(pid: int, what: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1])
    return 0


def _cpu_ns(pid: int) -> int:
    total = 0
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                total += int((thread / "schedstat").read_text().split()[0])
    return total
