"""`renew`: leases still held are prolonged, and none is ever taken back."""

from __future__ import annotations

import pytest

from tests.edges import states
from tests.edges.driver import ME, OLD_MS, OTHER, Driver, Given, Renewed, Sent

not_held = pytest.mark.parametrize("arrange", states.NOT_HELD, ids=lambda arrange: arrange.__name__)


@not_held
async def test_a_lease_that_is_gone_is_told_and_nothing_changes(q: Driver, arrange: states.Arrange) -> None:
    held = await arrange(q)
    before = await q.look()
    assert (await q.renew(held)).lost == {held.place}
    assert await q.look() == before


async def test_a_lease_held_by_another_is_not_stolen_nor_made_younger(q: Driver) -> None:
    held = await states.swept_by_another(q)
    await q.grow_old()
    await q.renew(held)
    assert (await q.lease_ages())[held.place] >= OLD_MS
    assert (await q.look()).pending == {held.place: (OTHER, 2)}


async def test_a_renewed_lease_is_young_again_and_its_delivery_count_stays(q: Driver) -> None:
    await q.send("a", "b")
    a, b = (await q.claim()).given
    before = await q.look()
    await q.grow_old()
    assert await q.renew(a) == await q.renew(a)
    ages = await q.lease_ages()
    assert ages[a.place] < OLD_MS <= ages[b.place]
    assert await q.look() == before
    assert (await q.renew(a, b)).lost == frozenset()
    assert await q.complete(a, b) == ([], [])


async def test_leases_of_all_lanes_are_renewed_in_one_call(q: Driver) -> None:
    await q.dispatch(*(Sent(id=letter, letter=letter) for letter in "hnl"))
    given = (await q.claim()).given
    await q.grow_old()
    assert (await q.renew(*given)).lost == frozenset()
    for one in given:
        assert (await q.lease_ages(one.letter))[one.place] < OLD_MS


async def test_one_lost_lease_among_many_is_told_alone(q: Driver) -> None:
    await q.send("a", "b", "c")
    a, b, c = (await q.claim()).given
    await q.complete(b)
    renewed = await q.renew(a, b, c)
    assert (renewed.lost, renewed.to_cancel, renewed.unknown) == ({b.place}, frozenset(), ())


async def test_a_lease_whose_count_moved_on_is_lost_and_not_unknown_at_once(q: Driver) -> None:
    await q.send("a")
    first = await q.take("a")
    (second,) = (await q.sweep(ME)).given
    renewed = await q.renew(first, unknown_ms=0)
    assert (renewed.lost, renewed.unknown) == ({first.place}, ())
    assert (await q.renew(unknown_ms=0)).unknown == (Given("n", second.entry, 2, "a"),)


async def test_those_asked_to_cancel_are_told(q: Driver) -> None:
    await q.send("a", "b")
    a, b = (await q.claim()).given
    await q.cancel("b")
    assert (await q.renew(a, b)).to_cancel == {"b"}
    assert (await q.renew(a)).to_cancel == frozenset()


async def test_a_claim_whose_reply_was_lost_is_found_once_it_is_old_enough(q: Driver) -> None:
    await q.dispatch(Sent(id="a", letter="h"), Sent(id="b"), Sent(id="c"))
    a, b, c = (await q.claim()).given
    assert (await q.renew(a, unknown_ms=60_000)).unknown == ()
    assert (await q.renew(a, unknown_ms=0)).unknown == tuple(Given("n", one.entry, 1, one.id) for one in (b, c))
    assert await q.complete(b, c) == ([], [])


async def test_what_another_worker_runs_is_not_unknown(q: Driver) -> None:
    await q.send("a")
    await q.take("a", OTHER)
    assert (await q.renew(unknown_ms=0)).unknown == ()


async def test_a_foreign_entry_is_unknown_under_the_id_it_was_adopted_with(q: Driver) -> None:
    await q.claim()
    await q.raw.xadd(q.keys.normal, {"foo": "bar"})
    await q.raw.xadd(q.keys.normal, {"i": "nobody"})
    first, second = (await q.claim()).given
    found = (await q.renew(unknown_ms=0)).unknown
    assert [(one.entry, one.id) for one in found] == [(first.entry, first.id), (second.entry, second.id)]
    assert first.id == f"malformed-n-{first.entry}"


async def test_a_foreign_entry_with_an_id_that_a_task_took_meanwhile_keeps_its_own(q: Driver) -> None:
    await q.claim()
    await q.raw.xadd(q.keys.normal, {"i": "a"})
    (foreign,) = (await q.claim()).given
    await q.send("a")
    assert [one.id for one in (await q.renew(unknown_ms=0)).unknown] == [foreign.id]
    assert foreign.id == f"malformed-n-{foreign.entry}"


async def test_a_stale_entry_is_not_unknown(q: Driver) -> None:
    q.expected_unsound = True
    await q.send("a")
    held = await q.take("a")
    await q.raw.xadd(q.keys.normal, {"i": "a"})
    await q.raw.execute_command("XREADGROUP", "GROUP", "workers", ME, "STREAMS", q.keys.normal, ">")
    assert len(await q.lease_ages()) == 2
    assert (await q.renew(unknown_ms=0)).unknown == (Given("n", held.entry, 1, "a"),)


async def test_a_known_lease_is_found_behind_a_thousand_unknown_ones(q: Driver) -> None:
    for hundreds in range(11):
        await q.send(*(f"{hundreds * 100 + i}" for i in range(100)))
    await q.send("last")
    given = (await q.claim(free=500)).given + (await q.claim(free=500)).given + (await q.claim(free=500)).given
    assert given[-1].id == "last"
    await q.grow_old()
    assert (await q.renew(given[-1])).lost == frozenset()
    assert (await q.lease_ages())[given[-1].place] < OLD_MS


async def test_more_than_five_hundred_leases_are_renewed_in_one_call(q: Driver) -> None:
    for hundreds in range(6):
        await q.send(*(f"{hundreds * 100 + i}" for i in range(100)))
    given = (await q.claim(free=500)).given + (await q.claim(free=500)).given
    before = await q.look()
    await q.grow_old()
    assert (await q.renew(*given, unknown_ms=0)) == Renewed(frozenset(), frozenset(), ())
    ages = await q.lease_ages()
    assert len(ages) == 600
    assert max(ages.values()) < OLD_MS
    assert await q.look() == before


async def test_a_unique_key_is_held_on_while_its_task_runs(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", hold_ms=1))
    held = await q.take("a")
    from_ms = await q.now_ms()
    await q.renew(held, unique=[("key", "a", 60_000)])
    until_ms, id = (await q.look()).unique["key"].split(" ")
    assert id == "a"
    assert from_ms + 60_000 <= int(until_ms) <= await q.now_ms() + 60_000


async def test_a_unique_key_taken_over_is_not_taken_back(q: Driver) -> None:
    await q.dispatch(Sent(id="a", key="key", hold_ms=1))
    held = await q.take("a")
    await q.send("b")
    await q.raw.hset(q.keys.unique, "key", "0 b")
    await q.renew(held, unique=[("key", "a", 60_000), ("never", "a", 60_000)])
    assert (await q.look()).unique == {"key": "0 b"}


async def test_with_nothing_running_nothing_happens(q: Driver) -> None:
    assert (await q.renew()).lost == frozenset()
    assert (await q.look()).consumers == frozenset()
