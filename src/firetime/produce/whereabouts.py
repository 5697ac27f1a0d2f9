"""The shards of a queue are found, also those from when it had more of them, and in them one message or schedule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from firetime.store.connect import Server
from firetime.store.keys import QueueKeys

T = TypeVar("T")

_IN_USE_MS = 24 * 3600 * 1000
"""A day: longer than a deploy, in which programs with the former number may still send."""


async def how_many_in_use(server: Server, formerly: Sequence[QueueKeys]) -> int:
    """How many of the shards beyond the present number still count: all up to the last one that is in use.

    A shard is in use when it holds a message or a schedule, or when a message became ready in it within a day.
    """
    # mostly there is none: on one server one question tells so, on a cluster each has its own place
    there: set[str] = set()
    for group in server.sharing_a_read(formerly):
        if await server.ask("EXISTS", *(key for keys in group for key in _signs(keys))):
            there |= {keys.queue for keys in group}
    for number in range(len(formerly), 0, -1):
        if formerly[number - 1].queue in there and await _is_in_use(server, formerly[number - 1]):
            return number
    return 0


def _signs(keys: QueueKeys) -> tuple[str, ...]:
    return keys.tasks, keys.schedules, *keys.lanes.values()


async def _is_in_use(server: Server, keys: QueueKeys) -> bool:
    if not await server.ask("EXISTS", *_signs(keys)):
        return False
    if await server.ask("EXISTS", keys.tasks, keys.schedules):
        return True
    now_ms = await server.now_us() // 1000
    return any([now_ms - await _last_entry_ms(server, lane) < _IN_USE_MS for lane in keys.lanes.values()])


async def _last_entry_ms(server: Server, lane: str) -> int:
    """When a stream was last added to, on the server's clock; the stream knows, be it empty by now. 0: never."""
    if not await server.ask("EXISTS", lane):
        return 0
    told = await server.ask("XINFO", "STREAM", lane)
    facts = dict(zip(told[::2], told[1::2], strict=True))
    return int(facts[b"last-generated-id"].partition(b"-")[0])


async def first_that(
    places: Sequence[QueueKeys], ask: Callable[[QueueKeys], Awaitable[T]], knows: Callable[[T], bool]
) -> tuple[QueueKeys, T]:
    """The first place whose answer shows that it knows, else the likeliest, and its answer. Asks one by one."""
    likeliest = await ask(places[0])
    if not knows(likeliest):
        for keys in places[1:]:
            if knows(answer := await ask(keys)):
                return keys, answer
    return places[0], likeliest
