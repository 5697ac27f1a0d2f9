"""`lead`, `leave`, `alive`, `prune`: who promotes on time, who is there, and what those leave who go."""

from __future__ import annotations

import pytest

from firetime.values.errors import BrokerRefused
from tests.edges.driver import HOUR_MS, ME, OTHER, Driver
from tests.kit.waiting import until

LATER_MS = 4_000_000_000_000


# ----------------------------------------------------------------------------------------------------------------- lead


async def test_the_first_one_leads_and_the_second_does_not(q: Driver) -> None:
    from_ms = await q.now_ms()
    mine = await q.lead(ME)
    theirs = await q.lead(OTHER)
    assert (mine.mine, mine.epoch, mine.token) == (True, 1, ME)
    assert from_ms <= mine.since_ms <= await q.now_ms()
    assert (theirs.mine, theirs.epoch, theirs.token, theirs.since_ms) == (False, 1, ME, mine.since_ms)
    after = await q.look()
    assert after.leader == f"{ME} 1 {mine.since_ms}"
    assert after.others == {"leader:epoch"}


async def test_the_leader_prolongs_its_lease_and_keeps_its_epoch(q: Driver) -> None:
    first = await q.lead(ttl_ms=60_000)
    again = await q.lead(ttl_ms=HOUR_MS)
    assert (again.mine, again.epoch, again.since_ms) == (True, first.epoch, first.since_ms)
    assert 60_000 < await q.raw.pttl(q.keys.leader) <= HOUR_MS


async def test_nobody_prolongs_anothers_lease(q: Driver) -> None:
    await q.lead(ME, ttl_ms=60_000)
    await q.lead(OTHER, ttl_ms=HOUR_MS)
    assert await q.raw.pttl(q.keys.leader) <= 60_000


async def test_every_new_leader_has_a_higher_epoch(q: Driver) -> None:
    for epoch, token in enumerate([ME, OTHER, ME, ME], start=1):
        assert (await q.lead(token)).epoch == epoch
        await q.raw.delete(q.keys.leader)


async def test_a_lease_that_ran_out_is_anyones(q: Driver) -> None:
    await q.lead(ME, ttl_ms=1)

    async def taken() -> bool:
        return (await q.lead(OTHER)).mine

    await until(taken)
    assert not (await q.lead(ME)).mine


async def test_a_lease_that_nobody_can_read_is_taken(q: Driver) -> None:
    await q.raw.set(q.keys.leader, "garbage")
    assert (await q.lead()).mine
    assert 0 < await q.raw.pttl(q.keys.leader) <= HOUR_MS


