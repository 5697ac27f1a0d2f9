"""Settlements of several queues, lanes and kinds go to the server side by side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from firetime.store.address import Address
from firetime.store.connect import Server
from firetime.values.codec import Guarded, JsonCodec
from firetime.values.message import Delivery, Fence
from firetime.values.state import FRESH
from firetime.values.verdict import Complete, Outcome
from firetime.work.edges import Edges, Settlement
from firetime.work.settle import Settler
from tests.edges.driver import ME, Driver
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

    from tests.kit.proxy import FaultProxy
    from tests.kit.servers import ServerProcess


async def ended(q: Driver) -> Settlement:
    """A delivery that has been claimed and has run to its end."""
    await q.send("a")
    given = await q.take("a")
    fence = Fence(q.keys.queue, given.letter, given.entry, ME, given.deliveries)
    delivery = Delivery(task_id="a", fence=fence, message=None, state=FRESH, fire_ms=0, claimed_ms=0)
    return Settlement(delivery, Outcome("returned"), Complete(None))


async def test_a_settlement_does_not_wait_for_the_reply_to_another_queues(
    valkey: ServerProcess, raw: Redis, start_proxy: Callable[[str], FaultProxy], queue_name: str
) -> None:
    proxy = start_proxy(valkey.url)
    straight, through = Server(Address(valkey.url)), Server(Address(proxy.url))
    queues = [Driver(straight, raw, f"{queue_name}.{number}") for number in range(2)]
    keys = {q.keys.queue: q.keys for q in queues}
    settler = Settler(Edges(through, keys.__getitem__, ME, Guarded(JsonCodec()), history_length=1, remember_s=1))
    for q in queues:
        await q.send("loads the script")
        await q.complete(await q.take("loads the script"))
        settler.put(await ended(q))

    async def left() -> int:
        return sum([len((await q.look()).tasks) for q in queues])

    async def one_is_settled() -> bool:
        return await left() == 1

    held = proxy.hold_next_request(only="EVALSHA")
    tick = asyncio.create_task(settler.tick())
    await until(lambda: held.caught)
    await until(one_is_settled)
    held.release()
    done = await tick
    assert [settled.refused for settled in done] == [frozenset(), frozenset()]
    assert await left() == 0
    await straight.aclose()
    await through.aclose()
