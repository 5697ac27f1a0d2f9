"""One process of one system: a producer that does what it is told line by line, or a worker.

``python -m bench.role producer|worker MODULE VARIANT [TASK...]``. It talks JSON on its standard output; whatever the system
prints goes to standard error. The server and the marks are named in ``$BENCH_URL`` and ``$BENCH_MARKS``.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any

from bench.marks import Marks, of_this_process
from bench.tether import tether

AT_ONCE = 50
CHUNK = 1000
"""Messages handed to a system's bulk call at a time."""
_PAUSE_S = (0.01, 0.02)
"""Between two messages to an idle worker."""
_POLL_S = 0.001
_LOST_AFTER_S = 5.0
_WARM_UP = 20
"""Messages sent before the clock starts: connections are made and scripts loaded."""

Asked = dict[str, Any]
Told = dict[str, Any]


def main() -> None:
    """Becomes the process that the command line names."""
    tether()
    say = _own_stdout()
    logging.disable(logging.CRITICAL)
    role, module, variant, *tasks = sys.argv[1:]
    os.environ["BENCH_VARIANT"] = variant
    os.environ["BENCH_TASKS"] = ",".join(tasks)
    adapter = importlib.import_module(f"bench.peers.{module}")
    if role == "worker":
        say({"started": True})
        adapter.work()
    elif inspect.iscoroutinefunction(adapter.Producer.one):
        run_coroutine(_produce(adapter.Producer(), say))
    else:
        _produce_in_threads(adapter.Producer(), say)


def run_coroutine(coroutine: Any) -> None:
    """Runs it in uvloop, where that is installed."""
    with suppress(ImportError):
        import uvloop

        uvloop.run(coroutine)
        return
    asyncio.run(coroutine)


def _own_stdout() -> Callable[[Told], None]:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(told: Told) -> None:
        out.write(json.dumps(told) + "\n")
        out.flush()

    return say


def _orders() -> Iterator[Asked]:
    for line in sys.stdin:
        asked: Asked = json.loads(line)
        if asked["do"] == "quit":
            return
        yield asked


