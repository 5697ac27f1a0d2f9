"""Jobs go to a bounded number of threads through one queue, and come back to the event loop in batches."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque

from firetime.work.jobs import Jobs


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


class Threads(Jobs[Job, threading.Thread]):
    """Daemon threads, made when first needed: one that never ends must not keep the process from exiting."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.leaked = 0
        """Threads still busy with a job that was given up; others have taken their place."""
        self._loop = asyncio.get_running_loop()
        self._done: deque[Job] = deque()
        self._waking = False
        self._made = 0

    def submit(self, job: Job) -> None:
        """Runs the job in the next free thread."""
        self._put(job)
        able = self._made - self.leaked
        if able < self.size and self.waiting + self.busy > able:
            self._grow()

    def abandon(self, job: Job) -> bool:
        """Counts the job's thread as leaked, and puts another in its place; False when its work has just ended."""
        if self._taken_from(job) is None:
            return False
        job.abandoned = True
        self.leaked += 1
        self._grow()
        return True

    def close(self) -> None:
        """Ends the threads that are idle, and the others once their job is done."""
        self._dismiss(self._made + self.leaked)

    def _grow(self) -> None:
        self._made += 1
        threading.Thread(target=self._serve, name=f"firetime-task-{self._made}", daemon=True).start()

    def _serve(self) -> None:
        while (job := self._line.get()) is not None:
            if not self._started(job, threading.current_thread()):
                continue
            job.work()
            given_up = self._taken_from(job) is None
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
