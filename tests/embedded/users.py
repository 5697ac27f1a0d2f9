"""Users of an embedded server as processes of their own, and what a test asks about the server from outside."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from firetime.store import keeper

SOURCES = Path(keeper.__file__).parents[2]
JOIN = """
import os, sys
from pathlib import Path
from firetime.store.embedded import join_or_start
server = join_or_start(Path(sys.argv[1]))
"""
STAY = """
print(server.url, flush=True)
sys.stdin.read()
server.close()
"""


def until(condition: Callable[[], object], what: str, *, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for: {what}"
        time.sleep(0.005)


class User:
    """A process that has joined the server, until it is asked to leave or killed."""

    def __init__(self, home: Path, code: str = JOIN + STAY) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(home)],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def line(self) -> str:
        """What it says next: first of all the url, as soon as it has joined."""
        return _pipe(self.process.stdout).readline().strip()

    def leave(self) -> None:
        _pipe(self.process.stdin).close()
        assert self.process.wait(30) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def end(self) -> None:
        """Whatever it does; its pipes too."""
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            _pipe(pipe).close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def ask(url: str, command: str) -> str:
    """One command in one line, and the first line of its reply (the second of a string)."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        line.connect(unquote(urlsplit(url).path))
        line.sendall(f"{command}\r\n".encode())
        with line.makefile("r", newline="\r\n") as replies:
            first = replies.readline().strip()
            return replies.readline().strip() if first.startswith("$") and first != "$-1" else first


def pid(home: Path, lock: str) -> int:
    return int((home / lock).read_text())


def alive(process: int) -> bool:
    """Whether it runs; a zombie, which nobody has reaped yet, does not."""
    try:
        os.kill(process, 0)
        return sys.platform != "linux" or not _zombie(Path(f"/proc/{process}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return False


def _zombie(status: str) -> bool:
    return status.rpartition(") ")[2].startswith("Z")


def kill_9(home: Path, *locks: str) -> None:
    """Kills who holds these locks, all of them before the first can notice; returns when they are dead."""
    processes = [pid(home, lock) for lock in locks]
    for process in processes:
        os.kill(process, signal.SIGKILL)
    until(lambda: not any(map(alive, processes)), "the killed to be dead")


def held(home: Path, lock: str) -> bool:
    return (home / lock).exists() and keeper.held(home / lock)


def ended(home: Path) -> bool:
    """Neither keeper nor server is left."""
    return not held(home, keeper.KEEPER) and not held(home, keeper.SERVER)


def sweep(home: Path) -> None:
    """Ends what a failed test has left; a pid is good while its lock is held."""
    for lock in (keeper.KEEPER, keeper.SERVER):
        if held(home, lock):
            os.kill(pid(home, lock), signal.SIGKILL)
