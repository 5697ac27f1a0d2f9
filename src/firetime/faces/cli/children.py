"""One process starts several workers, passes signals on to them, and starts another where one died."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process

from firetime.faces.cli.lifeline import READY
from firetime.worker.signals import StopSignals

_log = logging.getLogger("firetime.processes")
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
RESTART = 75
"""The exit code of a worker that has stopped so that another one takes its place (EX_TEMPFAIL of sysexits.h)."""

_STEADY_S = 60.0
"""A process that lived this long did not die of how it was started: the next pause is a short one again."""


class Children:
    """Worker processes, all started by one command.

    Each is in a process group of its own: Ctrl-C reaches this process alone, which passes it on once.
    """

    def __init__(self, command: list[str], *, burst: bool) -> None:
        self._command = [sys.executable, "-m", "firetime.faces.cli", *command]
        self._burst = burst
        self._running: set[Process] = set()
        self._stopping = asyncio.Event()

    async def run(self, count: int) -> int:
        """Until a signal has stopped them, or all have drained the queues; the exit code."""
        with StopSignals(lambda _: self._stop()):
            return max(await asyncio.gather(*(self._keep(place, count) for place in range(count))))

    def _stop(self) -> None:
        self._stopping.set()
        for process in self._running:
            # one that is gone already, and not yet waited for, needs none
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    async def _keep(self, number: int, count: int) -> int:
        """One process after the other, until one ends as it should, or could not even start."""
        place = f"{number + 1} of {count}"
        pause_s, worked = _FIRST_PAUSE_S, False
        clock = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            started = clock()
            code, ready = await self._run_one(place, number)
            worked |= ready
            if code == RESTART and not self._stopping.is_set():
                _log.info("worker process %s has done its part; another starts", place)
                continue
            if self._stopping.is_set():
                return 0 if code in (0, RESTART, -signal.SIGTERM) else 1
            if code == 0 and self._burst:
                return 0
            if code > 0 and not worked:
                self._stop()
                return 1
            pause_s = _FIRST_PAUSE_S if clock() - started > _STEADY_S else pause_s
            _log.warning("worker process %s %s; another starts in %g s", place, _how(code), pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        return 0

    async def _run_one(self, place: str, number: int) -> tuple[int, bool]:
        """Its exit code, and whether it ever worked."""
        ours, theirs = socket.socketpair()
        with theirs:
            line = theirs.fileno()
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *("--lifeline", str(line), "--place", str(number)),
                stdin=DEVNULL,
                pass_fds=[line],
                process_group=0,
            )
        self._running.add(process)
        _log.info("worker process %s started: pid %d", place, process.pid)
        if self._stopping.is_set():
            process.terminate()
        reader, writer = await asyncio.open_connection(sock=ours)
        said = asyncio.ensure_future(reader.read(1))
        try:
            code = await process.wait()
            # what it said before it ended has arrived: one more turn of the loop and it is read
            await asyncio.wait([said], timeout=0.1)
            return code, said.done() and said.result() == READY
        finally:
            self._running.discard(process)
            said.cancel()
            writer.close()


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"has ended with exit code {code}"
