"""The names of everything a queue keeps in Redis; all of them carry the queue's hash tag."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from firetime.values.ids import checked_name

GROUP = "workers"
"""The one consumer group of each lane."""

CONSTANT_KEYS = 12
"""At most this many keys of a queue with one sender stay when nothing is waiting, running, dead, delayed or remembered.

They are the three lanes (streams with their group stay when empty), ``wake``, ``bell``, ``metrics``, ``leader``,
``leader:epoch``, ``workers``, ``workers_seen``, ``swept``, and the sender's ``call`` key. Each further sender of the last
10 minutes has one of its own; a sender is an event loop that dispatches, another is its dead letters' replay and its groups, and so is each of the threads without
an event loop that dispatch at the same time.
"""


class QueueKeys:
    """The keys of one queue. Attribute names are the names that scripts use for them."""

    def __init__(self, prefix: str, queue: str, logical: str | None = None) -> None:
        self.queue = checked_name("queue", queue)
        self.logical = logical or queue
        """The queue as people know it, where this is a shard of one."""
        self._stem = f"{checked_name('prefix', prefix)}:{{{queue}}}:"
        self.tasks = self._stem + "tasks"
        self.state = self._stem + "state"
        self.places = self._stem + "places"
        self.high = self._stem + "lane:h"
        self.normal = self._stem + "lane:n"
        self.low = self._stem + "lane:l"
        self.bell = self._stem + "bell"
        self.delayed = self._stem + "delayed_tasks"
        self.wake = self._stem + "wake"
        self.unique = self._stem + "unique"
        self.dead = self._stem + "dead"
        self.cancelling = self._stem + "cancelling"
        self.history = self._stem + "history"
        self.leader = self._stem + "leader"
        self.epoch = self._stem + "leader:epoch"
        self.workers = self._stem + "workers"
        self.workers_seen = self._stem + "workers_seen"
        self.schedules = self._stem + "schedules"
        self.schedules_due = self._stem + "schedules_due"
        self.schedules_last = self._stem + "schedules_last"
        self.schedules_wake = self._stem + "schedules_wake"
        self.paused = self._stem + "paused"
        self.metrics = self._stem + "metrics"
        self.swept = self._stem + "swept"
        self.control_channel = self._stem + "control"
        self.ended_channel = self._stem + "ended"
        self._words: dict[str, tuple[str | None, ...]] = {}

    def words(self, script: str, names: Sequence[str]) -> tuple[str | None, ...]:
        """The keys that a script names, in their order; None for those that are not one and the same for the queue."""
        found = self._words.get(script)
        if found is None:
            named = (getattr(self, name, None) for name in names)
            found = self._words[script] = tuple(key if isinstance(key, str) else None for key in named)
        return found

    @property
    def is_home(self) -> bool:
        """Whether this is no shard, or what a spread queue had been before: then it stands for all of it."""
        return self.queue == self.logical

    @cached_property
    def lanes(self) -> dict[str, str]:
        """Lane letter -> stream."""
        return {"h": self.high, "n": self.normal, "l": self.low}

    def call(self, client: str) -> str:
        """The last numbered call of a sender."""
        return f"{self._stem}call:{client}"

    def group(self, group_id: str) -> str:
        """The members of a group that are not done, and what follows when they are."""
        return f"{self._stem}group:{group_id}"

    def ended(self, task_id: str) -> str:
        """The outcome of a task that ended."""
        return f"{self._stem}ended:{task_id}"

    def result(self, task_id: str) -> str:
        """The value of a task that ended well."""
        return f"{self._stem}result:{task_id}"


def queue_of(key: str) -> str:
    """The queue whose key or channel this is."""
    return key[key.index("{") + 1 : key.index("}")]
