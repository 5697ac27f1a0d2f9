"""Members are settled, swept and replayed in random order, also by those who lost them: each group is followed once."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.edges.driver import ME, OTHER, Driver, Ended, Given, Sent

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS = {"g1": ["a", "b", "c"], "g2": ["d"], "g3": ["e", "f"]}
GROUP_OF = {member: group for group, members in GROUPS.items() for member in members}
WAYS = ("done", "done", "done", "retry", "bury", "release", "sweep", "replay")
_numbers = count()

steps = st.lists(
    st.tuples(
        st.sampled_from(WAYS), st.sampled_from([ME, OTHER]), st.lists(st.integers(0, 99), min_size=1, max_size=5)
    ),
    max_size=25,
)


async def take_step(q: Driver, way: str, consumer: str, batch: Sequence[Given]) -> set[str]:
    """Does it; gives the members that were done by it."""
    match way:
        case "done":
            others = [Ended(held=one, group=GROUP_OF[one.id]) for one in batch]
            refused, _ = await q.complete(others=others, consumer=consumer)
            return {one.id for one in batch} - {*refused}
        case "retry":
            await q.retry(*batch, consumer=consumer)
        case "bury":
            await q.bury(*batch, consumer=consumer)
        case "release":
            await q.release(*batch, consumer=consumer)
        case "replay":
            await q.replay(*{one.id for one in batch})
    return set()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
async def test_each_group_is_followed_once_when_its_members_are_done(
    q: Driver, steps: list[tuple[str, str, list[int]]]
) -> None:
    q = q.fresh(f"{next(_numbers)}")
    for group, members in GROUPS.items():
        assert await q.group(*(Sent(id=member) for member in members), then=f"then-{group}", group=group) == []
    known: list[Given] = []
    done: set[str] = set()
    for way, consumer, picked in [*steps]:
        claimed = await (q.sweep(consumer) if way == "sweep" else q.claim(consumer, free=2))
        known += [one for one in claimed.given if one.id in GROUP_OF]
        batch = list({known[i % len(known)].id: known[i % len(known)] for i in picked}.values()) if known else []
        now_done = await take_step(q, way, consumer, batch) if batch else set()
        assert not now_done & done
        done |= now_done
        await matches(q, done)


async def matches(q: Driver, done: set[str]) -> None:
    after = await q.look()
    over = {group for group, members in GROUPS.items() if done.issuperset(members)}
    assert after.tasks.keys() == GROUP_OF.keys() - done | {f"then-{group}" for group in over}
    entries = after.entries()
    assert [entries.count(f"then-{group}") for group in GROUPS] == [int(group in over) for group in GROUPS]
    for group, members in GROUPS.items():
        assert await q.waits_for(group) == ({*members} - done if group not in over else set())
