"""Dead letters are looked at, brought back with fresh counters, or deleted for good."""

from __future__ import annotations

from firetime.produce.dead_shard import DeadOfShard
from firetime.produce.desk import Desk
from firetime.values.dead_letter import DeadLetter
from firetime.values.errors import MessageNotFound


class DeadLetters:
    """The dead letters of one queue: ``runner.dead(queue)``."""

    def __init__(self, desk: Desk, queue: str) -> None:
        self._desk = desk
        self._queue = queue

    async def count(self) -> int:
        """How many there are."""
        return sum([await shard.count() for shard in await self._shards()])

    async def page(self, *, task: str | None = None, error: str | None = None, limit: int = 100) -> list[DeadLetter]:
        """The oldest ``limit`` (default 100), of one task, or whose last error has that type name, if asked."""
        shards = await self._shards()
        pages = [await shard.page(task=task, error=error, limit=limit) for shard in shards]
        if len(pages) == 1:
            return pages[0]
        return sorted((letter for page in pages for letter in page), key=lambda letter: letter.died_ms or 0)[:limit]

    async def show(self, task_id: str) -> DeadLetter:
        """One of them. Raises ``MessageNotFound``."""
        for shard in await self._shards_for(task_id):
            if (letter := await shard.find(task_id)) is not None:
                return letter
        raise self._not_found(task_id)

    async def replay(self, task_id: str) -> None:
        """Sends it again with fresh counters, its unique key taken again; in a queue with shards to its own one.

        Raises ``MessageNotFound`` when it is not dead, ``TaskAlreadyDispatched`` when another holds its unique key.
        """
        for shard in await self._shards_for(task_id):
            if await shard.replay(task_id):
                return
        raise self._not_found(task_id)

    async def replay_all(self, *, task: str | None = None, error: str | None = None) -> int:
        """Sends them all again, or those of one task or error type; those whose unique key is held stay.

        Returns how many were sent. What dies meanwhile is not replayed a second time.
        """
        return sum([await shard.replay_all(task=task, error=error) for shard in await self._shards()])

    async def purge(self, task_id: str) -> None:
        """Deletes it for good. Raises ``MessageNotFound``."""
        for shard in await self._shards_for(task_id):
            if await shard.purge([task_id]):
                return
        raise self._not_found(task_id)

    async def purge_all(self, *, task: str | None = None, error: str | None = None) -> int:
        """Deletes them all for good, or those of one task or error type; returns how many."""
        return sum([await shard.purge_all(task=task, error=error) for shard in await self._shards()])

    async def _shards(self) -> list[DeadOfShard]:
        return [DeadOfShard(self._desk, keys) for keys in await self._desk.all_keys(self._queue)]

    async def _shards_for(self, task_id: str) -> list[DeadOfShard]:
        """The likeliest first; last all others, for what nobody sent through a runner has an id of its own."""
        likely = self._desk.keys_for(self._queue, task_id)
        if len(likely) == 1:
            return [DeadOfShard(self._desk, likely[0])]
        there = {keys.queue: keys for keys in [*likely, *await self._desk.all_keys(self._queue)]}
        return [DeadOfShard(self._desk, keys) for keys in there.values()]

    def _not_found(self, task_id: str) -> MessageNotFound:
        return MessageNotFound(task_id, f"among the dead letters of {self._queue!r}")
