"""How many tasks may still be started: coroutines, threads and processes are bounded each on their own."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from firetime.values.definition import Definition
from firetime.work.processes import Processes
from firetime.work.threads import Threads


class Slots:
    """The room of one worker."""

    def __init__(
        self,
        concurrency: int,
        threads: Threads,
        processes: Processes,
        tasks: Mapping[str, Definition],
        queues: Collection[str],
    ) -> None:
        self.concurrency = concurrency
        self.coroutines = 0
        """Coroutine tasks that run."""
        self.left = math.inf
        """How many tasks it may still take before it makes room for a new process."""
        self.told = 0
        """Messages whose failure handler runs: they take a slot each, so that a slow handler slows the claims down."""
        self._threads = threads
        self._processes = processes
        self._tasks = tasks
        self._queues = queues
        self._known = 0
        self._registered: set[str] = set()

    def free(self) -> int:
        """How many deliveries may be started.

        A claim cannot choose between kinds of tasks. Where several are registered, as many ``def`` tasks as there are
        threads may wait here for one, and as many as there are processes, so that these being busy keeps nobody else out.
        """
        kinds = self._kinds()
        mixed = 2 if len(kinds) > 1 else 1
        room = {
            "loop": self.concurrency - self.coroutines,
            "thread": mixed * self._threads.size - self._threads.busy - self._threads.waiting,
            "process": mixed * self._processes.size - self._processes.busy - self._processes.waiting,
        }
        return int(max(0, min(min(room[kind] for kind in kinds) - self.told, self.left)))

    def _kinds(self) -> set[str]:
        # tasks are only ever added
        if self._known != len(self._tasks):
            self._known = len(self._tasks)
            self._registered = {_kind(each) for each in self._tasks.values() if each.options.queue in self._queues}
        return self._registered or {"loop"}

    @property
    def half(self) -> int:
        """The most that one claim asks for: while one half of the tasks runs, the server hands out the other.

        With claims of all slots worker and server wait for each other by turns: 39,500 no-op tasks a second instead of
        52,200 with halves, and 46,600 with thirds, where each call carries too little.
        """
        slots = {"loop": self.concurrency, "thread": self._threads.size, "process": self._processes.size}
        return (max(slots[kind] for kind in self._kinds()) + 1) // 2

    @property
    def running(self) -> int:
        """Tasks that run, or wait for a thread or a process."""
        waiting = self._threads.waiting + self._processes.waiting
        return self.coroutines + self._threads.busy + self._processes.busy + waiting


def _kind(task: Definition) -> str:
    return "loop" if task.is_coroutine else task.options.run_in
