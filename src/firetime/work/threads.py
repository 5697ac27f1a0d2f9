"""Jobs go to a bounded number of threads through one queue, and come back to the event loop in batches."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from queue import SimpleQueue


class Job(ABC):
    """Something that one thread does."""

    __slots__ = ("abandoned",)

    def __init__(self) -> None:
        self.abandoned = False

    @abstractmethod
    def work(self) -> None:
        """In a thread. Must not raise."""

    @abstractmethod
    def ended(self) -> None:
        """On the event loop, after ``work``."""


class Threads:
    """Daemon threads, made when first needed: one that never ends must not keep the process from exiting."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.leaked = 0
        """Threads still busy with a job that was given up; others have taken their place."""
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._unstarted: dict[Job, None] = {}
        self._running: dict[Job, None] = {}
        self._done: deque[Job] = deque()
        self._waking = False
        self._made = 0

    @property
    def busy(self) -> int:
        """Jobs that run, those given up not counted."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Jobs that wait for a thread."""
        return len(self._unstarted)

    def submit(self, job: Job) -> None:
        """Runs the job in the next free thread."""
        self._unstarted[job] = None
        self._jobs.put(job)
        able = self._made - self.leaked
        if able < self.size and self.waiting + self.busy > able:
            self._grow()

    def withdraw(self) -> list[Job]:
        """The jobs that no thread has started; none will."""
        return [job for job in list(self._unstarted) if self.withdraw_one(job)]

    def withdraw_one(self, job: Job) -> bool:
        """Whether the job had not been started; then it never will be."""
        # whoever pops it owns it: dict.pop is one step under the interpreter lock, and the threads do the same
        return self._unstarted.pop(job, job) is None

    def abandon(self, job: Job) -> bool:
        """Counts the job's thread as leaked, and puts another in its place; False when its work has just ended."""
        if self._running.pop(job, job) is not None:
            return False
        job.abandoned = True
        self.leaked += 1
        self._grow()
        return True

    def close(self) -> None:
        """Ends the threads that are idle, and the others once their job is done."""
        for _ in range(self._made + self.leaked):
            self._jobs.put(None)

    def _grow(self) -> None:
        self._made += 1
        threading.Thread(target=self._serve, name=f"firetime-task-{self._made}", daemon=True).start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            # it stands in one of the two at any time: whoever gives it up must find it
            self._running[job] = None
            if self._unstarted.pop(job, job) is not None:
                del self._running[job]
                continue
            job.work()
            given_up = self._running.pop(job, job) is not None
            self._tell(job)
            if given_up:
                # another thread has taken its place
                return

    def _tell(self, job: Job) -> None:
        self._done.append(job)
        if not self._waking:
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:
                # the loop is closed: the worker gave this job up when it stopped
                return

    def _collect(self) -> None:
        self._waking = False
        while self._done:
            job = self._done.popleft()
            if job.abandoned:
                self.leaked -= 1
                self._made -= 1
            job.ended()
