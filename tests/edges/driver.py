"""The scripts, called with plain Python values; what they answer, and what they leave in Redis, as plain values."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.keys import QueueKeys
from firetime.store.places import connect
from tests.edges.look import Look, look
from tests.kit.clients import raw_client
from tests.kit.leaks import unexpected_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from redis.asyncio import Redis

    from firetime.store.connect import Server
    from firetime.store.scripts import Argument
    from tests.kit.shared import Lent

ME, OTHER = "me", "other"
RECORD = b'["task",[[],{}]]'
FRESH = b"0 1 {}"
HOUR_MS = 3_600_000
OLD_MS = 10 * 60_000
"""How old `Driver.grow_old` makes a lease: no test takes that long."""
FOREVER_MS = 10 * HOUR_MS
"""A lease that no test outlives."""


class Held(Protocol):
    """What a settling call says about a delivery."""

    @property
    def letter(self) -> str: ...
    @property
    def entry(self) -> str: ...
    @property
    def deliveries(self) -> int: ...
    @property
    def id(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One message of a dispatch."""

    id: str
    record: bytes = RECORD
    letter: str = "n"
    in_us: int | None = None
    at_ms: int | None = None
    key: str = ""
    hold_ms: int = 0
    on_conflict: str = "raise"
    explicit: bool = False

    @property
    def plain(self) -> bool:
        return self.in_us is None and self.at_ms is None and not self.key and not self.explicit

    def words(self) -> list[Any]:
        if self.plain:
            return [self.id, self.record, self.letter]
        kind, time = ("in", self.in_us) if self.in_us is not None else ("at", self.at_ms)
        when = ("", 0) if time is None else (kind, time)
        rest = (*when, self.key, self.hold_ms, self.on_conflict, "1" if self.explicit else "")
        return [self.id, self.record, f"{self.letter}+", *rest]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a dispatch or replay says of a message that was not plainly accepted."""

    position: int
    what: str
    holder: str


@dataclass(frozen=True, slots=True)
class Given:
    """One delivery, as `claim` gave it."""

    letter: str
    entry: str
    deliveries: int
    id: str
    record: bytes | None = RECORD
    state: bytes | None = None
    fire_ms: int | None = None
    cancel_asked: bool = False

    def with_count(self, deliveries: int) -> Given:
        return replace(self, deliveries=deliveries)

    @property
    def place(self) -> str:
        return self.letter + self.entry


@dataclass(frozen=True, slots=True)
class Claimed:
    """All of a claim's reply."""

    now_us: int
    note: str
    stale: int
    given: tuple[Given, ...]

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.given]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A completion of which more is to be said than that it is done."""

    held: Held
    outcome: str = "done"
    key: str = ""
    remember_ms: int = 0
    result_ms: int = 0
    value: bytes = b""
    history: bool = False
    task: str = "task"
    group: str = ""


@dataclass(frozen=True, slots=True)
class Renewed:
    """What `renew` found."""

    lost: frozenset[str]
    to_cancel: frozenset[str]
    unknown: tuple[Given, ...]


@dataclass(frozen=True, slots=True)
class Promoted:
    """What `promote` moved, and what it knows of the rest."""

    moved: int
    next_ms: int
    now_us: int
    wake_id: str
    late_ms: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The leader lease, as `lead` answers."""

    mine: bool
    epoch: int
    token: str
    since_ms: int
    head_ms: int
    now_us: int
    wake_id: str
    next_slot_ms: int


@dataclass(frozen=True, slots=True)
class Told:
    """What `status` says."""

    status: str
    fire_ms: int | None
    record: bytes | None
    state: bytes | None
    deliveries: int
    outcome: str
    value: bytes | None


