"""A schedule stands in one shard; where the number of shards has changed it is taken along to the one it belongs to."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.values.errors import InvalidOption
from firetime.values.schedule import Schedule, read_kept, same_slots


class Former(msgspec.Struct, frozen=True):
    """A schedule as it stood in another shard."""

    name: str
    stored: bytes
    due_ms: int | None

    def slot_for(self, made: Schedule) -> int | None:
        """The slot that waited there, where the new definition has the same times; so a move skips none."""
        return self.due_ms if keeps_its_slot(made, self.stored) else None

    @property
    def paused(self) -> bool:
        """Whether it was paused there."""
        try:
            return read_kept(self.name, self.stored).paused
        except InvalidOption:
            return False


async def taken_from(server: Server, places: Iterable[QueueKeys], name: str) -> Former | None:
    """Removes a schedule from places that are not its own.

    First removed, then written: it is never ticked in two places, but is gone if this process dies in between.
    """
    former = None
    for keys in places:
        stored = await server.ask("HGET", keys.schedules, name)
        if stored is not None:
            due = await server.ask("ZSCORE", keys.schedules_due, name)
            await server.run("schedule_remove", keys, {"name": name})
            former = Former(name, stored, None if due is None else int(float(due)))
    return former


def keeps_its_slot(made: Schedule, stored: bytes | None) -> bool:
    """Whether a stored definition, if it can be read, has the same times."""
    if stored is None:
        return False
    try:
        return same_slots(made, read_kept(made.name, stored).schedule)
    except InvalidOption:
        return False
