"""The dead letters under one set of keys are read, brought back with fresh counters, or deleted for good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from firetime.produce.control import read_message
from firetime.produce.desk import Desk
from firetime.produce.send import Answers, read_refusals
from firetime.store.keys import QueueKeys
from firetime.values.dead_letter import DeadLetter, dead_letter
from firetime.values.errors import TaskAlreadyDispatched
from firetime.values.ids import as_text, is_text

_PAGE = 100


class DeadOfShard:
    """The dead letters of one shard, or of a queue that has none."""

    def __init__(self, desk: Desk, keys: QueueKeys) -> None:
        self._desk = desk
        self._keys = keys

    async def count(self) -> int:
        """How many there are."""
        return int(await (await self._desk.server()).ask("ZCARD", self._keys.dead))

    async def page(self, *, task: str | None, error: str | None, limit: int) -> list[DeadLetter]:
        """The oldest ``limit``, of one task, or whose last error has that type name, if asked."""
        found: list[DeadLetter] = []
        async for _, letter in self._matching(task, error):
            if len(found) == limit:
                break
            found.append(letter)
        return found

    async def find(self, task_id: str) -> DeadLetter | None:
        """One of them; None when it is not here."""
        server = await self._desk.server()
        died = await server.ask("ZSCORE", self._keys.dead, task_id)
        return None if died is None else (await self._read([(task_id.encode(), died)]))[0]

    async def replay(self, task_id: str) -> bool:
        """Sends it again; whether it was here. Raises ``TaskAlreadyDispatched`` when another holds its unique key."""
        (refusal,) = (await self._replay([task_id.encode()])).values() or (None,)
        if refusal is not None and refusal.what == "held":
            raise TaskAlreadyDispatched(refusal.holder, key="its own")
        return refusal is None

    async def replay_all(self, *, task: str | None, error: str | None) -> int:
        """Sends them all again, or those of one task or error type; those whose unique key is held stay."""
        ids = [stored async for stored, _ in self._matching(task, error)]
        sent = 0
        for at in range(0, len(ids), _PAGE):
            page = ids[at : at + _PAGE]
            sent += len(page) - len(await self._replay(page))
        return sent

    async def purge(self, ids: Sequence[str | bytes]) -> int:
        """Deletes them for good; returns how many were here. A group that loses a member so is given up."""
        return sum([await self._purge_page(ids[at : at + _PAGE]) for at in range(0, len(ids), _PAGE)])

    async def _purge_page(self, ids: Sequence[str | bytes]) -> int:
        server = await self._desk.server()
        records = await server.ask("HMGET", self._keys.tasks, *ids)
        names = [each if isinstance(each, str) else as_text(each) for each in ids]
        codec, queue = self._desk.house.codec, self._keys.queue
        messages = [read_message(record, codec, queue, name) for name, record in zip(names, records, strict=True)]
        purged = int(await server.run("purge", self._keys, {}, ids))
        groups = {message.group for message in messages if message is not None and message.group}
        # one that was replayed in this very moment is still a member: then their ttl ends what has to end
        if groups and purged == len(ids):
            await server.ask("DEL", *map(self._keys.group, groups))
        return purged

    async def purge_all(self, *, task: str | None, error: str | None) -> int:
        """Deletes them all, or those of one task or error type; returns how many."""
        return await self.purge([stored async for stored, _ in self._matching(task, error)])

    async def _replay(self, ids: list[bytes]) -> Answers:
        server = await self._desk.server()
        records = await server.ask("HMGET", self._keys.tasks, *ids)
        rest: list[str | bytes | int] = []
        for task_id, record in zip(ids, records, strict=True):
            message = read_message(record, self._desk.house.codec, self._keys.queue, as_text(task_id))
            lane = message.lane if message is not None else "n"
            unique = (message.unique_key or "", message.unique_ms) if message is not None else ("", 0)
            rest += [task_id, lane, *unique]
        calls = (await self._desk.counter()).calls(self._keys.queue)
        expires = asyncio.get_running_loop().time() + self._desk.deadline_s
        return read_refusals(await calls.call("replay", {}, rest, expires=expires))

    async def _matching(self, task: str | None, error: str | None) -> AsyncIterator[tuple[bytes, DeadLetter]]:
        """With the ids as they are stored: what somebody else wrote there may be no text."""
        server = await self._desk.server()
        count = await self.count()
        for at in range(0, count, _PAGE):
            ids = await server.ask("ZRANGE", self._keys.dead, at, min(at + _PAGE, count) - 1, "WITHSCORES")
            letters = await self._read(zip(ids[::2], ids[1::2], strict=True))
            for stored, letter in zip(ids[::2], letters, strict=True):
                if _matches(letter, task, error):
                    yield stored, letter

    async def _read(self, pairs: Iterable[tuple[bytes, bytes]]) -> list[DeadLetter]:
        pairs = list(pairs)
        if not pairs:
            return []
        server = await self._desk.server()
        ids: list[str | bytes | int] = [task_id for task_id, _ in pairs]
        records = await server.ask("HMGET", self._keys.tasks, *ids)
        states = await server.ask("HMGET", self._keys.state, *ids)
        return [
            self._letter(task_id, died, record, state)
            for (task_id, died), record, state in zip(pairs, records, states, strict=True)
        ]

    def _letter(self, task_id: bytes, died: bytes, record: bytes | None, state: bytes | None) -> DeadLetter:
        name, codec = as_text(task_id), self._desk.house.codec
        return dead_letter(
            task_id=name,
            queue=self._keys.logical,
            message=read_message(record, codec, self._keys.queue, name) if is_text(task_id) else None,
            raw=record or b"",
            state=codec.read_state(state, self._keys.queue, name),
            died_ms=int(float(died)),
        )


def _matches(letter: DeadLetter, task: str | None, error: str | None) -> bool:
    if task is not None and letter.task != task:
        return False
    if error is None:
        return True
    latest: Any = letter.errors[-1] if letter.errors else None
    return latest is not None and latest.type.rpartition(".")[2] == error.rpartition(".")[2]
