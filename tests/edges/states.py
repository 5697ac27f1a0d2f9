"""Every state that the message `a` can be in while a worker believes that it still runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.edges.driver import HOUR_MS, ME, OTHER, Driver, Ended, Given, Sent

Arrange = Callable[[Driver], Awaitable[Given]]
"""Brings `a` into a state; gives the delivery that the worker believes it holds."""


async def none(q: Driver) -> Given:
    """It never existed."""
    await q.claim()  # the lanes and their groups do
    return Given("n", "1-1", 1, "a")


async def no_lanes(q: Driver) -> Given:
    """The server was emptied."""
    return Given("n", "1-1", 1, "a")


async def delayed(q: Driver) -> Given:
    """It failed and waits to be tried again."""
    held = await running(q)
    assert await q.retry(held, delay_us=HOUR_MS * 1000, key="key") == ([], [])
    return held


async def ready(q: Driver) -> Given:
    """It was given back and stands in its lane again."""
    held = await running(q)
    assert await q.release(held) == []
    return held


async def running(q: Driver) -> Given:
    """It runs here."""
    assert await q.dispatch(Sent(id="a", key="key", explicit=True)) == []
    return await q.take("a")


async def given_to_another(q: Driver) -> Given:
    """It runs at another worker, and never did here."""
    await q.dispatch(Sent(id="a", key="key", explicit=True))
    return await q.take("a", OTHER)


async def swept_by_another(q: Driver) -> Given:
    """The lease ran out and another worker runs it."""
    held = await running(q)
    assert (await q.sweep()).ids == ["a"]
    return held


async def swept_and_run_elsewhere(q: Driver) -> Given:
    """Another worker swept it, failed, and a third one runs it from an entry of its own."""
    held = await running(q)
    (theirs,) = (await q.sweep()).given
    assert await q.retry(theirs, consumer=OTHER) == ([], [])
    await q.take("a", "third")
    return held


async def swept_here(q: Driver) -> Given:
    """The lease ran out and this very worker claimed it once more."""
    held = await running(q)
    assert (await q.sweep(ME)).ids == ["a"]
    return held


async def done(q: Driver) -> Given:
    """It ended well."""
    held = await running(q)
    ended = Ended(held=held, key="key", remember_ms=HOUR_MS, result_ms=HOUR_MS, value=b"1")
    assert await q.complete(others=[ended]) == ([], [])
    return held


async def dead(q: Driver) -> Given:
    """It is a dead letter."""
    held = await running(q)
    assert await q.bury(held, key="key") == []
    return held


async def cancelled(q: Driver) -> Given:
    """It was given back and then cancelled."""
    held = await ready(q)
    assert await q.cancel("a", key="key") == "cancelled"
    return held


async def done_and_sent_again(q: Driver) -> Given:
    """It ended, is forgotten, and another message with the same explicit id waits."""
    held = await running(q)
    assert await q.complete(others=[Ended(held=held, key="key")]) == ([], [])
    assert await q.dispatch(Sent(id="a", key="key", explicit=True)) == []
    return held


NOT_HELD: list[Arrange] = [
    none,
    no_lanes,
    delayed,
    ready,
    given_to_another,
    swept_by_another,
    swept_and_run_elsewhere,
    swept_here,
    done,
    dead,
    cancelled,
    done_and_sent_again,
]
"""The states in which a call of the worker comes too late: it must be refused and change nothing."""
