"""A queue is paused and opened again, with all its shards; the home's pause is the one that counts for new shards."""

from __future__ import annotations

from collections.abc import Sequence

from firetime.store.connect import Server
from firetime.store.keys import QueueKeys


async def pause(server: Server, places: Sequence[QueueKeys]) -> None:
    """Closes a queue: its home, which is the first place, and each shard."""
    for keys in places:
        await server.ask("SET", keys.paused, "1")


async def resume(server: Server, places: Sequence[QueueKeys]) -> bool:
    """Opens a queue, its home first; whether any of it was paused."""
    return any([await server.run("resume", keys, {}) for keys in places])


async def keep_paused(server: Server, places: Sequence[QueueKeys]) -> None:
    """Closes the shards that a paused queue has been given since; done by whoever begins to serve them."""
    home = places[0]
    if not await server.ask("EXISTS", home.paused):
        return
    await pause(server, places)
    # somebody may have opened it meanwhile, and must not find it half closed
    if not await server.ask("EXISTS", home.paused):
        await resume(server, places)
