"""A message's shard is found from what everybody knows of it: its unique key, or its id. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import cast

import msgspec

from firetime.values.errors import InvalidOption
from firetime.values.ids import checked_name, new_id

MOST_SHARDS = 64
"""Of one queue. Each is a queue of its own for a worker, which an idle worker asks about once a second."""

_EXPECTED = f"queues with the number of their shards, from 1 to {MOST_SHARDS}, such as " + "'default=8,mail=4'"
_SHARD = re.compile(r"(.+):(0|[1-9]\d?)")
_MADE = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}:(0|[1-9]\d?)")
_DRAWS = 16


class Shards(msgspec.Struct, frozen=True):
    """Which queues are spread, and over how many shards.

    Shard 3 of the queue ``default`` is a queue with keys, order and leader of its own, named ``default:3``. The queue
    ``default`` itself stays its *home*: of its schedules, and of what was sent while it was not spread.
    """

    counts: dict[str, int] = {}

    def __str__(self) -> str:
        return ", ".join(f"{queue}={count}" for queue, count in self.counts.items())

    def logical(self, name: str) -> str:
        """The queue that people know: of a shard's name the one that is spread, else the name itself."""
        if not self.counts:
            return name
        queue, shard = _split(name)
        return name if shard is None or queue not in self.counts else queue

    def queue_of(self) -> dict[str, str]:
        """The name of each shard that can be -> its queue."""
        return {shard_name(queue, shard): queue for queue in self.counts for shard in range(MOST_SHARDS)}

    def spreads(self, queue: str) -> int:
        """Over how many shards dispatches to the queue go; 0: it is not spread."""
        count = self.counts.get(queue, 0)
        return count if count > 1 else 0

    def check_not_a_shard(self, what: str, queue: str) -> str:
        """The name of a queue as people use it. Raises ``InvalidOption`` for one that a shard of another has."""
        if (logical := self.logical(queue)) != queue:
            raise InvalidOption(what, queue, f"another name: queue_shards has made it a shard of {logical!r}")
        return queue

    def names(self, queue: str) -> tuple[str, ...]:
        """The queue's home and the shards it is spread over now; of a queue that is not spread its own name."""
        return queue, *(shard_name(queue, shard) for shard in range(self.spreads(queue)))

    def former_names(self, queue: str) -> tuple[str, ...]:
        """The shards that it may have had while the number was larger."""
        if queue not in self.counts:
            return ()
        return tuple(shard_name(queue, shard) for shard in range(self.spreads(queue), MOST_SHARDS))

    def names_for(self, queue: str, task_id: str) -> tuple[str, ...]:
        """Where a message may be that is known by its id only, the likeliest first.

        An id that carries its shard names it. Else it was chosen by its sender: then its hash tells where it is, and
        where it was while the number was another one; or it has a unique key, whose hash nobody knows here.
        """
        if queue not in self.counts:
            return (queue,)
        hashed = _hashed(task_id, self.counts[queue])
        if (shard := shard_in(task_id)) is not None:
            found = [shard, *hashed]
            return tuple(dict.fromkeys(shard_name(queue, each) for each in found))
        likely = [shard_name(queue, each) for each in hashed]
        # runs of schedules, which have an @ in their ids, go to the home
        likely.insert(0 if "@" in task_id or not self.spreads(queue) else 1, queue)
        return tuple(dict.fromkeys([*likely, *self.names(queue)]))

    def shard(self, name: str) -> int | None:
        """Which shard a name is of; None for a queue that is not spread, and for the home of one."""
        queue, shard = _split(name)
        return shard if self.spreads(queue) else None

    def share(self, name: str, most: int) -> int:
        """What one shard may hold where the whole queue may hold ``most``: an equal part, rounded up; 0: no limit."""
        count = self.spreads(self.logical(name))
        return -(-most // count) if count else most


NO_SHARDS = Shards()
"""No queue is spread."""


def shard_name(queue: str, shard: int) -> str:
    """The queue that is one shard of another."""
    return f"{queue}:{shard}"


def shard_of(key: str, count: int) -> int:
    """Which of ``count`` shards a unique key, or an explicit id, belongs to.

    One shard more takes its part from all others, and nothing moves among those.
    """
    found = 0
    for shard in _as_the_number_grows(key):
        if shard >= count:
            break
        found = shard
    return found


def shard_in(task_id: str) -> int | None:
    """The shard that an id made here carries; None for other ids."""
    made = _MADE.fullmatch(task_id)
    shard = int(made[1]) if made is not None else MOST_SHARDS
    return shard if shard < MOST_SHARDS else None


def with_shard(task_id: str, shard: int) -> str:
    """The id made here that carries its shard."""
    return f"{task_id}:{shard}"


def moved_to(task_id: str, shard: int) -> str:
    """An id made here, for another shard."""
    made = task_id if shard_in(task_id) is None else task_id.rpartition(":")[0]
    return with_shard(made, shard)


def renewed(task_id: str) -> str:
    """A fresh id for the same shard."""
    shard = shard_in(task_id)
    return new_id() if shard is None else with_shard(new_id(), shard)


def checked_shards(name: str, value: object) -> Shards:
    """``{"default": 8}`` or ``"default=8,mail=4"``, checked. Raises ``InvalidOption``."""
    if isinstance(value, Shards):
        return value
    if isinstance(value, str):
        pairs = [_pair(name, value, each) for each in value.split(",")]
        if len({queue for queue, _ in pairs}) < len(pairs):
            raise InvalidOption(name, value, "each queue once")
        value = dict(pairs)
    if not isinstance(value, Mapping):
        raise InvalidOption(name, value, _EXPECTED)
    given = cast("Mapping[str, object]", value)
    counts = {_queue(queue): _count(name, queue, count) for queue, count in given.items()}
    for queue in counts:
        home, shard = _split(queue)
        if shard is not None and home in counts:
            raise InvalidOption(name, given, f"no queue that is named like a shard of another, as {queue!r} is")
    return Shards(counts)


def _pair(name: str, value: str, pair: str) -> tuple[str, int]:
    queue, equals, count = pair.rpartition("=")
    if not equals or not count.strip().isdecimal():
        raise InvalidOption(name, value, _EXPECTED)
    return queue.strip(), int(count)


def _queue(queue: str) -> str:
    checked_name("queue", queue)
    # its shards' names must be names as well
    checked_name("queue", shard_name(queue, MOST_SHARDS - 1))
    return queue


def _count(name: str, queue: str, count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_SHARDS:
        raise InvalidOption(name, {queue: count}, f"a whole number of shards from 1 to {MOST_SHARDS}")
    return count


def _split(name: str) -> tuple[str, int | None]:
    found = _SHARD.fullmatch(name)
    if found is None or int(found[2]) >= MOST_SHARDS:
        return name, None
    return found[1], int(found[2])


def _hashed(task_id: str, count: int) -> list[int]:
    """Where its hash has put an id, for the present number first."""
    shards = list(_as_the_number_grows(task_id))
    return [shard_of(task_id, count), *shards]


def _as_the_number_grows(key: str) -> Iterator[int]:
    """A key's shard while there is one, then each that it moves to while more are added.

    The rule, that a key moves to the n-th shard with probability 1/n and never elsewhere, is that of "jump" hashing
    (Lamping and Veach, arXiv:1406.2294); the draws are 32-bit pieces of a BLAKE2b digest.
    """
    shard, drawn = 0, b""
    while shard < MOST_SHARDS:
        yield shard
        drawn = drawn[4:] or blake2b(b"%d " % shard + key.encode(), digest_size=4 * _DRAWS).digest()
        shard = (shard + 1 << 32) // (int.from_bytes(drawn[:4], "big") + 1)
