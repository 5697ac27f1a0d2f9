"""A server that has become a replica says so, in whichever words; whoever asked it looks for the new primary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from firetime.values.errors import BrokerUnavailable
from tests.edges.driver import HOUR_MS, Sent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.edges.driver import Driver, Given


@asynccontextmanager
async def demoted(q: Driver) -> AsyncIterator[None]:
    await q.raw.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        yield
    finally:
        await q.raw.execute_command("REPLICAOF", "NO", "ONE")


CALLS: dict[str, Callable[[Driver, Given], Awaitable[object]]] = {
    "dispatch": lambda q, _: q.dispatch(Sent(id="new")),
    "claim": lambda q, _: q.claim(),
    "claim with a sweep": lambda q, _: q.claim(sweep=True, lease_ms=0),
    "complete": lambda q, given: q.complete(given),
    "retry": lambda q, given: q.retry(given),
    "bury": lambda q, given: q.bury(given),
    "release": lambda q, given: q.release(given),
    "renew": lambda q, given: q.renew(given),
    "lead": lambda q, _: q.lead(),
    "alive": lambda q, _: q.alive(),
    "cancel": lambda q, _: q.cancel("waits"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_demoted_server_is_away_and_not_a_refusal_for_good(own: Driver, call: str) -> None:
    await own.claim()
    await own.send("runs")
    given = await own.take("runs")
    await own.send("waits", in_us=HOUR_MS * 1000)
    async with demoted(own):
        with pytest.raises(BrokerUnavailable) as told:
            await CALLS[call](own, given)
    assert not told.value.maybe_accepted
    assert await own.complete(given) == ([], [])