class Watch:
    """How long something took, on the clock and on the processor."""

    def __init__(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    @property
    def passed_s(self) -> float:
        """Seconds since."""
        return time.perf_counter() - self._began

    def told(self, sent: int) -> Told:
        """What to tell of so many messages."""
        return {"sent": sent, "seconds": self.passed_s, "cpu_s": time.process_time() - self._cpu}


async def _produce(producer: Any, say: Callable[[Told], None]) -> None:
    marks = of_this_process()
    await producer.open()
    say({"started": True})
    actions = {"one": _one, "one_sync": _one_sync, "fifty": _fifty, "bulk": _bulk, "latency": _latency}
    for asked in _orders():
        try:
            say(await actions[asked["do"]](producer, asked, marks))
        except Exception as error:  # noqa: BLE001 - another project's code: whatever it raises stands in the table
            say({"error": f"{type(error).__name__}: {error}"})
    await producer.close()


async def _one(producer: Any, asked: Asked, _marks: Marks) -> Told:
    for number in range(_WARM_UP):
        await producer.one("noop", number)
    watch, number = Watch(), asked["start"]
    while watch.passed_s < asked["seconds"]:
        await producer.one("noop", number)
        number += 1
    return watch.told(number - asked["start"])


async def _one_sync(producer: Any, asked: Asked, marks: Marks) -> Told:
    """The system's calls for code without an event loop, in a thread that has none; this one is idle meanwhile."""
    return await asyncio.to_thread(_one_blocking, producer.blocking(), asked, marks)


async def _fifty(producer: Any, asked: Asked, _marks: Marks) -> Told:
    numbers, sent, watch = count(asked["start"]), 0, Watch()

    async def caller(*, warm: bool = True) -> None:
        nonlocal sent
        if not warm:
            await producer.one("noop", next(numbers))
            return
        while watch.passed_s < asked["seconds"]:
            await producer.one("noop", next(numbers))
            sent += 1

    async def together() -> None:
        nonlocal sent
        while watch.passed_s < asked["seconds"]:
            await producer.together("noop", [next(numbers) for _ in range(AT_ONCE)])
            sent += AT_ONCE

    if hasattr(producer, "together"):
        await together()
    else:
        await asyncio.gather(*(caller(warm=False) for _ in range(AT_ONCE)))
        watch = Watch()
        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    return watch.told(sent)


async def _bulk(producer: Any, asked: Asked, _marks: Marks) -> Told:
    watch, sent = Watch(), 0
    for numbers in _chunks(asked):
        if watch.passed_s > asked["seconds"]:
            break
        if asked.get("delay_s"):
            await producer.later(asked["task"], numbers, asked["delay_s"])
        else:
            await producer.bulk(asked["task"], numbers)
        sent += len(numbers)
    return watch.told(sent)


def _chunks(asked: Asked) -> Iterator[range]:
    stop = asked["start"] + asked["count"]
    size = asked.get("chunk", CHUNK)
    for first in range(asked["start"], stop, size):
        yield range(first, min(first + size, stop))


async def _latency(producer: Any, asked: Asked, marks: Marks) -> Told:
    waits_ms: list[float] = []
    began = time.monotonic()
    for number in range(asked["start"], asked["start"] + asked["count"]):
        sent_ns = time.monotonic_ns()
        await producer.one("stamp", number)
        while not marks.times_ns[number]:
            _give_up_on(number, sent_ns)
            await asyncio.sleep(_POLL_S)
        waits_ms.append((marks.times_ns[number] - sent_ns) / 1e6)
        await asyncio.sleep(random.uniform(*_PAUSE_S))
        if time.monotonic() - began > asked["seconds"]:
            break
    return {"waits_ms": waits_ms}


def _give_up_on(number: int, sent_ns: int) -> None:
    if time.monotonic_ns() - sent_ns > _LOST_AFTER_S * 1e9:
        raise TimeoutError(f"task {number} was not started within {_LOST_AFTER_S:.0f} s")


# --- the same for systems without an event loop: 50 at once are 50 threads


def _produce_in_threads(producer: Any, say: Callable[[Told], None]) -> None:
    marks = of_this_process()
    producer.open()
    say({"started": True})
    actions = {"one_sync": _one_blocking, "fifty": _fifty_threads, "bulk": _bulk_blocking, "latency": _latency_blocking}
    for asked in _orders():
        try:
            say(actions[asked["do"]](producer, asked, marks))
        except Exception as error:  # noqa: BLE001 - another project's code: whatever it raises stands in the table
            say({"error": f"{type(error).__name__}: {error}"})
    producer.close()


def _one_blocking(producer: Any, asked: Asked, _marks: Marks) -> Told:
    for number in range(_WARM_UP):
        producer.one("noop", number)
    watch, number = Watch(), asked["start"]
    while watch.passed_s < asked["seconds"]:
        producer.one("noop", number)
        number += 1
    return watch.told(number - asked["start"])


def _fifty_threads(producer: Any, asked: Asked, _marks: Marks) -> Told:
    numbers, everyone = count(asked["start"]), threading.Barrier(AT_ONCE)
    watch = Watch()

    def caller(_position: int) -> int:
        nonlocal watch
        producer.one("noop", next(numbers))
        if everyone.wait() == 0:
            watch = Watch()
        everyone.wait()
        sent = 0
        while watch.passed_s < asked["seconds"]:
            producer.one("noop", next(numbers))
            sent += 1
        return sent

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return watch.told(sum(pool.map(caller, range(AT_ONCE))))


def _bulk_blocking(producer: Any, asked: Asked, _marks: Marks) -> Told:
    watch, sent = Watch(), 0
    for numbers in _chunks(asked):
        if watch.passed_s > asked["seconds"]:
            break
        if asked.get("delay_s"):
            producer.later(asked["task"], numbers, asked["delay_s"])
        else:
            producer.bulk(asked["task"], numbers)
        sent += len(numbers)
    return watch.told(sent)


def _latency_blocking(producer: Any, asked: Asked, marks: Marks) -> Told:
    waits_ms: list[float] = []
    began = time.monotonic()
    for number in range(asked["start"], asked["start"] + asked["count"]):
        sent_ns = time.monotonic_ns()
        producer.one("stamp", number)
        while not marks.times_ns[number]:
            _give_up_on(number, sent_ns)
            time.sleep(_POLL_S)
        waits_ms.append((marks.times_ns[number] - sent_ns) / 1e6)
        time.sleep(random.uniform(*_PAUSE_S))
        if time.monotonic() - began > asked["seconds"]:
            break
    return {"waits_ms": waits_ms}


if __name__ == "__main__":
    main()
