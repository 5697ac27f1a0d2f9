"""A process of a test: started, frozen, thawed and ended by its own id, and never orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LAUNCH = Path(__file__).with_name("launch.py")
_POLL_S = 0.002

# PR_SET_PDEATHSIG speaks of the *thread* that started the child: this one lives as long as the process.
_spawner = ThreadPoolExecutor(1, thread_name_prefix="kit-spawner")


class Child:
    """One process, running as soon as it is made; what it prints goes to the end of the file `output`.

    It is not reaped before `close()`: until then its pid belongs to nobody else and signals cannot hit a stranger.
    """

    def __init__(self, command: Sequence[str | Path], *, output: Path, env: Mapping[str, str] | None = None) -> None:
        self.output = output
        self._returncode: int | None = None
        arguments = [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()), *map(str, command)]
        with output.open("ab") as stream:
            # A session of its own: Ctrl-C reaches only pytest, and close() ends grandchildren with their parent.
            self._process = _spawner.submit(
                subprocess.Popen[bytes],
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            ).result()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, the negative number of the signal that ended it, or None while it runs."""
        if self._returncode is None:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self._returncode = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return self._returncode

    @property
    def running(self) -> bool:
        return self.returncode is None

    def kill(self) -> None:
        """SIGKILL to this process alone, not to its children; returns when it has ended."""
        self._signal(signal.SIGKILL)
        self.wait(10)

    def terminate(self) -> None:
        """SIGTERM; returns at once."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        """SIGSTOP; returns when the kernel has stopped it."""
        self._signal(signal.SIGSTOP)
        give_up = time.monotonic() + 5
        while os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG) is None:
            if not self.running or time.monotonic() > give_up:
                raise RuntimeError(f"process {self.pid} was not stopped by SIGSTOP; exit code {self.returncode}")
            time.sleep(_POLL_S)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def wait(self, timeout: float) -> int:
        """The exit code; raises TimeoutError when it still runs after that many seconds."""
        give_up = time.monotonic() + timeout
        while (code := self.returncode) is None:
            if time.monotonic() > give_up:
                raise TimeoutError(f"process {self.pid} still runs after {timeout:g} s; its output:\n{self.tail()}")
            time.sleep(_POLL_S)
        return code

    def close(self) -> None:
        """End it and all that it started."""
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait(10)
            self._returncode = self._process.returncode if self._returncode is None else self._returncode

    def tail(self, characters: int = 4000) -> str:
        return self.output.read_text(errors="replace")[-characters:]

    def _signal(self, number: int) -> None:
        if self.running:
            os.kill(self.pid, number)
