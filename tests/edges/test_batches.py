"""Random subsets of what many workers hold are settled in random order, and a model says what must be left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.edges.driver import HOUR_MS, ME, OTHER, Driver, Ended, Given

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_US = HOUR_MS * 1000
WAYS = ("complete", "complete with results", "retry", "retry later", "bury", "release")
_numbers = count()

picks = st.lists(
    st.tuples(st.integers(0, 999), st.sampled_from(["", "", "", "count", "entry"])), min_size=1, max_size=40
)
steps = st.lists(st.tuples(st.sampled_from(WAYS), picks, st.integers(0, 20)), max_size=8)
shares = st.lists(st.tuples(st.sampled_from([ME, OTHER]), st.integers(1, 9)), min_size=1, max_size=12)


@dataclass
class Model:
    """Who holds what, and what became of the rest."""

    held: dict[str, tuple[str, Given]] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    deliveries: list[Given] = field(default_factory=list)
    """All there ever were, to whomever: what a confused worker might try to settle."""

    def claimed(self, consumer: str, given: Sequence[Given]) -> None:
        for one in given:
            self.held[one.id] = (consumer, one)
            self.where[one.id] = "running"
        self.deliveries += given

    def settled(self, batch: Sequence[Given], becomes: str) -> list[str]:
        """The ids that must be refused."""
        accepted = [one for one in batch if self.held.get(one.id) == (ME, one)]
        for one in accepted:
            self.held.pop(one.id, None)
            self.where[one.id] = becomes
        return [one.id for one in batch if one not in accepted]


async def settle(q: Driver, way: str, batch: Sequence[Given]) -> list[str]:
    match way:
        case "complete":
            return (await q.complete(*batch))[0]
        case "complete with results":
            half = len(batch) // 2
            others = [Ended(held=one, remember_ms=HOUR_MS, result_ms=HOUR_MS, value=b"1") for one in batch[half:]]
            return (await q.complete(*batch[:half], others=others))[0]
        case "retry":
            return (await q.retry(*batch))[0]
        case "retry later":
            return (await q.retry(*batch, delay_us=HOUR_US))[0]
        case "bury":
            return await q.bury(*batch)
        case _:
            return await q.release(*batch)


BECOMES = {
    "complete": "done",
    "complete with results": "done",
    "retry": "ready",
    "retry later": "delayed",
    "bury": "dead",
    "release": "ready",
}


def spoiled(one: Given, how: str) -> Given:
    if how == "count":
        return one.with_count(one.deliveries + 1)
    return replace(one, entry=f"{one.entry}777777") if how == "entry" else one


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shares=shares, steps=steps)
async def test_random_subsets_settled_in_random_order_leave_what_the_model_says(
    q: Driver, shares: list[tuple[str, int]], steps: list[tuple[str, list[tuple[int, str]], int]]
) -> None:
    q = q.fresh(f"{next(_numbers)}")
    model = Model()
    ids = ["long", *(f"{i:02}" for i in range(60))]
    await q.send(*ids)
    model.where = dict.fromkeys(ids, "ready")
    model.claimed(ME, (await q.claim(free=1)).given)  # a long task stands before all the short ones
    for consumer, free in shares:
        model.claimed(consumer, (await q.claim(consumer, free=free)).given)
    for way, picked, free in steps:
        known = model.deliveries[1:]
        batch = list(dict.fromkeys(spoiled(known[i % len(known)], how) for i, how in picked))
        batch = list({one.entry: one for one in batch}.values())
        assert sorted(await settle(q, way, batch)) == sorted(model.settled(batch, BECOMES[way]))
        model.claimed(OTHER if free % 3 else ME, (await q.claim(OTHER if free % 3 else ME, free=free)).given)
    await matches(q, model)


async def matches(q: Driver, model: Model) -> None:
    after = await q.look()

    def ids(*states: str) -> set[str]:
        return {id for id, state in model.where.items() if state in states}

    assert after.pending == {one.place: (consumer, one.deliveries) for consumer, one in model.held.values()}
    assert after.tasks.keys() == ids("ready", "running", "delayed", "dead")
    assert after.places.keys() == set(after.entries()) == ids("ready", "running")
    assert set(after.delayed_ids()) == ids("delayed")
    assert after.dead == ids("dead")
    assert after.unsound() == []


async def test_one_long_task_beside_a_thousand_short_ones_is_found_in_every_batch(q: Driver) -> None:
    await q.send("long")
    long = await q.take("long")
    for part in range(10):
        await q.send(*(f"{part}.{i}" for i in range(100)))
        given = (await q.claim(free=100)).given
        later = given[60:]
        assert await q.complete(*given[:60]) == ([], [])
        assert await q.complete(long.with_count(2), *later[:20]) == (["long"], [])
        assert await q.complete(*later[20:]) == ([], [])
    assert await q.complete(long) == ([], [])
    assert (await q.look()).tasks == {}


async def test_a_batch_whose_ends_enclose_more_than_it_names_is_checked_one_by_one(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(300)]
    await q.send(*ids)
    given = (await q.claim(free=300)).given
    ends = [given[0], given[150].with_count(2), given[299]]
    assert await q.complete(*ends) == (["150"], [])
    assert await q.retry(given[298], given[1]) == ([], [])
    assert await q.bury(given[2], given[297]) == []
    assert await q.release(given[296], given[3]) == []
    after = await q.look()
    assert len(after.pending) == 300 - 8
    assert after.entries()[-4:] == ["298", "001", "296", "003"]


async def test_a_batch_in_reverse_order_is_settled_all_the_same(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(100)]
    await q.send(*ids)
    given = (await q.claim(free=100)).given
    assert await q.complete(*given[:50][::-1]) == ([], [])
    ended = [Ended(held=one, remember_ms=HOUR_MS) for one in given[:49:-1]]
    assert await q.complete(others=ended) == ([], [])
    after = await q.look()
    assert (after.tasks, len(after.ended)) == ({}, 50)
