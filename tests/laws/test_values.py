"""What is written comes back as it was; what cannot be meant is refused; ids sort by time."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firetime.values.codec import Guarded, JsonCodec
from firetime.values.definition import Definition
from firetime.values.durations import LATEST, LONGEST_S, delay_s, epoch_ms, seconds
from firetime.values.errors import InvalidOption, InvalidTaskPayload
from firetime.values.ids import new_id
from firetime.values.message import Message, Note, State
from firetime.values.netstring import read_netstrings
from firetime.values.options import TaskOptions
from firetime.values.state import (
    FRESH,
    KEPT_NOTES,
    MOST_TRACEBACK,
    newest,
    note,
    read_state,
    with_note,
    write_state,
)

any_text = st.text(st.characters(exclude_categories=[]))
"""Lone surrogates too."""

COUNTS = st.integers(0, 2**53)
notes = st.builds(Note, st.text(), st.text(), st.text(), COUNTS)
states = st.builds(
    State,
    crashes=COUNTS,
    deliveries=COUNTS,
    failures=COUNTS,
    first=st.lists(notes, max_size=3).map(tuple),
    last=st.lists(notes, max_size=3).map(tuple),
    phase=st.text(),
    reason=st.text(),
    first_seen_ms=COUNTS,
    puzzled=COUNTS,
)

# --------------------------------------------------------------------------------------------------------------- state


@given(states)
def test_a_state_comes_back_as_it_was(state: State) -> None:
    stored = write_state(state)
    assert read_state(stored) == state
    assert stored.startswith(b"%d %d {" % (state.crashes, state.deliveries))


@given(st.binary() | st.binary().map(lambda body: b"1 2 " + body))
@example(b"0 0 " + b"[" * 100_000)
@example(b'0 0 {"x":' + b"[" * 100_000)
@example(b"9" * 10_000 + b" 0 {}")
@example(b"0 0 {")
def test_a_state_that_somebody_else_wrote_is_fresh_and_never_an_error(stored: bytes) -> None:
    assert isinstance(read_state(stored), State)


@given(any_text)
@example("\ud800" * 100_000)
@example("\U0001f525" * 100_000)
def test_an_error_is_kept_however_long_and_odd_its_text_is(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError as error:
        kept = note(error, 7)
    assert (kept.type, kept.at_ms) == ("ValueError", 7)
    assert len(kept.text.encode()) <= 4096
    assert len(kept.traceback.encode()) <= MOST_TRACEBACK
    if len(text) < 500:
        assert kept.text == text.encode("utf-8", "backslashreplace").decode()
        assert "raise ValueError(text)" in kept.traceback
    state = with_note(FRESH, kept)
    assert read_state(write_state(state)) == state


@given(st.integers(0, 60))
def test_of_all_errors_the_first_nine_and_the_last_nine_are_kept(count: int) -> None:
    state = FRESH
    for number in range(count):
        state = with_note(state, Note("E", str(number), "", number))
    kept = [int(each.text) for each in (*state.first, *state.last)]
    assert kept == [
        number for number in range(count) if number < KEPT_NOTES or number >= max(KEPT_NOTES, count - KEPT_NOTES)
    ]
    latest = newest(state)
    assert (latest.text if latest else None) == (str(count - 1) if count else None)


# ---------------------------------------------------------------------------------------------------------- netstrings


def netstrings(words: list[bytes]) -> bytes:
    return b"".join(b"%d:%b," % (len(word), word) for word in words)


@given(st.lists(st.binary()))
def test_netstrings_come_back_as_they_were(words: list[bytes]) -> None:
    assert read_netstrings(netstrings(words)) == words


@given(st.lists(st.binary(min_size=1), min_size=1), st.integers(0, 10_000))
def test_netstrings_that_were_cut_lose_no_whole_word(words: list[bytes], cut: int) -> None:
    whole = netstrings(words)
    found = read_netstrings(whole[: min(cut, len(whole))])
    assert found[:-1] == words[: max(0, len(found) - 1)]


@given(st.binary())
@example(b"9" * 5000 + b":x,")
@example(b"1000000000000000000000000:x,")
@example(b":,")
def test_bytes_that_are_no_netstrings_are_never_an_error(raw: bytes) -> None:
    assert all(isinstance(word, bytes) for word in read_netstrings(raw))


# ----------------------------------------------------------------------------------------------------------------- ids


def test_ids_sort_by_the_time_they_were_made() -> None:
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert all(len(id) == 32 and id[12] == "7" and id[16] in "89ab" for id in ids)
    age_ms = datetime.now(UTC).timestamp() * 1000 - int(ids[-1][:12], 16)
    assert -1 <= age_ms < 10_000


def test_threads_that_make_ids_at_once_make_no_id_twice() -> None:
    made: list[list[str]] = [[] for _ in range(8)]

    def make(mine: list[str]) -> None:
        mine.extend(new_id() for _ in range(2000))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id for mine in made for id in mine}) == 16_000
    assert all(mine == sorted(mine) for mine in made)


# ----------------------------------------------------------------------------------------------------------- arguments


def anything(*args: Any, **kwargs: Any) -> None: ...


def typed(
    text: str,
    number: int,
    real: float,
    blob: bytes,
    when: datetime,
    span: timedelta,
    choices: set[int],
    pairs: dict[str, tuple[int, ...]],
    nothing: None = None,
) -> None: ...


ANYTHING = Definition(anything, "anything", TaskOptions())
TYPED = Definition(typed, "typed", TaskOptions())
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.lists(plain).map(tuple), st.dictionaries(st.text(), plain))
def test_plain_arguments_come_back_as_they_were(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert ANYTHING.decode(ANYTHING.encode(args, kwargs)) == (args, kwargs)


@given(
    st.tuples(
        st.text(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.binary(),
        st.datetimes(timezones=st.just(UTC)),
        st.timedeltas(timedelta(days=-9999), timedelta(days=9999)),
        st.sets(st.integers()),
        st.dictionaries(st.text(), st.lists(st.integers()).map(tuple)),
    )
)
def test_typed_arguments_come_back_as_their_types(args: tuple[Any, ...]) -> None:
    assert TYPED.decode(TYPED.encode(args, {})) == (args, {})
    names = list(TYPED.signature.parameters)
    named = dict(zip(names, args, strict=False))
    assert TYPED.decode(TYPED.encode((), named)) == ((), named)


infinite = st.sampled_from([math.nan, math.inf, -math.inf])


@given(
    st.recursive(infinite, lambda inner: st.lists(inner, min_size=1) | st.dictionaries(st.text(), inner, min_size=1))
)
def test_what_json_cannot_say_is_refused_and_never_turned_into_none(argument: Any) -> None:
    with pytest.raises(InvalidTaskPayload, match="JSON has no NaN and no infinity"):
        ANYTHING.encode((None, argument), {})


@given(any_text)
def test_text_comes_back_or_is_refused(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(InvalidTaskPayload, match="argument 1"):
            ANYTHING.encode((text,), {})
    else:
        assert ANYTHING.decode(ANYTHING.encode((text,), {})) == ((text,), {})


# ------------------------------------------------------------------------------------------------------------- records

messages = st.builds(
    Message,
    task=st.text(),
    args=st.lists(plain).map(lambda args: msgspec.Raw(msgspec.json.encode((args, {})))),
    lane=st.sampled_from("hnl"),
    unique_key=st.none() | st.text(),
    unique_ms=COUNTS,
    result_ms=COUNTS,
    remember_ms=COUNTS,
    max_retry=st.none() | COUNTS,
    timeout_s=st.none() | st.floats(0, 1e9),
    headers=st.dictionaries(st.text(), st.text()),
    group=st.text(),
)


@given(messages)
@example(Message("", msgspec.Raw(b'[["\\"n\\",null,0,0,0,null,null,{},\\"\\"]"],{}]')))
def test_a_message_comes_back_from_its_record_as_it_was(message: Message) -> None:
    codec = JsonCodec()
    found = codec.decode(codec.encode(message))
    assert bytes(found.args) == bytes(message.args)
    assert msgspec.structs.replace(found, args=message.args) == message


class OlderMessage(msgspec.Struct, array_like=True):
    """A message as it was before there were groups."""

    task: str
    args: msgspec.Raw
    lane: str
    unique_key: str | None
    unique_ms: int
    result_ms: int
    remember_ms: int
    max_retry: int | None
    timeout_s: float | None
    headers: dict[str, str]


@given(messages)
def test_older_and_newer_releases_read_each_other(message: Message) -> None:
    known = {name: getattr(message, name) for name in OlderMessage.__struct_fields__}
    newer = JsonCodec().decode(msgspec.json.encode(OlderMessage(**known)))
    assert msgspec.structs.replace(newer, args=message.args, group=message.group) == message
    assert newer.group == ""
    if message.group:
        older = msgspec.json.decode(JsonCodec().encode(message), type=OlderMessage)
        assert {**msgspec.structs.asdict(older), "args": message.args} == known


@given(st.binary())
@example(b"[" * 200_000)
def test_a_record_that_cannot_be_read_is_an_invalid_payload_and_nothing_else(record: bytes) -> None:
    with suppress(InvalidTaskPayload):
        Guarded(JsonCodec()).decode(record)


# ----------------------------------------------------------------------------------------------------------- durations

numbers = st.floats() | st.integers() | st.integers(-(10**400), 10**400) | st.timedeltas()


@given(numbers)
@example(10**400)
@example(-(10**400))
@example(math.nan)
def test_a_span_is_a_finite_number_of_seconds_or_refused(value: float | timedelta) -> None:
    exact = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= exact <= LONGEST_S:
        with pytest.raises(InvalidOption, match=r"^wait="):
            seconds("wait", value)
    else:
        assert seconds("wait", value) == exact


@given(numbers)
def test_a_delay_ends_before_the_year_2200_or_is_refused(value: float | timedelta) -> None:
    exact = value.total_seconds() if isinstance(value, timedelta) else value
    last = (LATEST - datetime.now(UTC)).total_seconds()
    if 0 <= exact < last - 60:
        assert delay_s("delay", value) == exact
    elif not 0 <= exact < last + 60:
        with pytest.raises(InvalidOption, match=r"^delay="):
            delay_s("delay", value)


@given(st.one_of(st.text(), st.none(), st.booleans(), st.binary(), st.lists(st.integers())))
def test_what_is_no_number_is_no_span(value: Any) -> None:
    with pytest.raises(InvalidOption):
        seconds("wait", value)


zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(timezones=zones))
def test_an_instant_is_never_rounded_to_an_earlier_one(when: datetime) -> None:
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    try:
        found = epoch_ms("when", when)
    except InvalidOption:
        assert when > LATEST
    else:
        late = timedelta(milliseconds=found) - since
        assert late >= timedelta(0)
        assert late < timedelta(milliseconds=1) or found == 0


@given(st.datetimes())
def test_an_instant_without_a_zone_is_refused(when: datetime) -> None:
    with pytest.raises(InvalidOption, match="an aware datetime"):
        epoch_ms("when", when)


def with_defaults(first: int, second: float = 2.5, third: tuple[str, ...] = ()) -> None: ...


def with_a_keyword(first: int, second: float = 2.5, third: tuple[str, ...] = (), *, last: str = "") -> None: ...


def with_rest(first: int, *rest: tuple[str, ...]) -> None: ...


@pytest.mark.parametrize("function", [with_defaults, with_a_keyword])
@given(st.tuples(st.integers(), st.floats(0, 1), st.lists(st.text()).map(tuple)), st.integers(1, 3))
def test_as_many_arguments_come_back_as_were_given(function: Any, args: tuple[Any, ...], count: int) -> None:
    task = Definition(function, "task", TaskOptions())
    assert task.decode(task.encode(args[:count], {})) == (args[:count], {})
    named = dict(zip(["first", "second", "third"], args[:count], strict=False))
    assert task.decode(task.encode((), named)) == ((), named)


@given(st.integers(), st.lists(st.lists(st.text()).map(tuple)))
def test_any_number_of_arguments_comes_back_where_the_task_takes_any(first: int, rest: list[tuple[str]]) -> None:
    task = Definition(with_rest, "task", TaskOptions())
    assert task.decode(task.encode((first, *rest), {})) == ((first, *rest), {})


@pytest.mark.parametrize("function", [with_defaults, with_a_keyword])
@pytest.mark.parametrize("args", [(), (1, 2.0, (), "one too many"), ("no number",), (1, "no number")])
def test_arguments_that_do_not_fit_are_refused(function: Any, args: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidTaskPayload):
        Definition(function, "task", TaskOptions()).encode(args, {})
