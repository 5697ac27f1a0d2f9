"""A worker process of the tests: what its tasks do, they write down in a list that the tests read.

Usage: python program.py <url> <prefix> <settings as JSON>; $TEST_JOURNAL is the url to write to, where it is another.
"""

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

import redis

from firetime import TaskRunner, current_task
from firetime.values.events import Event, TaskEvent

URL, PREFIX, SETTINGS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
KNOWN: dict[str, Any] = {"max_crashes": SETTINGS.pop("max_crashes", 3), "backoff": 0.05}
paper = redis.Redis.from_url(os.environ.get("TEST_JOURNAL", URL), socket_timeout=10)
runner = TaskRunner(URL, prefix=PREFIX, **SETTINGS)


def write(what: str, tag: str) -> None:
    running = current_task() if what in {"started", "ended", "ran"} else None
    facts = [running.attempt, running.crashes, running.failures, running.fence] if running else []
    paper.rpush(f"{PREFIX}:journal", json.dumps([what, tag, os.getpid(), *facts]))


@runner.task(**KNOWN)
async def note(tag: str, load: str = "") -> None:
    """Is done at once."""
    write("ran", tag)


@runner.task(**KNOWN)
async def hold(tag: str) -> str:
    """Runs until the test lets it go."""
    write("started", tag)
    while not paper.exists(f"{PREFIX}:go:{tag}"):
        await asyncio.sleep(0.01)
    write("ended", tag)
    return f"{os.getpid()}"


@runner.task(**KNOWN)
def hold_thread(tag: str) -> str:
    """The same in a thread."""
    write("started", tag)
    while not paper.exists(f"{PREFIX}:go:{tag}"):
        time.sleep(0.01)
    write("ended", tag)
    return f"{os.getpid()}"


@runner.task(**KNOWN)
async def block(tag: str, seconds: float, load: str = "") -> None:
    """Lets the event loop stand still."""
    write("started", tag)
    time.sleep(seconds)  # that is the point
    write("ended", tag)


@runner.task(**KNOWN)
async def rest(tag: str, seconds: float) -> None:
    """Takes a while and lets others run."""
    write("started", tag)
    await asyncio.sleep(seconds)
    write("ended", tag)


@runner.task(**KNOWN)
async def die(tag: str) -> None:
    """Takes its process with it."""
    write("started", tag)
    os.kill(os.getpid(), signal.SIGKILL)


@runner.task(**KNOWN)
async def vanish(tag: str, how: str) -> None:
    """Does its work, and its process is frozen or killed before it can be settled: the first time only."""
    write("ended", tag)
    if current_task().crashes == 0:
        os.kill(os.getpid(), signal.Signals[how])


@runner.on_error
def trouble(error: Exception) -> None:
    write("trouble", type(error).__name__)


def tell(event: Event) -> None:
    if isinstance(event, TaskEvent) and event.what in {"lost", "refused"}:
        write(event.what, event.delivery.task)


runner.events.subscribe(tell, every_task=False)
asyncio.run(runner.run())
