"""What is left in the server when all work is done: nothing but the documented constants and keys that expire."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from firetime.store.keys import CONSTANT_KEYS, GROUP, QueueKeys

T = TypeVar("T")
LANES = ("high", "normal", "low")

_FOR_EVER = -1
"""What PTTL says of a key that does not expire; one that has just expired is -2."""

_PAGE = 1000


def _pages(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while page := list(itertools.islice(iterator, _PAGE)):
        yield page


class Remains:
    """A look into the queues of a server."""

    def __init__(self, redis: Any, keys: Iterable[QueueKeys]) -> None:
        self._redis = redis
        self._keys = list(keys)

    def at_work(self) -> dict[str, int]:
        """What is still to be done: messages that are neither dead nor ended."""
        counts = {}
        for keys in self._keys:
            counts[keys.queue] = self._redis.hlen(keys.tasks) - self._redis.zcard(keys.dead)
        return counts

    def dead(self) -> Iterator[tuple[str, str, int]]:
        """Every dead letter: id, reason, failures."""
        return (words for _, *words in self.letters())  # type: ignore[misc]

    def letters(self) -> Iterator[tuple[str, str, str, int]]:
        """Every dead letter: queue, id, reason, failures."""
        for keys in self._keys:
            ids = self._redis.zrange(keys.dead, 0, -1)
            for at in range(0, len(ids), 1000):
                page = ids[at : at + 1000]
                for task_id, state in zip(page, self._redis.hmget(keys.state, page), strict=True):
                    notes = json.loads(state.split(b" ", 2)[2]) if state else {}
                    yield keys.queue, task_id.decode(), str(notes.get("reason", "?")), int(notes.get("failures", 0))

    def history(self) -> Iterator[str]:
        """The ids that the server completed, of tasks that are kept."""
        for keys in self._keys:
            after = "-"
            while page := self._redis.xrange(keys.history, after, "+", count=5000):
                for _, fields in page:
                    yield fields[b"i"].decode()
                after = "(" + page[-1][0].decode()

    def cancelled(self, ids_by_queue: Iterable[tuple[str, str]]) -> Iterator[str]:
        """Those of these that the server remembers as cancelled."""
        by_name = {keys.queue: keys for keys in self._keys}
        for page in _pages(ids_by_queue):
            said = self._redis.mget([by_name[queue].ended(task_id) for task_id, queue in page])
            for (task_id, _), ended in zip(page, said, strict=True):
                if (ended or b"").startswith(b"cancelled"):
                    yield task_id

    def consumers(self) -> int:
        """How many consumers the groups have."""
        return sum(len(self._of(keys, "CONSUMERS", lane)) for keys in self._keys for lane in LANES)

    def pending(self) -> int:
        """How many deliveries are pending."""
        found = 0
        for keys in self._keys:
            for lane in LANES:
                for group in self._of(keys, "GROUPS", lane):
                    found += group.get("pending", 0)
        return found

    def left_behind(self) -> list[str]:
        """Each thing that should not be there, after the dead letters were purged and the schedule removed."""
        left = [f"a consumer x {self.consumers()}"] if self.consumers() else []
        left += [f"a pending delivery x {self.pending()}"] if self.pending() else []
        for keys in self._keys:
            left += self._of_queue(keys)
        return left

    def _of_queue(self, keys: QueueKeys) -> Iterator[str]:
        stem = keys.tasks[: -len("tasks")]
        stay = {keys.high, keys.normal, keys.low, keys.wake, keys.bell, keys.metrics, keys.epoch, keys.history}
        stay |= {keys.schedules_wake}
        constant = 0
        for page in _pages(self._redis.scan_iter(match=stem.replace("{", "[{]") + "*", count=1000)):
            pipeline = self._redis.pipeline(transaction=False)
            for key in page:
                pipeline.pttl(key)
            for key, ttl_ms in zip(page, pipeline.execute(), strict=True):
                if key.decode() in stay:
                    constant += 1
                elif ttl_ms == _FOR_EVER:
                    yield f"{key.decode()} ({self._redis.type(key).decode()})"
        for lane in (keys.high, keys.normal, keys.low):
            if length := self._redis.xlen(lane):
                yield f"{lane} holds {length}"
        if constant > CONSTANT_KEYS:
            yield f"{constant} keys of {keys.queue} where {CONSTANT_KEYS} are documented"

    def _of(self, keys: QueueKeys, what: str, lane: str) -> list[dict[str, Any]]:
        key = getattr(keys, lane)
        if not self._redis.exists(key):
            return []
        answer = self._redis.xinfo_consumers(key, GROUP) if what == "CONSUMERS" else self._redis.xinfo_groups(key)
        return list(answer)