class Driver:
    """One queue on one server."""

    def __init__(self, server: Server, raw: Redis, queue: str) -> None:
        self.server = server
        self.raw: Any = raw  # its replies are typed for every protocol and decoder at once
        self.keys = QueueKeys("firetime", queue)
        self.expected_unsound = False
        """Set by a test that spoils the queue on purpose."""
        self._numbers = count(1)

    def fresh(self, suffix: str) -> Driver:
        """The same for another queue: Hypothesis runs one test many times."""
        return Driver(self.server, self.raw, f"{self.keys.queue}.{suffix}")

    async def now_ms(self) -> int:
        seconds, us = await self.raw.time()
        return int(seconds) * 1000 + int(us) // 1000

    async def travel_to(self, ms: int) -> None:
        """The scripts' clock stands a little after that time, and goes on."""
        seconds, us = await self.raw.time()
        self.server.shift.us = ms * 1000 - (int(seconds) * 1_000_000 + int(us))

    async def look(self) -> Look:
        return await look(self.server, self.keys)

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[list[str]]:
        """What was published by the end of the block, complete then."""
        heard: list[str] = []
        async with self.raw.pubsub() as pubsub:
            await pubsub.subscribe(channel)
            await pubsub.get_message(timeout=5)
            yield heard
            await self.raw.publish(channel, "the end")
            while (message := await pubsub.get_message(timeout=5))["data"] != b"the end":
                heard.append(message["data"].decode())

    async def lease_ages(self, letter: str = "n") -> dict[str, int]:
        """Place -> how long ago it was delivered or renewed, in ms."""
        rows = await self.raw.xpending_range(self.keys.lanes[letter], "workers", "-", "+", 10_000)
        return {letter + row["message_id"].decode(): row["time_since_delivered"] for row in rows}

    async def grow_old(self, *, consumer: str | None = None) -> None:
        """Leases (those of one consumer, or all) are OLD_MS old, at once; nothing else of them changes."""
        pipe = self.raw.pipeline(transaction=False)
        for place, (holder, _) in (await self.look()).pending.items():
            if consumer in {None, holder}:
                pipe.xclaim(self.keys.lanes[place[0]], "workers", holder, 0, [place[1:]], idle=OLD_MS, justid=True)
        await pipe.execute()

    # ------------------------------------------------------------------------------------------------ none -> ready

    async def dispatch(
        self,
        *sent: Sent,
        number: int | None = None,
        client: str = "client",
        max_length: int = 0,
        plain: bool | None = None,
    ) -> list[Answer]:
        """``plain`` where all of them are, unless said otherwise: what senders say."""
        rest = [word for one in sent for word in one.words()]
        if plain is None:
            plain = not max_length and len(rest) == 3 * len(sent)
        reply = await self.server.run(
            "dispatch",
            self.keys,
            {
                "number": next(self._numbers) if number is None else number,
                "max_length": max_length,
                "plain": "1" if plain else "",
            },
            rest,
            more_keys=[self.keys.ended(one.id) for one in sent if one.explicit],
            call=self.keys.call(client),
        )
        return _answers(reply)

    async def send(self, *ids: str, **options: Any) -> None:
        """Messages that must be accepted."""
        assert await self.dispatch(*(Sent(id=id, **options) for id in ids)) == []

    async def group(
        self,
        *sent: Sent,
        then: str = "then",
        letter: str = "n",
        record: bytes = RECORD,
        group: str = "g",
        begins: bool = True,
        ends: bool = True,
        ttl_ms: int = HOUR_MS,
        number: int | None = None,
        max_length: int = 0,
    ) -> list[Answer]:
        """One call of a group; ``then`` is the callback's id."""
        rest: list[Any] = []
        for one in sent:
            kind, time = ("in", one.in_us) if one.in_us is not None else ("at", one.at_ms)
            when = ("", 0) if time is None else (kind, time)
            rest += [one.id, one.record, one.letter, *when, "1" if one.explicit else ""]
        arguments: dict[str, Argument] = {
            "number": next(self._numbers) if number is None else number,
            "max_length": max_length,
            "ttl_ms": ttl_ms,
            "begins": "1" if begins else "",
            "callback": f"{letter}{then} ".encode() + record if ends else b"",
        }
        reply = await self.server.run(
            "group",
            self.keys,
            arguments,
            rest,
            more_keys=[self.keys.ended(one.id) for one in sent if one.explicit],
            call=self.keys.call("grouper"),
            group=self.keys.group(group),
        )
        return _answers(reply)

    async def waits_for(self, group: str = "g") -> set[str]:
        """The members that are not done; none when there is no such group."""
        return {field.decode() for field in await self.raw.hkeys(self.keys.group(group))} - {""}

    async def replay(
        self, *ids: str, letter: str = "n", key: str = "", hold_ms: int = 0, number: int | None = None
    ) -> list[Answer]:
        rest = [word for id in ids for word in (id, letter, key, hold_ms)]
        number = next(self._numbers) if number is None else number
        return _answers(
            await self.server.run("replay", self.keys, {"number": number}, rest, call=self.keys.call("replayer"))
        )

    async def purge(self, *ids: str) -> int:
        return int(await self.server.run("purge", self.keys, {}, ids))

    # --------------------------------------------------------------------------------------------- ready -> running

    async def claim(
        self,
        consumer: str = ME,
        *,
        free: int = 10,
        order: str = "hnl",
        sweep: bool = False,
        lease_ms: int = FOREVER_MS,
        sweep_ms: int = HOUR_MS,
        budget: int = 1 << 20,
    ) -> Claimed:
        reply = await self.server.run(
            "claim",
            self.keys,
            {
                "consumer": consumer,
                "free": free,
                "order": order,
                "sweep": int(sweep),
                "lease_ms": lease_ms,
                "sweep_ms": sweep_ms,
                "budget": budget,
            },
        )
        now_us, note, stale = reply[:3]
        return Claimed(now_us, note.decode(), stale, tuple(_given(row) for row in batched(reply[3:], 8)))

    async def take(self, id: str, consumer: str = ME) -> Given:
        """The one delivery there is to be had, which must be of this id."""
        (one,) = (await self.claim(consumer)).given
        assert one.id == id
        return one

    async def sweep(self, consumer: str = OTHER, *, free: int = 10) -> Claimed:
        """A claim for which every lease has run out, whoever swept last."""
        await self.raw.delete(self.keys.swept)
        return await self.claim(consumer, free=free, sweep=True, lease_ms=0)

    # ------------------------------------------------------------------------------------------------------ settling

    async def complete(
        self,
        *done: Held,
        others: Sequence[Ended] = (),
        letter: str = "n",
        consumer: str = ME,
        metrics: Sequence[tuple[str, int]] = (),
        history_length: int = 100,
    ) -> tuple[list[str], list[str]]:
        rest: list[Any] = [word for pair in metrics for word in pair]
        for one in done:
            rest += [one.entry, one.deliveries, one.id]
        groups = list(dict.fromkeys(one.group for one in others if one.group))
        for other in others:
            one = other.held
            rest += [one.entry, one.deliveries, one.id, other.outcome, other.key, other.remember_ms]
            rest += [other.result_ms, other.value, "1" if other.history else "", other.task]
            rest.append(groups.index(other.group) + 1 if other.group else 0)
        more = [key for one in others for key in (self.keys.ended(one.held.id), self.keys.result(one.held.id))]
        if groups:
            more += [*self.keys.lanes.values(), self.keys.bell, self.keys.paused, *map(self.keys.group, groups)]
        refused, not_freed = await self.server.run(
            "complete",
            self.keys,
            {
                "consumer": consumer,
                "counted": len(metrics),
                "plain": len(done),
                "history_length": history_length,
                "ended_channel": self.keys.ended_channel,
            },
            rest,
            more_keys=more,
            lane=self.keys.lanes[letter],
        )
        return _texts(refused), _texts(not_freed)

    async def retry(
        self,
        *failed: Held,
        delay_us: int = 0,
        state: bytes = FRESH,
        key: str = "",
        hold_ms: int = 0,
        letter: str = "n",
        consumer: str = ME,
        metrics: Sequence[tuple[str, int]] = (),
        remember_ms: int = HOUR_MS,
    ) -> tuple[list[str], list[str]]:
        rest: list[Any] = [word for pair in metrics for word in pair]
        for one in failed:
            rest += [one.entry, one.deliveries, one.id, delay_us, state, key, hold_ms]
        refused, cancelled = await self.server.run(
            "retry",
            self.keys,
            {
                "consumer": consumer,
                "letter": letter,
                "counted": len(metrics),
                "remember_ms": remember_ms,
                "ended_channel": self.keys.ended_channel,
            },
            rest,
            more_keys=[self.keys.ended(one.id) for one in failed],
        )
        return _texts(refused), _texts(cancelled)

    async def bury(
        self,
        *failed: Held,
        state: bytes = FRESH,
        key: str = "",
        letter: str = "n",
        consumer: str = ME,
        metrics: Sequence[tuple[str, int]] = (),
    ) -> list[str]:
        rest: list[Any] = [word for pair in metrics for word in pair]
        for one in failed:
            rest += [one.entry, one.deliveries, one.id, state, key]
        arguments: dict[str, Argument] = {
            "consumer": consumer,
            "counted": len(metrics),
            "ended_channel": self.keys.ended_channel,
        }
        (refused,) = await self.server.run("bury", self.keys, arguments, rest, lane=self.keys.lanes[letter])
        return _texts(refused)

    async def release(
        self, *held: Held, started: bool = False, fire_ms: int = 0, letter: str = "n", consumer: str = ME
    ) -> list[str]:
        rest: list[Any] = []
        for one in held:
            rest += [one.entry, one.deliveries, one.id, "1" if started else "", fire_ms]
        (refused,) = await self.server.run("release", self.keys, {"consumer": consumer, "letter": letter}, rest)
        return _texts(refused)

    async def renew(
        self,
        *known: Held,
        unique: Sequence[tuple[str, str, int]] = (),
        consumer: str = ME,
        unknown_ms: int = FOREVER_MS,
    ) -> Renewed:
        rest: list[Any] = []
        for one in known:
            rest += [one.letter, one.entry, one.deliveries, one.id]
        for row in unique:
            rest += row
        arguments: dict[str, Argument] = {"consumer": consumer, "known": len(known), "unknown_ms": unknown_ms}
        lost, to_cancel, unknown = await self.server.run("renew", self.keys, arguments, rest)
        found = tuple(
            Given(letter.decode(), entry.decode(), deliveries, id.decode())
            for letter, entry, deliveries, id in batched(unknown, 4)
        )
        return Renewed(frozenset(_texts(lost)), frozenset(_texts(to_cancel)), found)

    # -------------------------------------------------------------------------------------------------------- upkeep

    async def promote(self, token: str = ME, *, grace_ms: int = 1000, most: int = 500) -> Promoted:
        arguments: dict[str, Argument] = {"token": token, "grace_ms": grace_ms, "most": most}
        moved, next_ms, now_us, wake_id, late_ms, _leads = await self.server.run("promote", self.keys, arguments)
        return Promoted(moved, next_ms, now_us, wake_id.decode(), int(late_ms))

    async def lead(self, token: str = ME, *, ttl_ms: int = HOUR_MS) -> Lease:
        reply = await self.server.run("lead", self.keys, {"token": token, "ttl_ms": ttl_ms})
        mine, epoch, who, since_ms, head_ms, now_us, wake_id, next_slot_ms, *_ = reply
        return Lease(mine == 1, epoch, who.decode(), since_ms, head_ms, now_us, wake_id.decode(), next_slot_ms)

    async def leave(self, token: str = ME) -> bool:
        return bool(await self.server.run("leave", self.keys, {"token": token}))

    async def alive(self, token: str = ME, *, about: str = "{}", fresh_ms: int = 1000) -> int:
        return int(await self.server.run("alive", self.keys, {"token": token, "about": about, "fresh_ms": fresh_ms}))

    async def prune(self, *, gone_ms: int = 0) -> tuple[int, int]:
        gone, deleted = await self.server.run("prune", self.keys, {"gone_ms": gone_ms})
        return gone, deleted

    # ------------------------------------------------------------------------------------------------------- control

    async def cancel(self, id: str, *, key: str = "", remember_ms: int = HOUR_MS) -> str:
        arguments: dict[str, Argument] = {
            "id": id,
            "unique_key": key,
            "remember_ms": remember_ms,
            "control_channel": self.keys.control_channel,
            "ended_channel": self.keys.ended_channel,
        }
        reply = await self.server.run("cancel", self.keys, arguments, ended=self.keys.ended(id))
        return str(reply.decode())

    async def reschedule(
        self, id: str, *, in_us: int | None = None, at_ms: int = 0, key: str = "", hold_ms: int = 0
    ) -> tuple[str, int | None]:
        """What it found, and the new fire-time."""
        kind, time = ("at", at_ms) if in_us is None else ("in", in_us)
        arguments: dict[str, Argument] = {"id": id, "kind": kind, "time": time, "unique_key": key, "hold_ms": hold_ms}
        answer, fire_ms = await self.server.run("reschedule", self.keys, arguments, ended=self.keys.ended(id))
        return answer.decode(), int(fire_ms) if fire_ms else None

    async def status(self, id: str) -> Told:
        reply = await self.server.run(
            "status", self.keys, {"id": id}, ended=self.keys.ended(id), result=self.keys.result(id)
        )
        status, fire_ms, record, state, deliveries, outcome, value = reply
        return Told(status.decode(), int(fire_ms or 0) or None, record, state, deliveries, outcome.decode(), value)

    async def ring(self) -> None:
        await self.server.run("ring", self.keys, {})

    async def pause(self) -> None:
        await self.raw.set(self.keys.paused, 1)

    async def resume(self) -> bool:
        return bool(await self.server.run("resume", self.keys, {}))

    # ----------------------------------------------------------------------------------------------------- schedules

    async def put(
        self,
        name: str,
        *,
        next_ms: int,
        fingerprint: str = "print",
        definition: str = "{}",
        expected: str = "",
        keep: bool = False,
    ) -> str:
        arguments: dict[str, Argument] = {"name": name, "fingerprint": fingerprint, "definition": definition}
        arguments |= {"next_ms": next_ms, "expected": expected, "keep": int(keep)}
        return _text(await self.server.run("schedule_put", self.keys, arguments))

    async def pause_schedule(self, name: str, *, on: bool, next_ms: int = -1, fingerprint: str = "print") -> bool:
        arguments: dict[str, Argument] = {"name": name, "fingerprint": fingerprint, "pause": int(on)}
        return bool(await self.server.run("schedule_pause", self.keys, arguments | {"next_ms": next_ms}))

    async def remove_schedule(self, name: str) -> bool:
        return bool(await self.server.run("schedule_remove", self.keys, {"name": name}))

    async def slots(self, *, most: int = 10) -> tuple[list[tuple[str, int, str]], int]:
        """The slots that are due, each with its name and what is kept of its schedule; and the next one in ms."""
        _, next_ms, *due = await self.server.run("schedule_next", self.keys, {"most": most})
        return [(_text(name), slot_ms, _text(kept)) for name, slot_ms, kept in batched(due, 3)], next_ms

    async def tick(
        self,
        name: str,
        *runs: Sent,
        slot_ms: int,
        next_ms: int = -1,
        overlap: str = "",
        fingerprint: str = "print",
        key: str = "",
        hold_ms: int = 0,
    ) -> tuple[str, int]:
        """What happened, and how many runs were sent."""
        rest = [word for run in runs for word in (run.id, run.record, run.letter, run.at_ms or slot_ms)]
        arguments: dict[str, Argument] = {"name": name, "fingerprint": fingerprint, "slot_ms": slot_ms}
        arguments |= {"next_ms": next_ms, "overlap": overlap, "unique_key": key, "hold_ms": hold_ms}
        said, sent, *_ = await self.server.run("tick", self.keys, arguments, rest)
        return _text(said), sent