async def test_it_tells_the_head_the_time_and_the_newest_wake(q: Driver) -> None:
    nothing = await q.lead()
    assert (nothing.head_ms, nothing.wake_id) == (-1, "0-0")
    await q.send("a", at_ms=LATER_MS)
    ((wake_id, _),) = await q.raw.xrange(q.keys.wake)
    for token in (ME, OTHER):
        told = await q.lead(token)
        assert (told.head_ms, told.wake_id) == (LATER_MS, wake_id.decode())
        assert abs(told.now_us // 1000 - await q.now_ms()) < 5_000


async def test_a_lease_of_a_wrong_type_is_an_error(q: Driver) -> None:
    await q.raw.rpush(q.keys.leader, "foreign")
    with pytest.raises(BrokerRefused, match="WRONGTYPE"):
        await q.lead()
    await q.raw.delete(q.keys.leader)
    assert (await q.look()).others == frozenset()


# ---------------------------------------------------------------------------------------------------------------- leave


async def test_a_worker_that_leaves_takes_its_consumers_and_its_name_along(q: Driver) -> None:
    for letter in "hnl":
        await q.send(letter, letter=letter)
    await q.alive(ME)
    await q.alive(OTHER)
    given = (await q.claim(ME)).given
    for one in given:
        await q.complete(one, letter=one.letter)
    await q.send("theirs")
    await q.take("theirs", OTHER)
    assert await q.leave(ME) is False
    assert (await q.look()).consumers == {OTHER}
    assert await q.raw.hgetall(q.keys.workers) == {OTHER.encode(): b"{}"}
    assert await q.raw.zrange(q.keys.workers_seen, 0, -1) == [OTHER.encode()]


async def test_a_consumer_with_pending_work_stays_until_that_is_swept(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a")
    await q.leave(ME)
    after = await q.look()
    assert (after.pending, after.consumers) == ({held.place: (ME, 1)}, {ME})
    assert (await q.sweep()).ids == ["a"]
    await q.leave(ME)
    assert (await q.look()).consumers == {OTHER}


async def test_a_leader_that_leaves_resigns_and_wakes_the_others(q: Driver) -> None:
    await q.lead(ME)
    await q.send("a", at_ms=LATER_MS)
    assert await q.leave(ME) is True
    after = await q.look()
    assert (after.leader, after.wake) == ("", (0,))
    assert (await q.lead(OTHER)).epoch == 2


async def test_one_that_does_not_lead_does_not_resign_for_the_leader(q: Driver) -> None:
    await q.lead(ME)
    leader = (await q.look()).leader
    assert await q.leave(OTHER) is False
    assert await q.leave("m") is False
    after = await q.look()
    assert (after.leader, after.wake) == (leader, ())


async def test_leaving_rings_for_what_was_released(q: Driver) -> None:
    await q.leave(ME)
    assert (await q.look()).bell == 1


async def test_leaving_a_paused_queue_does_not_ring(q: Driver) -> None:
    await q.pause()
    await q.leave(ME)
    assert (await q.look()).bell == 0


async def test_a_second_leave_changes_nothing(q: Driver) -> None:
    await q.lead()
    await q.alive()
    await q.claim()
    assert await q.leave()
    before = await q.look()
    assert await q.leave() is False
    assert await q.look() == before


async def test_a_worker_may_leave_a_server_that_was_emptied(q: Driver) -> None:
    assert await q.leave() is False
    assert (await q.look()).others == frozenset()


# ------------------------------------------------------------------------------------------------------- alive and prune


async def test_workers_heard_lately_are_counted(q: Driver) -> None:
    assert await q.alive(ME) == 1
    assert await q.alive(ME, about='{"slots":3}') == 1
    assert await q.alive(OTHER) == 2
    await q.raw.zadd(q.keys.workers_seen, {ME: await q.now_ms() - 60_000})
    assert await q.alive(OTHER, fresh_ms=30_000) == 1
    assert await q.raw.hget(q.keys.workers, ME) == b'{"slots":3}'


async def test_workers_not_heard_for_so_long_are_forgotten_and_the_others_stay(q: Driver) -> None:
    await q.alive(ME)
    await q.alive(OTHER)
    await q.raw.zadd(q.keys.workers_seen, {OTHER: await q.now_ms() - 60_000})
    assert await q.prune(gone_ms=30_000) == (1, 0)
    assert await q.raw.hkeys(q.keys.workers) == [ME.encode()]
    assert await q.prune(gone_ms=30_000) == (0, 0)


async def consumer_is_idle(q: Driver, name: str, ms: int = 2) -> None:
    """Consumers grow old by themselves only."""

    async def idle() -> bool:
        known = [one for lane in q.keys.lanes.values() for one in await q.raw.xinfo_consumers(lane, "workers")]
        return all(one["idle"] > ms for one in known if one["name"] == name.encode())

    await until(idle)


async def test_a_consumer_that_was_left_behind_is_deleted(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a", "killed")
    await q.complete(held, consumer="killed")
    await consumer_is_idle(q, "killed")
    gone, deleted = await q.prune(gone_ms=1)
    assert (gone, deleted > 0) == (0, True)
    assert (await q.look()).consumers == frozenset()


async def test_a_consumer_with_pending_work_is_never_deleted(q: Driver) -> None:
    await q.send("a")
    held = await q.take("a", "killed")
    await consumer_is_idle(q, "killed")
    await q.prune(gone_ms=1)
    after = await q.look()
    assert (after.pending, after.consumers) == ({held.place: ("killed", 1)}, {"killed"})


async def test_a_consumer_whose_worker_was_heard_is_not_deleted_however_idle(q: Driver) -> None:
    await q.send("a")
    await q.complete(await q.take("a"))
    await consumer_is_idle(q, ME)
    await q.raw.hset(q.keys.workers, ME, "{}")
    await q.raw.zadd(q.keys.workers_seen, {ME: await q.now_ms() + 60_000})
    assert await q.prune(gone_ms=1) == (0, 0)
    assert (await q.look()).consumers == {ME}


async def test_a_consumer_that_is_not_idle_is_not_deleted(q: Driver) -> None:
    await q.send("a")
    await q.complete(await q.take("a"))
    assert await q.prune(gone_ms=HOUR_MS) == (0, 0)
    assert (await q.look()).consumers == {ME}


async def test_a_worker_and_its_consumer_are_forgotten_in_one_call(q: Driver) -> None:
    await q.send("a")
    await q.complete(await q.take("a"))
    await q.alive(ME)
    await consumer_is_idle(q, ME)
    await q.raw.zadd(q.keys.workers_seen, {ME: 1})
    gone, deleted = await q.prune(gone_ms=1)
    assert (gone, deleted > 0) == (1, True)
    assert (await q.look()).consumers == frozenset()


async def test_a_hundred_workers_are_forgotten_at_a_time(q: Driver) -> None:
    await q.raw.zadd(q.keys.workers_seen, {f"w{i}": 1 for i in range(150)})
    await q.raw.hset(q.keys.workers, mapping={f"w{i}": "{}" for i in range(150)})
    assert await q.prune(gone_ms=1) == (100, 0)
    assert await q.prune(gone_ms=1) == (50, 0)
    assert (await q.look()).others == frozenset()


async def test_there_is_nothing_to_prune_on_a_server_that_was_emptied(q: Driver) -> None:
    assert await q.prune() == (0, 0)
    assert (await q.look()).others == frozenset()
