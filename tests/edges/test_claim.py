"""`claim`: ready -> running; never more than there are slots free, and expired leases first."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from firetime.values.errors import BrokerRefused
from tests.edges import states
from tests.edges.driver import FOREVER_MS, HOUR_MS, ME, OLD_MS, OTHER, RECORD, Driver, Ended, Given, Sent
from tests.kit.waiting import until

MIB = 1 << 20


# ------------------------------------------------------------------------------------------------------- out of a state


@pytest.mark.parametrize(
    ("arrange", "found"),
    [
        (states.none, []),
        (states.delayed, []),
        (states.ready, ["a"]),
        (states.running, []),
        (states.given_to_another, []),
        (states.swept_by_another, []),
        (states.done, []),
        (states.dead, []),
        (states.cancelled, []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_only_what_is_ready_is_given(q: Driver, arrange: states.Arrange, found: list[str]) -> None:
    await arrange(q)
    before = await q.look()
    assert (await q.claim()).ids == found
    after = await q.look()
    if not found:
        assert after == before.but(consumers=after.consumers)


@pytest.mark.parametrize(
    ("arrange", "deliveries"),
    [
        (states.none, None),
        (states.delayed, None),
        (states.ready, 1),
        (states.running, 2),
        (states.given_to_another, 2),
        (states.swept_by_another, 3),
        (states.swept_here, 3),
        (states.done, None),
        (states.dead, None),
        (states.cancelled, None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_sweep_takes_what_runs_and_counts_on(
    q: Driver, arrange: states.Arrange, deliveries: int | None
) -> None:
    await arrange(q)
    before = await q.look()
    given = (await q.sweep("third")).given
    after = await q.look()
    assert [one.deliveries for one in given] == ([] if deliveries is None else [deliveries])
    assert (after.tasks, after.state, after.places, after.delayed, after.dead, after.unique, after.lanes) == (
        (before.tasks, before.state, before.places, before.delayed, before.dead, before.unique, before.lanes)
    )
    if deliveries is not None:
        assert after.pending == {after.places["a"]: ("third", deliveries)}


async def test_what_is_claimed_is_pending_here_and_stands_where_it_stood(q: Driver) -> None:
    await q.send("a", record=b"\x00\xff")
    before = await q.look()
    (one,) = (await q.claim()).given
    assert one == Given("n", one.entry, 1, "a", b"\x00\xff", None, None, cancel_asked=False)
    assert await q.look() == before.but(pending={one.place: (ME, 1)}, consumers=frozenset({ME}))


async def test_a_second_claim_finds_nothing_left(q: Driver) -> None:
    await q.send("a")
    await q.claim()
    before = await q.look()
    assert (await q.claim()).given == ()
    assert (await q.claim(OTHER)).given == ()
    after = await q.look()
    assert after == before.but(consumers=after.consumers)


async def test_a_delivery_tells_its_state_its_fire_time_and_a_wish_to_cancel(q: Driver) -> None:
    await q.send("a", "b")
    a, b = (await q.claim()).given
    await q.retry(a, state=b"1 2 {notes}")
    await q.cancel("b")
    await q.release(b, fire_ms=77)
    again, other = (await q.claim()).given
    assert (again.id, again.state, again.fire_ms, again.cancel_asked) == ("a", b"1 2 {notes}", None, False)
    assert (other.id, other.state, other.fire_ms, other.cancel_asked) == ("b", None, 77, True)


async def test_a_claim_tells_the_servers_time(q: Driver) -> None:
    from_ms = await q.now_ms()
    assert from_ms * 1000 <= (await q.claim()).now_us <= (await q.now_ms() + 1) * 1000


# ------------------------------------------------------------------------------------------------------ how many, which


async def test_lanes_are_emptied_in_the_order_asked_for(q: Driver) -> None:
    for letter in "lnh":
        await q.send(f"{letter}1", f"{letter}2", letter=letter)
    assert (await q.claim(free=3)).ids == ["h1", "h2", "n1"]
    assert (await q.claim(order="lnh")).ids == ["l1", "l2", "n2"]


async def test_a_lane_that_is_not_named_gives_nothing(q: Driver) -> None:
    await q.send("h", letter="h")
    await q.send("n")
    assert (await q.claim(order="nl")).ids == ["n"]
    assert (await q.claim(order="h")).ids == ["h"]


@pytest.mark.parametrize("free", [1, 3, 4, 5, 9, 29, 30, 31])
async def test_never_more_than_the_free_slots_over_all_lanes(q: Driver, free: int) -> None:
    for letter in "hnl":
        await q.send(*(f"{letter}{i:02}" for i in range(10)), letter=letter)
    expected = [f"{letter}{i:02}" for letter in "hnl" for i in range(10)]
    assert (await q.claim(free=free)).ids == expected[:free]
    assert (await q.claim(free=100)).ids == expected[free:]


async def test_no_free_slot_takes_nothing(q: Driver) -> None:
    await q.send("a")
    await q.take("a", OTHER)
    await q.send("b")
    before = await q.look()
    assert (await q.claim(free=0, sweep=True, lease_ms=0)).given == ()
    assert (await q.look()).pending == before.pending


async def test_expired_leases_count_against_the_free_slots(q: Driver) -> None:
    await q.send("a", "b", "c")
    await q.claim(OTHER, free=2)
    assert (await q.claim(free=2, sweep=True, lease_ms=0)).ids == ["a", "b"]
    assert (await q.claim(free=2)).ids == ["c"]


async def test_large_records_are_given_a_budget_at_a_time(q: Driver) -> None:
    ids = [f"{i:02}" for i in range(20)]
    for id in ids:
        await q.send(id, record=b"x" * MIB)
    given: list[str] = []
    sizes: list[int] = []
    while claimed := (await q.claim(free=100, budget=MIB)).ids:
        sizes.append(len(claimed))
        given += claimed
    assert given == ids
    assert max(sizes) <= 4  # the first take, before anything is known of their size


async def test_large_records_behind_small_ones_do_not_come_all_at_once(q: Driver) -> None:
    await q.send(*(f"small{i}" for i in range(4)))
    for i in range(20):
        await q.send(f"large{i:02}", record=b"x" * MIB)
    assert len((await q.claim(free=100, budget=MIB)).ids) <= 12


async def test_a_budget_holds_over_all_lanes(q: Driver) -> None:
    for letter in "hnl":
        await q.send(f"{letter}1", f"{letter}2", letter=letter, record=b"x" * MIB)
    assert (await q.claim(budget=MIB)).ids == ["h1", "h2"]
    assert (await q.claim(budget=3 * MIB)).ids == ["n1", "n2", "l1"]


async def test_a_budget_holds_for_expired_leases_and_the_next_worker_may_sweep_at_once(q: Driver) -> None:
    for i in range(6):
        await q.send(f"{i}", record=b"x" * MIB)
    await q.claim(OTHER, budget=100 * MIB)
    assert (await q.claim("third", sweep=True, lease_ms=0, budget=2 * MIB)).ids == ["0", "1"]
    assert "2" in (await q.claim("fourth", sweep=True, lease_ms=0, budget=8 * MIB)).ids


async def test_a_record_larger_than_the_budget_is_given_alone(q: Driver) -> None:
    await q.send("a", record=b"x" * (2 * MIB))
    assert (await q.claim(budget=MIB)).ids == ["a"]


async def test_five_hundred_are_given_in_one_call_in_order(q: Driver) -> None:
    ids = [f"{999 - i}" for i in range(500)]
    await q.send(*ids)
    assert (await q.claim(free=500)).ids == ids


async def test_no_call_gives_more_than_a_budget_of_small_ones_leaves_behind(q: Driver) -> None:
    for part in range(3):
        await q.send(*(f"{part * 500 + i:04}" for i in range(500)))
    assert len((await q.claim(free=1200)).ids) == 1200
    assert len((await q.claim(free=1200)).ids) == 300


# ------------------------------------------------------------------------------------------------------ bell and pause


async def test_the_bell_rings_when_something_may_be_left(q: Driver) -> None:
    await q.send("a", "b")
    await q.raw.delete(q.keys.bell)
    await q.claim(free=1)
    assert (await q.look()).bell == 1
    await q.claim(free=1)
    assert (await q.look()).bell == 1


async def test_the_bell_is_silent_when_nothing_is_left(q: Driver) -> None:
    await q.send("a", "b")
    await q.raw.delete(q.keys.bell)
    await q.claim(free=3)
    assert (await q.look()).bell == 0


async def test_a_paused_queue_gives_nothing_and_sweeps_nothing(q: Driver) -> None:
    await q.send("a")
    await q.take("a", OTHER)
    await q.send("b")
    await q.pause()
    await q.raw.delete(q.keys.bell)
    before = await q.look()
    claimed = await q.claim(free=1, sweep=True, lease_ms=0)
    assert (claimed.note, claimed.given) == ("paused", ())
    await q.send("c")
    after = await q.look()
    assert (after.bell, after.pending, after.others) == (0, before.pending, before.others)


async def test_resume_opens_the_queue_and_rings(q: Driver) -> None:
    await q.pause()
    await q.send("a")
    assert (await q.look()).bell == 0
    assert await q.resume()
    assert (await q.look()).bell == 1
    assert (await q.claim()).ids == ["a"]
    assert not await q.resume()


# ------------------------------------------------------------------------------------------------------------ the sweep


async def test_nothing_is_swept_where_no_lease_has_run_out(q: Driver) -> None:
    await q.send("a")
    await q.take("a", OTHER)
    assert (await q.claim(sweep=True, lease_ms=FOREVER_MS, sweep_ms=1)).given == ()


async def test_a_lease_is_swept_once_it_has_been_idle_for_so_long(q: Driver) -> None:
    await q.send("a")
    await q.take("a", OTHER)
    await q.grow_old()
    assert (await q.claim(sweep=True, lease_ms=2 * OLD_MS)).given == ()
    await q.raw.delete(q.keys.swept)
    (swept,) = (await q.claim(sweep=True, lease_ms=OLD_MS)).given
    assert (swept.id, swept.deliveries) == ("a", 2)


async def test_nobody_sweeps_who_is_not_asked_to(q: Driver) -> None:
    await q.send("a")
    await q.take("a", OTHER)
    assert (await q.claim(lease_ms=0)).given == ()
    assert "swept" not in (await q.look()).others


async def test_one_worker_sweeps_in_an_interval(q: Driver) -> None:
    await q.claim(sweep=True, lease_ms=0, sweep_ms=HOUR_MS)
    await q.send("a")
    await q.take("a", OTHER)
    assert (await q.claim(sweep=True, lease_ms=0, sweep_ms=HOUR_MS)).given == ()
    assert 0 < await q.raw.pttl(q.keys.swept) <= HOUR_MS


async def test_sweeps_go_on_when_the_interval_is_over(q: Driver) -> None:
    await q.claim(sweep=True, lease_ms=0, sweep_ms=1)
    await q.send("a")
    await q.take("a", OTHER)

    async def swept() -> bool:
        return (await q.claim(sweep=True, lease_ms=0, sweep_ms=HOUR_MS)).ids == ["a"]

    await until(swept)


async def test_all_workers_that_sweep_at_one_instant_start_each_orphan_once(q: Driver) -> None:
    ids = [f"{i:02}" for i in range(30)]
    await q.send(*ids)
    await q.claim("killed", free=30)
    await q.grow_old()
    claims = [q.claim(f"w{worker}", free=10, sweep=True, lease_ms=OLD_MS) for worker in range(6)]
    started = [id for claimed in await asyncio.gather(*claims) for id in claimed.ids]
    assert sorted(started) == ids


async def test_more_orphans_than_slots_let_the_next_worker_sweep_at_once(q: Driver) -> None:
    await q.send("a", "b", "c")
    await q.claim("killed")
    assert (await q.claim("first", free=2, sweep=True, lease_ms=0)).ids == ["a", "b"]
    assert (await q.look()).bell == 1
    await q.grow_old(consumer="killed")
    assert (await q.claim("second", free=2, sweep=True, lease_ms=OLD_MS)).ids == ["c"]


async def test_more_orphans_than_one_sweep_takes_let_the_next_worker_sweep_at_once(q: Driver) -> None:
    ids = [f"{i:03}" for i in range(150)]
    await q.send(*ids)
    await q.claim("killed", free=150)
    await q.raw.delete(q.keys.bell)
    first = (await q.claim("first", free=200, sweep=True, lease_ms=0)).ids
    assert first == ids[:100]
    after = await q.look()
    assert ("swept" in after.others, after.bell) == (False, 1)


async def test_orphans_of_every_lane_are_swept(q: Driver) -> None:
    for letter in "lnh":
        await q.send(letter, letter=letter)
    await q.claim("killed")
    assert (await q.claim(sweep=True, lease_ms=0)).ids == ["h", "n", "l"]


async def test_an_orphan_behind_many_live_leases_is_found(q: Driver) -> None:
    await q.send(*(f"live{i:03}" for i in range(300)))
    live = (await q.claim(free=300)).given
    await q.send("orphan")
    await q.take("orphan", "killed")
    await q.grow_old()
    await q.renew(*live)
    assert (await q.claim(OTHER, free=5, sweep=True, lease_ms=OLD_MS)).ids == ["orphan"]


async def test_counts_come_from_the_stream_and_grow_by_one_for_each_lost_lease(q: Driver) -> None:
    await q.send("a")
    await q.take("a")
    for deliveries in range(2, 6):
        (swept,) = (await q.sweep(f"w{deliveries}")).given
        assert swept.deliveries == deliveries
        assert (await q.look()).pending == {swept.place: (f"w{deliveries}", deliveries)}


async def test_what_is_swept_can_be_settled_and_what_was_lost_cannot(q: Driver) -> None:
    await q.send("a")
    lost = await q.take("a")
    (swept,) = (await q.sweep()).given
    assert await q.complete(lost) == (["a"], [])
    assert await q.complete(swept, consumer=OTHER) == ([], [])


async def test_an_entry_deleted_behind_our_back_does_not_stay_pending(q: Driver) -> None:
    q.expected_unsound = True  # nobody can tell any more which id stood in it
    await q.send("a", "b")
    first, second = (await q.claim("killed")).given
    await q.raw.xdel(q.keys.normal, first.entry)
    assert (await q.sweep()).ids == ["b"]
    assert (await q.look()).pending == {second.place: (OTHER, 2)}


# -------------------------------------------------------------------------------------- what does not belong in a queue


async def test_an_entry_whose_id_stands_elsewhere_is_dropped_and_counted(q: Driver) -> None:
    await q.claim()
    await q.raw.xadd(q.keys.normal, {"i": "a"})
    await q.raw.delete(q.keys.normal)
    await q.send("a")
    await q.raw.xadd(q.keys.normal, {"i": "a"})
    await q.raw.xadd(q.keys.high, {"i": "a"})
    claimed = await q.claim()
    assert (claimed.ids, claimed.stale) == (["a"], 2)
    after = await q.look()
    assert after.lanes["h"] == {}
    assert after.entries() == ["a"]
    assert len(after.pending) == 1


@pytest.mark.parametrize("arrange", [states.delayed, states.dead, states.ready], ids=lambda arrange: arrange.__name__)
async def test_a_copy_of_an_entry_does_not_start_a_task_that_does_not_stand_there(
    q: Driver, arrange: states.Arrange
) -> None:
    await arrange(q)
    before = await q.look()
    await q.raw.xadd(q.keys.low, {"i": "a"})
    claimed = await q.claim(order="l")
    assert (claimed.given, claimed.stale) == ((), 1)
    assert await q.look() == before


async def test_a_stale_entry_that_is_pending_is_dropped_by_the_sweep(q: Driver) -> None:
    await q.send("a")
    await q.take("a")
    await q.raw.xadd(q.keys.normal, {"i": "a"})
    await q.raw.execute_command("XREADGROUP", "GROUP", "workers", "killed", "STREAMS", q.keys.normal, ">")
    claimed = await q.sweep()
    assert (claimed.ids, claimed.stale) == (["a"], 1)
    assert len((await q.look()).pending) == 1


async def test_stale_entries_are_dropped_a_bounded_number_at_a_time_and_the_bell_rings_for_the_rest(q: Driver) -> None:
    await q.send("a")
    await q.claim(OTHER)
    await q.raw.delete(q.keys.bell)
    pipe = q.raw.pipeline()
    for _ in range(3000):
        pipe.xadd(q.keys.normal, {"i": "a"})
    await pipe.execute()
    first = await q.claim()
    assert 1000 <= first.stale < 3000
    assert (await q.look()).bell == 1
    stale = first.stale
    while more := (await q.claim()).stale:
        stale += more
    assert stale == 3000


async def test_a_task_without_a_record_is_given_as_such(q: Driver) -> None:
    await q.send("a", "b")
    await q.raw.hdel(q.keys.tasks, "a")
    a, b = (await q.claim()).given
    assert (a.id, a.record) == ("a", None)
    assert (b.id, b.record) == ("b", RECORD)
    assert await q.bury(a) == []
    after = await q.look()
    assert (after.dead, after.pending) == ({"a"}, {b.place: (ME, 1)})
    assert await q.purge("a") == 1


@pytest.mark.parametrize(
    ("fields", "record"),
    [
        ({b"foo": b"bar"}, b"3:foo,3:bar,"),
        ({b"foo": b""}, b"3:foo,0:,"),
        ({b"i": b""}, b"1:i,0:,"),
        ({b"i": b"nobody"}, b"1:i,6:nobody,"),
        ({b"i": b"\xff\x00\n,:"}, b"1:i,5:\xff\x00\n,:,"),
        ({b"x": b"1", b"i": b"nobody", b"f": b"soon"}, b"1:x,1:1,1:i,6:nobody,1:f,4:soon,"),
        ({b"\xff": b"\xfe"}, b"1:\xff,1:\xfe,"),
        ({b"": b""}, b"0:,0:,"),
    ],
)
async def test_garbage_becomes_a_message_whose_record_is_the_entry_and_the_queue_goes_on(
    q: Driver, fields: dict[bytes | str, bytes], record: bytes
) -> None:
    await q.send("before")
    entry = (await q.raw.xadd(q.keys.normal, fields)).decode()
    await q.send("after")
    before, garbage, after = (await q.claim()).given
    assert (before.id, after.id) == ("before", "after")
    assert garbage == Given("n", entry, 1, f"malformed-n-{entry}", record, None, None, cancel_asked=False)
    found = await q.look()
    assert (found.tasks[garbage.id], found.places[garbage.id]) == (record, garbage.place)
    assert await q.bury(garbage) == []
    assert await q.complete(before, after) == ([], [])
    found = await q.look()
    assert (found.dead, found.tasks, found.places) == ({garbage.id}, {garbage.id: record}, {})


async def test_a_foreign_entry_with_the_id_of_a_task_before_its_own_field_is_read_by_name(q: Driver) -> None:
    await q.send("a")
    await q.raw.xadd(q.keys.normal, {"x": "y", "i": "a"})
    claimed = await q.claim()
    assert (claimed.ids, claimed.stale) == (["a"], 1)


async def test_garbage_survives_a_crash_under_the_same_id(q: Driver) -> None:
    await q.claim()
    await q.raw.xadd(q.keys.high, {"i": "nobody"})
    (first,) = (await q.claim()).given
    (second,) = (await q.sweep()).given
    assert (second.id, second.record, second.deliveries) == (first.id, first.record, 2)
    assert await q.bury(second, letter="h", consumer=OTHER) == []
    assert (await q.look()).dead == {first.id}


async def test_garbage_keeps_its_id_even_when_a_task_takes_the_one_it_names(q: Driver) -> None:
    await q.claim()
    await q.raw.xadd(q.keys.normal, {"i": "a"})
    (garbage,) = (await q.claim()).given
    await q.send("a")
    swept = (await q.sweep()).given
    assert sorted(one.id for one in swept) == sorted(["a", garbage.id])
    assert {one.record for one in swept} == {RECORD, b"1:i,1:a,"}


async def test_a_huge_entry_is_kept_whole_and_travels_only_in_part(q: Driver) -> None:
    await q.claim()
    await q.raw.xadd(q.keys.normal, {"body": b"x" * 50_000_000})
    await q.send("after")
    garbage, after = (await q.claim()).given
    assert after.id == "after"
    whole = b"4:body,50000000:" + b"x" * 50_000_000 + b","
    assert garbage.record == whole[:65536]
    stored = await q.raw.eval("return redis.sha1hex(redis.call('HGET', KEYS[1], ARGV[1]))", 1, q.keys.tasks, garbage.id)
    assert stored.decode() == hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    assert await q.bury(garbage) == []
    assert await q.purge(garbage.id) == 1


async def test_a_large_foreign_entry_travels_only_in_part_also_when_it_was_given_back(q: Driver) -> None:
    await q.claim()
    await q.raw.xadd(q.keys.normal, {"body": b"x" * 200_000})
    (garbage,) = (await q.claim()).given
    assert await q.release(garbage) == []
    (again,) = (await q.claim()).given
    assert again.record == garbage.record == b"4:body,200000:" + b"x" * (65536 - 14)
    assert await q.raw.hstrlen(q.keys.tasks, garbage.id) == 14 + 200_000 + 1


async def test_an_entry_of_many_fields_is_adopted_too(q: Driver) -> None:
    fields: dict[bytes | str, int] = {f"f{i}": i for i in range(20_000)}
    await q.claim()
    await q.raw.xadd(q.keys.normal, fields)
    (garbage,) = (await q.claim()).given
    expected = b"".join(b"%d:%b,%d:%b," % (len(k), k, len(v), v) for k, v in _bytes(fields))
    assert await q.raw.hget(q.keys.tasks, garbage.id) == expected
    assert garbage.record == expected[:65536]


def _bytes(fields: dict[bytes | str, int]) -> list[tuple[bytes, bytes]]:
    return [(str(key).encode(), str(value).encode()) for key, value in fields.items()]


# ---------------------------------------------------------------------------------------------------- groups and lanes


async def test_the_first_claim_makes_the_groups_and_misses_nothing_sent_before(q: Driver) -> None:
    await q.send("a", letter="l")
    await q.send("b", letter="h")
    claimed = await q.claim()
    assert (claimed.note, claimed.ids) == ("remade", ["b", "a"])
    assert (await q.claim()).note == ""


async def test_a_lane_deleted_behind_our_back_is_remade_with_the_other_lanes_untouched(q: Driver) -> None:
    q.expected_unsound = True  # what stood in it has a record and no entry
    await q.send("n1", "n2")
    await q.send("h1", letter="h")
    (held,) = (await q.claim(free=1, order="n")).given
    await q.raw.delete(q.keys.high)
    await q.send("h2", letter="h")
    claimed = await q.claim()
    assert (claimed.note, claimed.ids) == ("remade", ["h2", "n2"])
    assert await q.complete(held) == ([], [])


async def test_a_group_deleted_behind_our_back_is_remade_and_gives_all_that_still_stands(q: Driver) -> None:
    await q.send("a", "b")
    await q.claim(free=1)
    await q.raw.xgroup_destroy(q.keys.normal, "workers")
    claimed = await q.claim(OTHER, sweep=True)
    assert (claimed.note, claimed.ids) == ("remade", ["a", "b"])


async def test_settling_without_a_lane_is_refused_and_makes_none(q: Driver) -> None:
    held = Given("n", "1-1", 1, "a")
    assert await q.complete(held, others=[Ended(held=held)]) == (["a", "a"], [])
    assert await q.retry(held) == (["a"], [])
    assert await q.bury(held) == ["a"]
    assert await q.release(held) == ["a"]
    assert (await q.renew(held)).lost == {held.place}
    assert (await q.look()).others == frozenset()


async def test_a_lane_that_is_no_stream_is_an_error_but_does_not_keep_what_others_gave(q: Driver) -> None:
    await q.send("a", letter="h")
    await q.raw.set(q.keys.normal, "foreign")
    assert (await q.claim()).ids == ["a"]
    with pytest.raises(BrokerRefused, match="WRONGTYPE"):
        await q.claim()
    await q.raw.delete(q.keys.normal)
    assert await q.dispatch(Sent(id="b")) == []
    assert (await q.claim()).ids == ["b"]
