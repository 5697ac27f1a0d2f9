"""Jobs wait in one line for somebody to do them: a thread, or a process."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Generic, TypeVar

J = TypeVar("J")
W = TypeVar("W")


class Jobs(Generic[J, W]):
    """What waits, and who has what does not.

    A job stands in one of the two at any time: whoever gives it up must find it. Whoever pops it owns it: ``dict.pop`` is one
    step under the interpreter lock, and all threads do the same.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._line: SimpleQueue[J | None] = SimpleQueue()
        self._unstarted: dict[J, None] = {}
        self._running: dict[J, W] = {}

    @property
    def busy(self) -> int:
        """Jobs that somebody has, those given up not counted."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Jobs that nobody has started."""
        return len(self._unstarted)

    def withdraw(self) -> list[J]:
        """The jobs that nobody has started; nobody will."""
        return [job for job in list(self._unstarted) if self.withdraw_one(job)]

    def withdraw_one(self, job: J) -> bool:
        """Whether the job had not been started; then it never will be."""
        return self._unstarted.pop(job, job) is None

    def _put(self, job: J) -> None:
        self._unstarted[job] = None
        self._line.put(job)

    def _started(self, job: J, worker: W) -> bool:
        """Whether ``worker`` has the job from now on: not when it was withdrawn."""
        self._running[job] = worker
        if self._unstarted.pop(job, job) is not None:
            del self._running[job]
            return False
        return True

    def _taken_from(self, job: J) -> W | None:
        """Who had the job; None when it is known already that it has ended, or was given up."""
        return self._running.pop(job, None)

    def _dismiss(self, count: int) -> None:
        """So many who wait for jobs get none any more."""
        for _ in range(count):
            self._line.put(None)
