"""What somebody else, or a broken disk, may have written: bytes, half a JSON, numbers without end, keys of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from firetime.store.keys import QueueKeys

VALID = b'["note",[["x"],{}],"n",null,0,0,0,3,1.5,{"trace":"7"}]'
DEEP = 5_000

ODD_JSON = [
    b"",
    b"null",
    b"NaN",
    b'["note",[[NaN],{}]]',
    b'["note",[[1e999],{}]]',
    b'["note",[[' + b"9" * 5000 + b"],{}]]",
    b'["note",[["x"],{}],"n",null,' + b"9" * 40 + b"]",
    b'["note",[["x"],{}],"n",null,-1e308]',
    b'["note",' + b"[" * DEEP + b"]" * DEEP + b"]",
    b'{"a":' * DEEP,
    b"[" * DEEP,
    b'["note",[["\xff\xfe"],{}]]',
    b'["note",[["\\ud800"],{}]]',
    b'["note",[["x"],{"\\u0000":1}]]',
    b'["note",{"args":[]}]',
    b'["note",[["x"],{}],"n",["unhashable"]]',
    b'[["os","system"],[["true"],{}]]',
    b'{"task":"note","args":[["x"],{}]}',
    b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.",
]
"""The last one is a pickle that calls ``os.system("true")``."""

records = st.one_of(
    st.sampled_from(ODD_JSON),
    st.binary(max_size=200),
    st.integers(0, len(VALID) - 1).map(lambda end: VALID[:end]),
    st.tuples(st.integers(0, len(VALID) - 1), st.integers(1, 255)).map(
        lambda hit: VALID[: hit[0]] + bytes([VALID[hit[0]] ^ hit[1]]) + VALID[hit[0] + 1 :]
    ),
)
ids = st.one_of(
    st.sampled_from([b"\xff\xfe", b"", b"a b", b"x\x00y", "é".encode(), b"-", b"n"]), st.binary(max_size=40)
)
scores = st.one_of(
    st.sampled_from(["-inf", "0", "-1", "1", "1.5", "7e15"]), st.floats(-1e16, 6e15, allow_nan=False).map(str)
)
fields = st.dictionaries(st.binary(min_size=1, max_size=10), st.binary(max_size=30), min_size=1, max_size=4)

Write = "Callable[[Any, QueueKeys], Awaitable[object]]"


def _message(id: bytes, record: bytes, lane: str) -> Callable[[Any, QueueKeys], Awaitable[object]]:
    """A message as firetime writes one, but for what is in it."""

    async def write(raw: Any, keys: QueueKeys) -> None:
        entry = await raw.xadd(keys.lanes[lane], {"i": id})
        pipe = raw.pipeline(transaction=True)
        pipe.hset(keys.tasks, id, record)
        pipe.hset(keys.places, id, lane.encode() + entry)
        await pipe.execute()

    return write


def _entry(lane: str, written: dict[bytes, bytes]) -> Callable[[Any, QueueKeys], Awaitable[object]]:
    return lambda raw, keys: raw.xadd(keys.lanes[lane], written)


def _member(name: str, member: bytes, score: str) -> Callable[[Any, QueueKeys], Awaitable[object]]:
    return lambda raw, keys: raw.execute_command("ZADD", getattr(keys, name), score, member)


def _field(name: str, field: bytes, value: bytes) -> Callable[[Any, QueueKeys], Awaitable[object]]:
    return lambda raw, keys: raw.hset(getattr(keys, name), field, value)


def _string(name: str, value: bytes) -> Callable[[Any, QueueKeys], Awaitable[object]]:
    return lambda raw, keys: raw.execute_command("SET", getattr(keys, name), value, "PX", 300)


lanes = st.sampled_from("hnl")
writes = st.one_of(
    st.builds(_message, ids, records, lanes),
    st.builds(_entry, lanes, fields),
    st.builds(lambda lane, id: _entry(lane, {b"i": id}), lanes, ids),
    st.builds(_member, st.sampled_from(["delayed", "dead", "workers_seen", "schedules_due"]), ids, scores),
    st.builds(
        _field,
        st.sampled_from(
            ["state", "places", "unique", "cancelling", "metrics", "workers", "schedules", "schedules_last"]
        ),
        ids,
        st.one_of(records, st.binary(max_size=20)),
    ),
    st.builds(_string, st.sampled_from(["leader", "swept"]), st.binary(max_size=30)),
    st.builds(lambda token: lambda raw, keys: raw.lpush(keys.bell, token), st.binary(max_size=9)),
    st.builds(lambda words: lambda raw, keys: raw.xadd(keys.wake, words), fields),
    st.builds(lambda words: lambda raw, keys: raw.xadd(keys.schedules_wake, words), fields),
    st.builds(lambda word: lambda raw, keys: raw.publish(keys.control_channel, word), st.binary(max_size=40)),
    st.builds(lambda word: lambda raw, keys: raw.publish(keys.ended_channel, word), st.binary(max_size=40)),
)
