"""Where a message of a spread queue goes is a pure rule, and whoever knows the rule finds it again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firetime import InvalidOption
from firetime.produce.spread import Spread
from firetime.values.ids import NAME, new_id
from firetime.values.shards import (
    MOST_SHARDS,
    NO_SHARDS,
    Shards,
    checked_shards,
    renewed,
    shard_in,
    shard_name,
    shard_of,
    with_shard,
)

keys = st.text(max_size=40)
names = st.from_regex(NAME, fullmatch=True)
counts = st.integers(2, MOST_SHARDS)
shards = st.integers(0, MOST_SHARDS - 1)


def spread(count: int, *others: str) -> Shards:
    return Shards({"default": count} | dict.fromkeys(others, count))


@given(keys, st.integers(1, MOST_SHARDS))
def test_a_key_has_one_shard_and_it_exists(key: str, count: int) -> None:
    assert shard_of(key, count) in range(count)
    assert shard_of(key, count) == shard_of(key, count)


@given(keys, st.integers(1, MOST_SHARDS - 1))
def test_one_shard_more_takes_some_keys_and_moves_no_other(key: str, count: int) -> None:
    assert shard_of(key, count + 1) in {shard_of(key, count), count}


@pytest.mark.parametrize("count", [2, 3, 8, MOST_SHARDS])
def test_keys_are_spread_evenly(count: int) -> None:
    found = Counter(shard_of(f"key {number}", count) for number in range(500 * count))
    assert sorted(found) == list(range(count))
    # by far more than chance allows: five standard deviations of a binomial distribution are 22% of 500
    assert all(390 < each < 610 for each in found.values())


@pytest.mark.parametrize(("key", "shard"), [("rebuild:7", 6), ("invoice-7", 0), ("", 3), ("é", 1)])
def test_the_rule_is_the_same_in_every_release(key: str, shard: int) -> None:
    # two programs that disagree would each let a second message with a unique key in
    assert shard_of(key, 8) == shard


@given(shards)
def test_an_id_carries_its_shard(shard: int) -> None:
    made = with_shard(new_id(), shard)
    assert shard_in(made) == shard
    assert NAME.fullmatch(made)
    assert shard_in(renewed(made)) == shard
    assert renewed(made) != made


@given(names.filter(lambda name: ":" not in name))
def test_an_id_of_the_senders_own_carries_none(name: str) -> None:
    assert shard_in(name) is None


@given(st.integers(0, 99).filter(lambda shard: shard >= MOST_SHARDS))
def test_no_id_carries_a_shard_that_cannot_be(shard: int) -> None:
    assert shard_in(with_shard(new_id(), shard)) is None


@given(names | st.builds(with_shard, st.builds(new_id), shards), counts, st.integers(1, MOST_SHARDS), st.booleans())
def test_whoever_knows_the_id_finds_the_message_whatever_the_number_was(
    name: str, then: int, now: int, explicit: bool
) -> None:
    where, task_id = Spread(spread(then)).place("default", name if explicit else new_id(), key=None, explicit=explicit)
    assert where in spread(now).names_for("default", task_id)
    if (shard_in(task_id) or 0) < then:
        assert where == spread(then).names_for("default", task_id)[0]


@given(names, keys, counts)
def test_an_own_id_beside_a_unique_key_is_looked_for_in_every_shard(name: str, key: str, count: int) -> None:
    where, task_id = Spread(spread(count)).place("default", name, key=key, explicit=True)
    assert task_id == name
    assert where == shard_name("default", shard_of(key, count))
    if shard_in(name) is None:
        assert where in spread(count).names_for("default", task_id)


@given(names)
def test_few_places_are_asked_first(name: str) -> None:
    places = spread(8).names_for("default", name)
    assert len(places) == len(set(places))
    assert "default" in places[:2] or shard_in(name) is not None


@given(counts)
def test_turn_by_turn_each_shard_gets_as_many(count: int) -> None:
    placing = Spread(spread(count))
    places = Counter(placing.place("default", new_id(), key=None, explicit=False)[0] for _ in range(3 * count))
    assert set(places.values()) == {3}
    assert set(places) == set(spread(count).names("default")) - {"default"}


@given(counts, shards)
def test_a_shard_is_called_by_the_name_of_its_queue(count: int, shard: int) -> None:
    assert spread(count).logical(shard_name("default", shard)) == "default"
    assert spread(count).logical("default") == "default"
    assert spread(count).queue_of().get(shard_name("default", shard)) == "default"


@pytest.mark.parametrize("name", ["default:64", "default:01", "default:x", "default:", "mail:3", "other"])
def test_other_names_are_their_own(name: str) -> None:
    assert spread(8).logical(name) == name
    assert NO_SHARDS.logical("default:3") == "default:3"


@given(counts, st.integers(0, 10**6))
def test_the_shards_may_hold_together_what_the_queue_may(count: int, most: int) -> None:
    share = spread(count).share("default:1", most)
    assert most <= share * count < most + count
    assert spread(count).share("mail", most) == most


@pytest.mark.parametrize(
    ("given_", "counts"),
    [
        ("default=8", {"default": 8}),
        (" default = 8 , mail=4", {"default": 8, "mail": 4}),
        ({"default": 1}, {"default": 1}),
        ("shop:eu=64", {"shop:eu": 64}),
        ("default:1=2", {"default:1": 2}),
        ({}, {}),
    ],
)
def test_what_can_be_meant(given_: object, counts: dict[str, int]) -> None:
    assert checked_shards("queue_shards", given_).counts == counts
    assert checked_shards("queue_shards", checked_shards("queue_shards", given_)).counts == counts


@pytest.mark.parametrize(
    "given_",
    [
        "default",
        "default=",
        "default=x",
        "=8",
        "default=8,",
        "default=0",
        "default=65",
        "default=8,default=4",
        "default=8,default:1=2",
        "a b=8",
        {"default": 0},
        {"default": True},
        {"default": 2.0},
        {"default": "8"},
        {"x" * 98: 8},
        {3: 8},
        8,
        ["default"],
    ],
)
def test_what_cannot_be_meant_is_refused(given_: object) -> None:
    with pytest.raises(InvalidOption):
        checked_shards("queue_shards", given_)
