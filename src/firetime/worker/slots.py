"""How many tasks may still be started: coroutines and threads are bounded each on their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from firetime.values.definition import Definition
from firetime.work.threads import Threads


class Slots:
    """The room of one worker."""

    def __init__(
        self, concurrency: int, threads: Threads, tasks: Mapping[str, Definition], queues: Collection[str]
    ) -> None:
        self.concurrency = concurrency
        self.coroutines = 0
        """Coroutine tasks that run."""
        self.told = 0
        """Messages whose failure handler runs: they take a slot each, so that a slow handler slows the claims down."""
        self._threads = threads
        self._tasks = tasks
        self._queues = queues
        self._seen: set[bool] = set()
        self._known = -1

    def free(self) -> int:
        """How many deliveries may be started.

        A claim cannot choose between kinds of tasks. Where both are registered, as many ``def`` tasks as there are
        threads may wait here for one, so that busy threads do not keep coroutines out.
        """
        kinds = self._kinds()
        coroutines = self.concurrency - self.coroutines - self.told
        in_threads = self._threads.busy + self._threads.waiting
        if kinds == {True}:
            return max(0, coroutines)
        if kinds == {False}:
            return max(0, self._threads.size - in_threads - self.told)
        return max(0, min(coroutines, 2 * self._threads.size - in_threads))

    @property
    def half(self) -> int:
        """The most that one claim asks for: while one half of the tasks runs, the server hands out the other.

        With claims of all slots worker and server wait for each other by turns: 39,500 no-op tasks a second instead of
        52,200 with halves, and 46,600 with thirds, where each call carries too little.
        """
        slots = self._threads.size if self._kinds() == {False} else self.concurrency
        return (slots + 1) // 2

    def _kinds(self) -> set[bool]:
        """Whether there are coroutine tasks (True), ``def`` tasks (False), or both."""
        if len(self._tasks) != self._known:
            self._known = len(self._tasks)
            self._seen = {each.is_coroutine for each in self._tasks.values() if each.options.queue in self._queues}
        return self._seen

    @property
    def running(self) -> int:
        """Tasks that run or wait for a thread."""
        return self.coroutines + self._threads.busy + self._threads.waiting
