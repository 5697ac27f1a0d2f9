"""A worker process of the tests whose tasks run in processes of their own; usage and journal as in `program.py`."""

import asyncio
import ctypes
import json
import os
import subprocess
import sys
import time
from typing import Any

import redis

from firetime import Reject, Retry, TaskRunner, current_task
from firetime.values.events import Event, TaskEvent

URL, PREFIX, SETTINGS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
KNOWN: dict[str, Any] = {"max_crashes": SETTINGS.pop("max_crashes", 3), "run_in": "process"}
paper = redis.Redis.from_url(os.environ.get("TEST_JOURNAL", URL), socket_timeout=10)
runner = TaskRunner(URL, prefix=PREFIX, **{"task_processes": 2, **SETTINGS})


class Refused(Exception):
    """Is not tried again."""


class Late(Exception):
    """Says when to try again, which only the error itself knows."""

    def __init__(self, text: str, after_s: float) -> None:
        super().__init__(text)
        self.after_s = after_s


def after(_: int, error: BaseException) -> float:
    return error.after_s if isinstance(error, Late) else 0.05


def write(what: str, tag: str) -> None:
    running = current_task() if what in {"started", "ended", "ran"} else None
    facts = [running.attempt, running.crashes, running.failures, running.fence] if running else []
    paper.rpush(f"{PREFIX}:journal", json.dumps([what, tag, os.getpid(), *facts]))


@runner.task(**KNOWN, backoff=0.05)
def note(tag: str) -> str:
    """Is done at once."""
    write("ran", tag)
    return f"{tag} {os.getpid()} {os.getppid()}"


@runner.task(**KNOWN, backoff=0.05)
def hold(tag: str) -> str:
    """Runs until the test lets it go."""
    write("started", tag)
    while not paper.exists(f"{PREFIX}:go:{tag}"):
        time.sleep(0.01)
    write("ended", tag)
    return f"{os.getpid()}"


@runner.task(**KNOWN, backoff=0.05)
def compute(tag: str, seconds: float) -> float:
    """Holds the GIL, and lets no signal through, until about so much time is over: one step after the other in C."""
    write("started", tag)
    _hold_the_gil(seconds)
    write("ended", tag)
    return seconds


@runner.task(name="compute_thread", max_retry=0)
def compute_thread(tag: str, seconds: float) -> int:
    """The same in a thread of the worker, the first time it is run."""
    write("started", tag)
    if current_task().crashes == 0:
        _hold_the_gil(seconds)
    write("ended", tag)
    return os.getpid()


@runner.task(**KNOWN, backoff=0.05)
def die(tag: str, how: str) -> str:
    """Takes its process with it, the first time or always."""
    write("started", tag)
    if how == "once" and current_task().crashes:
        return "alive"
    if how == "exit":
        os._exit(7)
    if how == "memory":
        os.kill(os.getpid(), 9)  # what the kernel's memory killer does
    ctypes.string_at(0)  # a segmentation fault
    return ""


@runner.task(**KNOWN, no_retry_on=Refused, max_retry=2, backoff=after)
def fail(tag: str, how: str) -> str:
    """Fails in one of several ways, at first."""
    write("started", tag)
    if current_task().failures:
        return f"attempt {current_task().attempt}"
    match how:
        case "refused":
            raise Refused(f"refused {tag}")
        case "late":
            raise Late(f"late {tag}", 0.05)
        case "retry":
            raise Retry(0.05)
        case "reject":
            raise Reject(f"rejected {tag}")
        case "exit":
            sys.exit(3)
        case _:
            return object()  # type: ignore[return-value]  # what has no JSON


@runner.task(**KNOWN, timeout=0.3, max_retry=0)
def lead(tag: str) -> None:
    """Starts a program and waits for it, for too long."""
    started = subprocess.Popen(["sleep", "60"])
    paper.rpush(f"{PREFIX}:journal", json.dumps(["started", tag, started.pid, 1, 0, 0, 1]))
    started.wait()


def _hold_the_gil(seconds: float) -> None:
    """A single call in C, as long as asked: `pow` of integers looks neither at signals nor at other threads."""
    base = (1 << 4096) - 3
    began = time.perf_counter()
    pow(3, base, base | 1)
    once_s = time.perf_counter() - began
    # the time grows with the length of the exponent
    exponent = (1 << max(1, int(4096 * seconds / once_s))) - 1
    pow(3, exponent, base | 1)


@runner.on_error
def trouble(error: Exception) -> None:
    write("trouble", type(error).__name__)


def tell(event: Event) -> None:
    if isinstance(event, TaskEvent) and event.what in {"lost", "refused"}:
        write(event.what, event.delivery.task)


if __name__ == "__main__":
    runner.events.subscribe(tell, every_task=False)
    asyncio.run(runner.run())
