"""The demo is played: everything is dispatched, a worker is killed, a dead letter replayed, and what came of it told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from firetime import FiretimeError, Handle, TaskAlreadyDispatched, TaskExecutionError
from firetime.faces.demo.crew import Crew
from firetime.faces.demo.journal import Journals
from firetime.faces.demo.proof import Facts, Sent
from firetime.faces.demo.sources import Counts, DirectCount, count_in_one_process
from firetime.faces.demo.tasks import make_runner, mended, register

DELAYED = 200
FIRST_DELAY_S, LAST_DELAY_S = 0.05, 3.0
UNIQUE_DISPATCHES = 5

_START_S = 30.0
_SILENCE_S = 30.0
"""When no task has ended for so long, nobody waits for the rest: it is lost."""

_LOOK_S = 0.05
_RESULTS_TOGETHER = 20
_RESULT_S = 20.0


class Audience(Protocol):
    """Who hears how the play goes."""

    def say(self, text: str) -> None:
        """Something has happened."""
        ...

    def ended(self, tasks: int, of: int) -> None:
        """So many tasks have ended."""
        ...


class Story:
    """One play, with a server and a folder of its own."""

    def __init__(self, url: str, folder: Path, files: Sequence[Path], audience: Audience) -> None:
        self._files = files
        self._folder = folder
        self._audience = audience
        self._crew = Crew(url, folder)
        self._runner = make_runner(url)
        self._tasks = register(self._runner, folder)
        self._journals = Journals(folder)
        self._sent: list[Sent] = []

    async def play(self) -> Facts:
        """From the start of the first worker to the end of the last one."""
        await self._open()
        direct = asyncio.create_task(count_in_one_process(self._files))
        try:
            return await self._acts(direct)
        finally:
            direct.cancel()
            await asyncio.gather(direct, return_exceptions=True)

    @property
    def log(self) -> str:
        """The end of what the workers logged."""
        return self._crew.log

    async def aclose(self) -> None:
        """No process is left behind, whatever happened."""
        self._crew.end()
        await self._runner.aclose()

    async def _acts(self, direct: asyncio.Task[DirectCount]) -> Facts:
        began = time.monotonic()
        files = await self._dispatch_files()
        await self._dispatch_delayed()
        await self._dispatch_failing_twice()
        await self._dispatch_unique()
        broken = await self._dispatch_failing_always()
        await self._until(lambda: self._journals.ended_of["measure_file"] >= len(files) // 2)
        await self._kill_a_worker()
        buried = await self._bring_back(broken)
        await self._until(lambda: len(self._journals.endings) >= len(self._sent))
        worked_s = time.monotonic() - began
        told = await self._results(files)
        await self._crew.dismiss()
        self._audience.say("all tasks have ended; the direct count, in a process of its own, is waited for")
        counted = await direct
        self._journals.read()
        return Facts(
            sent=self._sent,
            entries=self._journals.entries,
            told=told,
            direct=counted,
            buried=buried,
            unique_dispatches=UNIQUE_DISPATCHES,
            worked_s=worked_s,
            log=self.log,
        )

    async def _open(self) -> None:
        started = {self._crew.hire(), self._crew.hire()}
        give_up = time.monotonic() + _START_S
        while not started <= self._journals.ready():
            if time.monotonic() > give_up:
                raise TimeoutError(f"the workers did not start within {_START_S:g} s")
            await asyncio.sleep(_LOOK_S)
            self._journals.read()
        self._audience.say("two worker processes have started")

    async def _dispatch_files(self) -> list[Handle[Counts]]:
        messages = [self._tasks.measure_file.message(str(path)) for path in self._files]
        handles: list[Handle[Counts]] = []
        for answer in await self._runner.dispatch_many(messages):
            if isinstance(answer, FiretimeError):
                raise answer
            handles.append(answer)
        self._sent += [Sent(handle.task_id, "file") for handle in handles]
        self._audience.say(f"{len(handles):,} source files of the standard library are dispatched, one task each")
        return handles

    async def _dispatch_delayed(self) -> None:
        step_s = (LAST_DELAY_S - FIRST_DELAY_S) / (DELAYED - 1)
        delays = [FIRST_DELAY_S + step_s * number for number in range(DELAYED)]
        asked = time.time()
        handles = await asyncio.gather(*(self._tasks.on_time.dispatch_delayed(delay_s) for delay_s in delays))
        self._sent += [
            Sent(handle.task_id, "delayed", asked + delay_s) for handle, delay_s in zip(handles, delays, strict=True)
        ]
        self._audience.say(
            f"{DELAYED} delayed tasks are dispatched, for {FIRST_DELAY_S:g} to {LAST_DELAY_S:g} s from now"
        )

    async def _dispatch_failing_twice(self) -> None:
        handle = await self._tasks.fails_twice.dispatch()
        self._sent.append(Sent(handle.task_id, "fails twice"))

    async def _dispatch_failing_always(self) -> Handle[str]:
        handle = await self._tasks.fails_until_mended.dispatch()
        self._sent.append(Sent(handle.task_id, "fails until mended"))
        return handle

    async def _dispatch_unique(self) -> None:
        """It waits a second, so that it is there at each of the dispatches."""
        refused = 0
        for _ in range(UNIQUE_DISPATCHES):
            try:
                handle = await self._tasks.only_once.dispatch_delayed(1.0)
            except TaskAlreadyDispatched:
                refused += 1
            else:
                self._sent.append(Sent(handle.task_id, "unique"))
        self._audience.say(f"a unique task is dispatched {UNIQUE_DISPATCHES} times, and refused {refused} times")

    async def _kill_a_worker(self) -> None:
        unfinished = await self._crew.kill_one_at_work(self._journals, _SILENCE_S)
        if unfinished is not None:
            self._crew.hire()
            self._audience.say(f"worker {unfinished.pid} is killed (SIGKILL) in the middle of a task; another starts")

    async def _bring_back(self, broken: Handle[str]) -> str:
        """Waits until it is dead, mends it, and replays it; returns why it was dead."""
        letters = self._runner.dead()
        with contextlib.suppress(TaskExecutionError):
            await broken.result(_RESULT_S)
        letter = await letters.show(broken.task_id)
        self._audience.say(f"a dead letter after {letter.failures} failures: {letter.errors[-1].text!r}")
        mended(self._folder).touch()
        await letters.replay(broken.task_id)
        self._audience.say(f"mended and replayed, it works: {await broken.result(_RESULT_S)!r}")
        return letter.reason

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Until the journals tell so, or until no task ends any more."""
        ended, heard = -1, time.monotonic()
        while not reached() and time.monotonic() - heard < _SILENCE_S:
            await asyncio.sleep(_LOOK_S)
            self._journals.read()
            if len(self._journals.endings) != ended:
                ended, heard = len(self._journals.endings), time.monotonic()
                self._audience.ended(ended, len(self._sent))

    async def _results(self, handles: list[Handle[Counts]]) -> Counts:
        """The sum of the results that are there; a missing one makes the sum wrong, which the proof will tell."""
        told = Counts()
        for at in range(0, len(handles), _RESULTS_TOGETHER):
            page = handles[at : at + _RESULTS_TOGETHER]
            for answer in await asyncio.gather(*(handle.result(_RESULT_S) for handle in page), return_exceptions=True):
                if isinstance(answer, Counts):
                    told += answer
                elif not isinstance(answer, FiretimeError):
                    raise answer
        return told