@asynccontextmanager
async def connected(lent: Lent) -> AsyncIterator[tuple[Server, Redis]]:
    """The product's connection to a server, and a plain one."""
    server = connect(Address(lent.url), Shift())
    async with raw_client(lent.url) as raw:
        try:
            yield server, raw
        finally:
            await server.aclose()


@asynccontextmanager
async def sound_driver(server: Server, raw: Redis, queue: str) -> AsyncIterator[Driver]:
    """A driver whose queue must be sound when the test is over; the server is empty and in the present then."""
    driver = Driver(server, raw, queue)
    try:
        yield driver
        found = [] if driver.expected_unsound else (await driver.look()).unsound()
        found += unexpected_keys([key.decode("latin-1") for key in await driver.raw.keys("*")])
    finally:
        server.shift.us = 0
        await driver.raw.flushall()
    assert found == []


def batched(flat: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """A flat reply as its rows."""
    return [flat[i : i + size] for i in range(0, len(flat), size)]


def _answers(reply: Sequence[Any]) -> list[Answer]:
    return [Answer(position, what.decode(), holder.decode()) for position, what, holder in batched(reply, 3)]


def _given(row: Sequence[Any]) -> Given:
    letter, entry, deliveries, id, record, state, fire_ms, cancel_asked = row
    return Given(
        letter.decode(),
        entry.decode(),
        deliveries,
        id.decode("latin-1"),
        record,
        state,
        int(fire_ms) if fire_ms else None,
        cancel_asked == 1,
    )


def _texts(reply: Sequence[bytes]) -> list[str]:
    return [_text(one) for one in reply]


def _text(reply: bytes) -> str:
    return reply.decode()
