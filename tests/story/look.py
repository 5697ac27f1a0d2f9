"""Everything that a queue keeps in Redis, read in one transaction, and what must be true of it at any time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.kit.clients import of_key

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime.store.keys import QueueKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What there is of one queue."""

    tasks: dict[str, bytes]
    state: dict[str, bytes]
    places: dict[str, str]
    unique: dict[str, str]
    cancelling: dict[str, str]
    delayed: dict[str, int]
    """Id -> score."""
    dead: list[str]
    lanes: dict[str, dict[str, str]]
    """Lane letter -> entry -> id."""
    pending: dict[str, tuple[str, int]]
    """Place -> consumer and delivery count."""
    consumers: set[str]
    history: list[dict[str, bytes]]
    bell: int
    keys: set[str]
    """What follows the hash tag in each key of it."""

    def remembered(self) -> set[str]:
        """Ids whose end, or result, is remembered."""
        return {key.split(":", 1)[1] for key in self.keys if key.startswith(("ended:", "result:"))}

    def unsound(self) -> list[str]:
        """What is not as it must be: each id stands in one state, and nothing is left of any other."""
        where = {id: (id in self.delayed) + (id in self.places) + (id in self.dead) for id in self.tasks}
        found = [f"{id} stands in {n} states" for id, n in where.items() if n != 1]
        known = {*self.delayed, *self.places, *self.dead, *self.state, *self.cancelling}
        found += [f"{id} has no record" for id in known - self.tasks.keys()]
        held = {key: value.split(" ", 1)[1] for key, value in self.unique.items()}
        found += [f"key {key} is held by nobody" for key, holder in held.items() if holder not in self.tasks]
        standing = {letter + entry for letter, lane in self.lanes.items() for entry in lane}
        found += [f"{id} stands in no entry" for id, place in self.places.items() if place not in standing]
        found += [f"{place} is nobody's" for place in standing - {*self.places.values()}]
        found += [f"{place} is pending and deleted" for place in self.pending.keys() - standing]
        if self.bell > 1:
            found.append(f"the bell holds {self.bell} tokens")
        return found


async def look(redis: Redis, keys: QueueKeys) -> Look:
    """What there is now."""
    async with of_key(redis, keys.tasks) as one:
        return await _look(one, keys)


async def _look(redis: Redis, keys: QueueKeys) -> Look:
    stem = keys.tasks.removesuffix("tasks")
    pipe = redis.pipeline(transaction=True)
    pipe.keys(stem.replace("[", "\\[") + "*")
    for name in (keys.tasks, keys.state, keys.places, keys.unique, keys.cancelling):
        pipe.hgetall(name)
    pipe.zrange(keys.delayed, 0, -1, withscores=True, score_cast_func=_exact)
    pipe.zrange(keys.dead, 0, -1)
    pipe.xrange(keys.history)
    pipe.llen(keys.bell)
    for lane in keys.lanes.values():
        pipe.xrange(lane)
        pipe.xpending_range(lane, "workers", "-", "+", 200_000)
        pipe.xinfo_consumers(lane, "workers")
    names, tasks, state, places, unique, cancelling, delayed, dead, history, bell, *rest = await pipe.execute(
        raise_on_error=False
    )
    lanes, pending, consumers = _lanes(rest)
    return Look(
        tasks={_text(id): record for id, record in tasks.items()},
        state={_text(id): value for id, value in state.items()},
        places=_texts(places),
        unique=_texts(unique),
        cancelling=_texts(cancelling),
        delayed={_text(member)[:-1]: score for member, score in delayed},
        dead=[_text(id) for id in dead],
        lanes=lanes,
        pending=pending,
        consumers=consumers,
        history=[{_text(name): value for name, value in fields.items()} for _, fields in history],
        bell=bell,
        keys={_text(name).removeprefix(stem) for name in names},
    )


def _lanes(reply: list[Any]) -> tuple[dict[str, dict[str, str]], dict[str, tuple[str, int]], set[str]]:
    lanes: dict[str, dict[str, str]] = {}
    pending: dict[str, tuple[str, int]] = {}
    consumers: set[str] = set()
    for letter, (entries, rows, known) in zip("hnl", (reply[0:3], reply[3:6], reply[6:9]), strict=True):
        lanes[letter] = {_text(entry): _text(fields.get(b"i", b"")) for entry, fields in entries}
        if isinstance(rows, Exception):  # no group yet
            continue
        pending |= {letter + _text(row["message_id"]): (_text(row["consumer"]), row["times_delivered"]) for row in rows}
        consumers |= {_text(about["name"]) for about in known}
    return lanes, pending, consumers


def _exact(score: bytes) -> int:
    # a float would do too, but then a score that lost its last digits would not show
    return int(float(score)) if b"e" in score else int(score)


def _texts(pairs: dict[bytes, bytes]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in pairs.items()}


def _text(value: bytes) -> str:
    return value.decode("latin-1")
