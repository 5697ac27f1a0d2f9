"""With memory full nothing new is accepted, and all that was accepted goes on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from firetime.values.errors import QueueFull
from tests.edges import states
from tests.edges.driver import HOUR_MS, ME, OTHER, RECORD, Answer, Ended, Sent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.edges.driver import Driver

HOUR_US = HOUR_MS * 1000
LATER_MS = 4_000_000_000_000


@asynccontextmanager
async def memory_full(q: Driver) -> AsyncIterator[None]:
    await q.raw.config_set("maxmemory", 1)
    try:
        yield
    finally:
        await q.raw.config_set("maxmemory", 0)


@pytest.mark.parametrize(
    "sent",
    [
        [Sent(id="a"), Sent(id="b")],
        [Sent(id="a", at_ms=LATER_MS)],
        [Sent(id="a", key="key", hold_ms=5, explicit=True)],
        [Sent(id="a", key="held", at_ms=LATER_MS, on_conflict="replace")],
    ],
    ids=["ready", "delayed", "unique", "replace"],
)
async def test_a_dispatch_is_refused_as_a_whole_and_leaves_nothing_behind(own: Driver, sent: list[Sent]) -> None:
    await own.send("before", key="held", at_ms=LATER_MS - 1)
    before = await own.look()
    async with memory_full(own):
        with pytest.raises(QueueFull):
            await own.dispatch(*sent, number=99)
        assert await own.look() == before
    answers = [Answer(0, "moved", "before")] if sent[0].on_conflict == "replace" else []
    assert await own.dispatch(*sent, number=99) == answers


@pytest.mark.parametrize("begins", [True, False])
async def test_so_is_a_group(own: Driver, begins: bool) -> None:
    assert await own.group(Sent(id="before"), ends=False) == []
    before = await own.look()
    group = "other" if begins else "g"
    sent = [Sent(id="a", explicit=True), Sent(id="b", at_ms=LATER_MS)]
    async with memory_full(own):
        with pytest.raises(QueueFull):
            await own.group(*sent, group=group, begins=begins, number=99)
        assert await own.look() == before
    assert await own.waits_for("g") == {"before"}
    assert await own.group(*sent, group=group, begins=begins, number=99) == []


async def test_the_last_member_of_a_group_is_followed(own: Driver) -> None:
    await own.group(Sent(id="a"), Sent(id="b"))
    given = (await own.claim()).given
    async with memory_full(own):
        assert await own.complete(others=[Ended(held=one, group="g") for one in given]) == ([], [])
    assert (await own.look()).entries() == ["then"]


async def test_what_is_ready_is_claimed_also_by_the_first_worker_there_ever_was(own: Driver) -> None:
    await own.send("a", letter="l")
    async with memory_full(own):
        claimed = await own.claim(sweep=True, free=1)
    assert (claimed.note, claimed.ids) == ("remade", ["a"])
    assert (await own.look()).bell == 1


async def test_expired_leases_are_swept(own: Driver) -> None:
    await own.send("a")
    await own.take("a", OTHER)
    async with memory_full(own):
        assert (await own.claim(sweep=True, lease_ms=0)).ids == ["a"]
    assert "swept" in (await own.look()).others


async def test_garbage_is_adopted(own: Driver) -> None:
    await own.claim()
    await own.raw.xadd(own.keys.normal, {"foo": "bar"})
    async with memory_full(own):
        (garbage,) = (await own.claim()).given
        assert await own.bury(garbage) == []
    assert (await own.look()).tasks == {garbage.id: b"3:foo,3:bar,"}


async def test_running_tasks_are_settled_every_way(own: Driver) -> None:
    await own.send(*"abcdefg")
    a, b, c, d, e, f, g = (await own.claim()).given
    await own.cancel("g")
    async with memory_full(own):
        assert await own.complete(a, metrics=[("task_count", 1)]) == ([], [])
        ended = Ended(held=b, remember_ms=HOUR_MS, result_ms=HOUR_MS, value=b"1", history=True)
        assert await own.complete(others=[ended]) == ([], [])
        assert await own.retry(c, delay_us=HOUR_US, state=b"0 1 {c}") == ([], [])
        assert await own.retry(d, state=b"0 1 {d}") == ([], [])
        assert await own.bury(e, state=b"0 1 {e}") == []
        assert await own.release(f, started=True) == []
        assert await own.retry(g) == ([], ["g"])
    after = await own.look()
    assert after.tasks == dict.fromkeys("cdef", RECORD)
    assert after.state == {"c": b"0 1 {c}", "d": b"0 1 {d}", "e": b"0 1 {e}", "f": b"0 1 {}"}
    assert (after.entries(), after.delayed_ids(), after.dead, after.pending) == (["d", "f"], ["c"], {"e"}, {})
    assert (after.ended, after.results) == ({"b": "done", "g": "cancelled"}, {"b": b"1"})
    assert (after.metrics, len(after.history), after.bell) == ({"task_count": 1}, 1, 1)


async def test_what_is_due_is_promoted_on_time_by_the_leader_that_was_elected_meanwhile(own: Driver) -> None:
    await own.send("a", at_ms=LATER_MS)
    async with memory_full(own):
        assert (await own.lead()).mine
        await own.travel_to(LATER_MS)
        assert (await own.promote(grace_ms=2 * LATER_MS)).moved == 1
        assert (await own.lead()).mine
    assert (await own.look()).entries() == ["a"]


async def test_leases_are_renewed_and_lost_ones_told_also_where_a_unique_key_is_prolonged(own: Driver) -> None:
    await own.dispatch(Sent(id="a", key="key", hold_ms=1))
    held = await own.take("a")
    async with memory_full(own):
        await own.grow_old()
        assert (await own.renew(held, unique=[("key", "a", 60_000)])).lost == frozenset()
        assert max((await own.lease_ages()).values()) < 60_000
        assert (await own.renew(held.with_count(2), unique=[("key", "a", 60_000)])).lost == {held.place}


@pytest.mark.parametrize(
    ("arrange", "answer"),
    [(states.ready, "cancelled"), (states.delayed, "cancelled"), (states.running, "requested")],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_tasks_are_cancelled(own: Driver, arrange: states.Arrange, answer: str) -> None:
    await arrange(own)
    async with memory_full(own):
        assert await own.cancel("a", key="key") == answer
    after = await own.look()
    assert (after.cancelling, after.ended) == (
        (frozenset({"a"}), {}) if answer == "requested" else (frozenset(), {"a": "cancelled"})
    )


async def test_dead_letters_are_replayed_and_purged(own: Driver) -> None:
    await own.send("a", "b")
    await own.bury(*(await own.claim()).given)
    async with memory_full(own):
        assert await own.replay("a") == []
        assert await own.purge("b") == 1
    after = await own.look()
    assert (after.entries(), after.tasks, after.dead) == (["a"], {"a": RECORD}, frozenset())


async def test_workers_come_and_go(own: Driver) -> None:
    await own.claim()
    async with memory_full(own):
        assert await own.alive() == 1
        assert await own.alive(OTHER) == 2
        await own.lead()
        assert await own.leave()
        await own.prune(gone_ms=HOUR_MS)
    assert await own.raw.hkeys(own.keys.workers) == [OTHER.encode()]
    assert (await own.look()).bell == 1


async def test_a_paused_queue_is_opened(own: Driver) -> None:
    await own.send("a")
    await own.pause()
    await own.raw.delete(own.keys.bell)
    async with memory_full(own):
        assert await own.resume()
    assert (await own.look()).bell == 1
    assert (await own.claim(ME)).ids == ["a"]
