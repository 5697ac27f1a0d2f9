"""Fire-times become scores and come back unharmed, in the order in which messages came, until the year 2200.

The model is plain Python with integers of any size; the scripts calculate with doubles, which are exact up to 2**53 only.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.edges.driver import Driver, Sent, connected, sound_driver
from tests.edges.look import SLOTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.kit.servers import ServerProcess

EXACT = 2**53
_numbers = count()


@pytest.fixture
async def q(server: ServerProcess, queue_name: str) -> AsyncIterator[Driver]:
    async with connected(server) as (product, raw), sound_driver(product, raw, queue_name) as driver:
        yield driver


def year(number: int) -> int:
    """Its first millisecond since 1970."""
    return int(datetime(number, 1, 1, tzinfo=UTC).timestamp()) * 1000


COARSER = [EXACT * factor // SLOTS for factor in (1, 2, 4)]
"""From these milliseconds on (2039, 2109, 2248) doubles count in steps of 2, 4, 8."""

moments = st.sampled_from([year(2030), year(2045), year(2100), year(2199), COARSER[0], COARSER[1]])
fire_times = st.builds(lambda moment, near: moment + near, moments, st.integers(-2, 2))
messages = st.lists(st.tuples(fire_times, st.sampled_from("hnl")), min_size=1, max_size=60)


def step(fire_ms: int) -> int:
    """How far apart two scores of that millisecond must be to differ."""
    found = 1
    while fire_ms * SLOTS >= EXACT * found:
        found *= 2
    return found


def scores(sent: Sequence[Sent]) -> dict[str, int]:
    """What each member's score must be: highest so far in its millisecond, and one place more, as long as there is one."""
    found: dict[str, int] = {}
    highest: dict[int, int] = {}
    for one in sent:
        fire_ms = one.at_ms or 0
        apart = step(fire_ms)
        place = min(highest.get(fire_ms, -apart) + apart, SLOTS - apart)
        highest[fire_ms] = place
        found[one.id + one.letter] = fire_ms * SLOTS + place
    return found


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages)
@example([(year(2045), "n")] * 3 + [(year(2045) - 1, "n"), (year(2045) + 1, "n")])
@example([(COARSER[0] - 1, "n"), (COARSER[0], "n"), (COARSER[0] - 1, "n"), (COARSER[0], "n")])
async def test_fire_times_are_kept_exactly_and_first_in_is_first_out(q: Driver, drawn: list[tuple[int, str]]) -> None:
    q = q.fresh(f"{next(_numbers)}")
    # ids fall, so that an order by id would be the wrong one
    sent = [Sent(id=f"{99 - i}", at_ms=ms, letter=letter) for i, (ms, letter) in enumerate(drawn)]
    for batch in (sent[: len(sent) // 2], sent[len(sent) // 2 :]):
        if batch:
            assert await q.dispatch(*batch) == []
    expected = scores(sent)
    after = await q.look()
    assert after.delayed == expected
    assert list(after.delayed) == sorted(expected, key=lambda member: (expected[member], member))
    assert (await q.lead()).head_ms == min(one.at_ms or 0 for one in sent)
    for one in sent[:5]:
        assert (await q.status(one.id)).fire_ms == one.at_ms


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages)
async def test_promotion_moves_each_at_its_millisecond_and_not_one_before(
    q: Driver, drawn: list[tuple[int, str]]
) -> None:
    q = q.fresh(f"{next(_numbers)}")
    sent = [Sent(id=f"{99 - i}", at_ms=ms, letter="n") for i, (ms, _) in enumerate(drawn)]
    await q.dispatch(*sent)
    await q.lead()
    at = {one.id: one.at_ms or 0 for one in sent}
    order = sorted(at, key=lambda id: at[id])  # sorting is stable: within a millisecond they stay as they were sent
    moved = 0
    try:
        for due_ms in sorted(set(at.values())):
            await q.travel_to(due_ms)
            promoted = await q.promote()
            assert all(at[id] <= promoted.now_us // 1000 for id in order[moved : moved + promoted.moved])
            moved += promoted.moved
            assert all(at[id] > due_ms for id in order[moved:])
        claimed = await q.claim(free=100)
        assert [(one.id, one.fire_ms) for one in claimed.given] == [(id, at[id]) for id in order]
    finally:
        q.server.shift.us = 0


@pytest.mark.parametrize("fire_ms", [year(2030), year(2045), year(2199)], ids=["2030", "2045", "2199"])
async def test_more_in_one_millisecond_than_it_has_places_stay_in_it(q: Driver, fire_ms: int) -> None:
    most = 5000
    sent = [Sent(id=f"{most - i:04}", at_ms=fire_ms) for i in range(most)]
    for i in range(0, most, 500):
        assert await q.dispatch(*sent[i : i + 500]) == []
    await q.send("next", at_ms=fire_ms + 1)
    await q.send("before", at_ms=fire_ms - 1)
    expected = scores([*sent, Sent(id="next", at_ms=fire_ms + 1), Sent(id="before", at_ms=fire_ms - 1)])
    after = await q.look()
    assert after.delayed == expected
    places = SLOTS // step(fire_ms)
    arrived = [one.id for one in sent]
    # first in, first out, as long as there are places; then by id
    order = ["before", *arrived[: places - 1], *sorted(arrived[places - 1 :]), "next"]
    assert after.delayed_ids() == order
    await q.lead()
    await q.travel_to(fire_ms)
    while (await q.promote()).moved:
        pass
    await q.travel_to(fire_ms + 1)
    await q.promote()
    lane = (await q.look()).lanes["n"].values()
    assert [fields["i"] for fields in lane] == order
    assert {int(fields["f"]) for fields in list(lane)[1:-1]} == {fire_ms}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moments, st.integers(0, 999), st.integers(1, 10_000_000))
async def test_a_delay_is_rounded_up_to_the_millisecond_in_any_year(
    q: Driver, now_ms: int, us: int, delay_us: int
) -> None:
    q = q.fresh(f"{next(_numbers)}")
    try:
        await q.travel_to(now_ms)
        q.server.shift.us += us
        from_us = (await q.promote()).now_us
        await q.send("a", in_us=delay_us + 60_000_000)
        to_us = (await q.promote()).now_us
    finally:
        q.server.shift.us = 0
    fire_ms = (await q.look()).fire_ms("an")
    assert from_us + delay_us + 60_000_000 <= fire_ms * 1000 < to_us + delay_us + 60_000_000 + 1000
