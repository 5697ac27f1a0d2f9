"""Worker processes are started, one is killed at its work, and all are gone at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from firetime.faces.demo.journal import Entry, Journals

_PATIENCE_S = 10.0
_LOOK_S = 0.01


class Crew:
    """The demo's worker processes."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []

    def hire(self) -> int:
        """Starts one more worker; returns its pid."""
        command = [sys.executable, "-P", "-m", "firetime.faces.demo.worker", self._url, str(self._folder)]
        with (self._folder / "workers.log").open("ab") as log:
            worker = subprocess.Popen(  # noqa: S603 - its words are ours
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=without_configuration(os.environ),
                start_new_session=True,  # Ctrl-C is for the parent, which ends them itself
            )
        self._workers.append(worker)
        return worker.pid

    async def kill_one_at_work(self, journals: Journals, patience_s: float) -> Entry | None:
        """SIGKILL for the first that is found in the middle of a task; returns the run that it will never end.

        None is killed when none is found at work in time: there was nothing left to do.
        """
        give_up = time.monotonic() + patience_s
        while time.monotonic() < give_up:
            for worker in self._workers:
                if unfinished := _killed_at_work(worker, journals):
                    return unfinished
            await asyncio.sleep(_LOOK_S)
        return None

    async def dismiss(self) -> None:
        """Asks all to stop, as a deploy does, and waits until they have."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):  # then end() kills it
                await asyncio.to_thread(worker.wait, _PATIENCE_S)

    def end(self) -> None:
        """No worker is left behind, whatever happened."""
        for worker in self._workers:
            worker.kill()
            worker.wait()
            if worker.stdin is not None:
                worker.stdin.close()

    @property
    def log(self) -> str:
        """The end of what the workers logged."""
        log = self._folder / "workers.log"
        return "\n".join(log.read_text("utf-8", "replace").splitlines()[-20:]) if log.exists() else ""


def _killed_at_work(worker: subprocess.Popen[bytes], journals: Journals) -> Entry | None:
    """It is frozen while its journal is read: what it has not ended then, it never will."""
    worker.send_signal(signal.SIGSTOP)
    os.waitpid(worker.pid, os.WUNTRACED)
    journals.read()
    unfinished = journals.unfinished(worker.pid)
    if not unfinished:
        worker.send_signal(signal.SIGCONT)
        return None
    worker.kill()
    worker.wait()
    return unfinished[0]


def without_configuration(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what configures firetime on this machine: the demo is the same everywhere."""
    return {name: value for name, value in environ.items() if name != "REDIS_URL" and not name.startswith("FIRETIME_")}
