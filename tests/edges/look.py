"""Everything that a queue keeps in Redis, read in one go, and what must be true of it at any time."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firetime.store.connect import Server
    from firetime.store.keys import QueueKeys

SLOTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All there is of one queue; times that a test cannot foretell are left out."""

    tasks: dict[str, bytes]
    state: dict[str, bytes]
    places: dict[str, str]
    lanes: dict[str, dict[str, dict[str, str]]]
    pending: dict[str, tuple[str, int]]
    """Place -> consumer and delivery count."""
    consumers: frozenset[str]
    delayed: dict[str, int]
    """Member -> score."""
    wake: tuple[int, ...]
    """The fire-times in the wake stream."""
    unique: dict[str, str]
    dead: frozenset[str]
    cancelling: frozenset[str]
    ended: dict[str, str]
    results: dict[str, bytes]
    history: tuple[dict[str, bytes], ...]
    metrics: dict[str, int]
    bell: int
    paused: bool
    leader: str
    others: frozenset[str]
    """What follows the hash tag in every key that is not read here."""

    def but(self, **changes: Any) -> Look:
        """The same with some of it changed: what a test expects."""
        return replace(self, **changes)

    def entries(self, letter: str = "n") -> list[str]:
        """The ids of a lane, in order."""
        return [fields.get("i", "") for fields in self.lanes[letter].values()]

    def fire_ms(self, member: str) -> int:
        return self.delayed[member] // SLOTS

    def delayed_ids(self) -> list[str]:
        return [member[:-1] for member in self.delayed]

    def unsound(self) -> list[str]:
        """What is not as it must be: each id stands in one state, and nothing is left of any other."""
        delayed = self.delayed_ids()
        where = {id: (id in delayed) + (id in self.places) + (id in self.dead) for id in self.tasks}
        found = [f"{id} stands in {n} states" for id, n in where.items() if n != 1]
        found += [f"{id} is delayed twice" for id in {*delayed} if delayed.count(id) > 1]
        known = {*delayed, *self.places, *self.dead, *self.state, *self.cancelling}
        found += [f"{id} has no record" for id in known - self.tasks.keys()]
        found += [
            f"key {key} is held by nobody" for key, value in self.unique.items() if _holder(value) not in self.tasks
        ]
        standing = {letter + entry for letter, lane in self.lanes.items() for entry in lane}
        found += [f"{id} stands in no entry" for id, place in self.places.items() if place not in standing]
        found += [f"{place} is nobody's" for place in standing - {*self.places.values()}]
        found += [f"{place} is pending and deleted" for place in self.pending.keys() - standing]
        if self.bell > 1:
            found.append(f"the bell holds {self.bell} tokens")
        if len(self.wake) > 1:
            found.append(f"the wake stream holds {len(self.wake)} entries")
        return found


def _holder(value: str) -> str:
    return value.split(" ", 1)[1]


_ASK = """
local replies = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then reply = false end
  replies[i] = reply
end
return replies
"""
"""One script, not a transaction: that would be refused where memory is full."""


async def look(server: Server, keys: QueueKeys) -> Look:
    """What there is now."""
    stem = keys.tasks.removesuffix("tasks")
    (found,) = await _ask(server, keys, [["KEYS", f"{stem}*"]])
    names = [_text(name) for name in found]
    marks = [name for name in names if name.startswith(keys.ended(""))]
    values = [name for name in names if name.startswith(keys.result(""))]
    hashes = [keys.tasks, keys.state, keys.places, keys.unique, keys.cancelling, keys.metrics]
    reply = await _ask(server, keys, [["HGETALL", name] for name in hashes])
    tasks, state, places, unique, cancelling, metrics = (_pairs(one) for one in reply)
    delayed, dead, wake, history, bell, paused, leader, ended, results = await _ask(
        server,
        keys,
        [
            ["ZRANGE", keys.delayed, 0, -1, "WITHSCORES"],
            ["ZRANGE", keys.dead, 0, -1],
            ["XRANGE", keys.wake, "-", "+"],
            ["XRANGE", keys.history, "-", "+"],
            ["LLEN", keys.bell],
            ["EXISTS", keys.paused],
            ["GET", keys.leader],
            ["MGET", stem + "nothing", *marks],
            ["MGET", stem + "nothing", *values],
        ],
    )
    lanes, pending, consumers = await _lanes(server, keys)
    read = {*marks, *values, *keys.lanes.values(), *hashes}
    read |= {keys.delayed, keys.dead, keys.wake, keys.history, keys.bell, keys.paused, keys.leader}
    return Look(
        tasks=tasks,
        state=state,
        places=_decoded(places),
        lanes=lanes,
        pending=pending,
        consumers=consumers,
        delayed={member: _exact(score) for member, score in _pairs(delayed).items()},
        wake=tuple(int(fields[1]) for _, fields in wake),
        unique=_decoded(unique),
        dead=frozenset(map(_text, dead)),
        cancelling=frozenset(cancelling),
        ended={
            name.removeprefix(keys.ended("")): _text(value).split(" ")[0]
            for name, value in zip(marks, ended[1:], strict=True)
        },
        results={name.removeprefix(keys.result("")): value for name, value in zip(values, results[1:], strict=True)},
        history=tuple(_pairs(fields) for _, fields in history),
        metrics={name: int(value) for name, value in metrics.items()},
        bell=bell,
        paused=paused == 1,
        leader=_text(leader or b""),
        others=frozenset(name.removeprefix(stem) for name in names if name not in read),
    )


async def _lanes(
    server: Server, keys: QueueKeys
) -> tuple[dict[str, dict[str, dict[str, str]]], dict[str, tuple[str, int]], frozenset[str]]:
    lanes: dict[str, dict[str, dict[str, str]]] = {}
    pending: dict[str, tuple[str, int]] = {}
    consumers: set[str] = set()
    for letter, lane in keys.lanes.items():
        entries, rows, known = await _ask(
            server,
            keys,
            [
                ["XRANGE", lane, "-", "+"],
                ["XPENDING", lane, "workers", "-", "+", 100_000],
                ["XINFO", "CONSUMERS", lane, "workers"],
            ],
        )
        lanes[letter] = {_text(entry): _decoded(_pairs(fields)) for entry, fields in entries or ()}
        pending |= {letter + _text(entry): (_text(holder), deliveries) for entry, holder, _, deliveries in rows or ()}
        consumers |= {_text(about[1]) for about in known or ()}
    return lanes, pending, frozenset(consumers)


async def _ask(server: Server, keys: QueueKeys, commands: Sequence[Sequence[str | int]]) -> Any:
    return await server.ask("EVAL", _ASK, 1, keys.tasks, json.dumps(commands), deadline_s=30)


def _pairs(flat: Sequence[bytes] | None) -> dict[str, bytes]:
    flat = flat or ()
    return {_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _decoded(pairs: dict[str, bytes]) -> dict[str, str]:
    return {name: _text(value) for name, value in pairs.items()}


def _exact(score: bytes) -> int:
    # a float would do too, but then a score that lost its last digits would not show
    return int(float(score)) if b"e" in score else int(score)


def _text(value: bytes) -> str:
    return value.decode("latin-1")
