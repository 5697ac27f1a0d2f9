"""Whatever is sent, moved and taken back, in any order: what is left is promoted by fire-time, and as it came within one."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.edges.driver import Sent

if TYPE_CHECKING:
    from tests.edges.driver import Driver

_numbers = count()
_MOMENTS = [int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (2030, 2045, 2110, 2199)]

fire_times = st.builds(lambda moment, near: moment + near, st.sampled_from(_MOMENTS), st.integers(0, 2))
sends = st.tuples(st.just("send"), fire_times)
moves = st.tuples(st.just("move"), st.integers(0, 30), fire_times)
cancels = st.tuples(st.just("cancel"), st.integers(0, 30))


class Model:
    """Plain Python: who waits for which millisecond, in the order in which they came there."""

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[int, int]] = {}
        self._arrivals = count()

    def put(self, id: str, fire_ms: int) -> None:
        self.waiting[id] = fire_ms, next(self._arrivals)

    def order(self) -> list[tuple[str, int]]:
        return [(id, fire_ms) for id, (fire_ms, _) in sorted(self.waiting.items(), key=lambda each: each[1])]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(sends, moves, cancels), max_size=40), st.integers(1, 7))
async def test_what_is_left_comes_in_order(q: Driver, steps: list[tuple[str, int, int]], most: int) -> None:
    q = q.fresh(f"{next(_numbers)}")
    model, ids = Model(), [f"{99 - number}" for number in range(99)]  # by id, the order would be the wrong one
    sent = 0
    for what, *words in steps:
        match what, words:
            case "send", [fire_ms]:
                assert await q.dispatch(Sent(id=ids[sent], at_ms=fire_ms)) == []
                model.put(ids[sent], fire_ms)
                sent += 1
            case "move", [number, fire_ms]:
                answer, _ = await q.reschedule(ids[number], at_ms=fire_ms)
                assert (answer == "rescheduled") == (ids[number] in model.waiting)
                if answer == "rescheduled":
                    model.put(ids[number], fire_ms)
            case _, [number]:
                answer = await q.cancel(ids[number])
                assert (answer == "cancelled") == (model.waiting.pop(ids[number], None) is not None)
    await q.lead()
    try:
        for moment in sorted({fire_ms for fire_ms, _ in model.waiting.values()}):
            q.server.shift.stopped_us = moment * 1000
            while (await q.promote(most=most)).moved:
                continue
    finally:
        q.server.shift.stopped_us = None
    assert [(one.id, one.fire_ms) for one in (await q.claim(free=100)).given] == model.order()
