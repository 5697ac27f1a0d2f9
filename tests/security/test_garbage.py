"""Garbage in every key, while a worker runs: it goes on, what is good is done, nothing unread is dropped, nothing spins."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firetime import BrokerRefused, InvalidOption, InvalidTaskPayload, JsonCodec, Signed, TaskRunner
from firetime.values.codec import Guarded
from firetime.values.dead_letter import dead_letter
from firetime.values.definition import Definition
from firetime.values.message import Message
from firetime.values.netstring import read_netstrings
from firetime.values.options import TaskOptions
from firetime.values.schedule import read_kept
from firetime.values.state import read_state
from tests.kit.waiting import until
from tests.security.garbage import ODD_JSON, records, writes
from tests.story.stage import let_pass

if TYPE_CHECKING:
    from tests.story.stage import NewRunner

LONG = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
SHORT: dict[str, Any] = {"lease": 2.0, "sweep": 0.2, "unknown_ttl": 0.0, "concurrency": 20}


class Crowd:
    """A worker with one good task that takes a text, and what it was called with."""

    def __init__(self, runner: TaskRunner, raw: Any) -> None:
        self.runner = runner
        self.raw = raw
        self.keys = runner.desk.keys("default")
        self.noted: list[Any] = []
        self.sent = 0
        noted = self.noted

        @runner.task(max_retry=0, result_ttl=60)
        async def note(text: str) -> None:
            noted.append(text)

        self.note = note

    async def does_what_is_good(self) -> None:
        self.sent += 1
        handle = await self.note.dispatch(f"good {self.sent}")
        await handle.result(timeout=30)
        assert self.noted[-1] == f"good {self.sent}"

    async def calls(self) -> int:
        """How many script calls and reads the server has had."""
        stats = await self.raw.info("commandstats")
        return sum(about["calls"] for name, about in stats.items() if name in ("cmdstat_evalsha", "cmdstat_blpop"))

    async def is_calm(self) -> bool:
        before = await self.calls()
        await let_pass(self.raw, 0.5)
        return bool(await self.calls() - before < 60)


@pytest.fixture
async def crowd(new_runner: NewRunner, raw: Any) -> Any:
    made = Crowd(new_runner(**SHORT), raw)
    await made.runner.start()
    yield made
    await made.runner.stop()
    # what foreign members were left where nobody looks is the test's own: the queue is emptied
    for name in await raw.keys("*"):
        await raw.delete(name)


@LONG
@given(garbage=st.lists(writes, min_size=1, max_size=6))
async def test_a_worker_goes_on_whatever_anybody_writes(crowd: Crowd, garbage: list[Any]) -> None:
    for write in garbage:
        await write(crowd.raw, crowd.keys)
    await crowd.does_what_is_good()
    worker = crowd.runner.worker
    assert worker is not None
    assert all(isinstance(text, str) for text in crowd.noted)
    assert worker.healthy or await _gets_healthy(worker)


async def _gets_healthy(worker: Any) -> bool:
    await until(lambda: bool(worker.healthy), timeout=30)
    return True


@LONG
@given(record=records)
async def test_a_record_that_nobody_can_read_is_kept_with_its_bytes(crowd: Crowd, record: bytes) -> None:
    called = len(crowd.noted)
    await put(crowd, b"odd", record)

    async def is_over() -> bool:
        return not await crowd.raw.hexists(crowd.keys.places, b"odd")

    await until(is_over, timeout=30)
    if (died := await crowd.raw.zscore(crowd.keys.dead, b"odd")) is None:
        # it could be read after all, and was a call that fits the task
        assert len(crowd.noted) == called + 1
        return
    assert died
    assert await crowd.raw.hget(crowd.keys.tasks, b"odd") == record
    letter = await crowd.runner.dead().show("odd")
    assert letter.raw in (b"", record)
    assert letter.task or letter.raw == record
    await crowd.runner.dead().purge("odd")


async def put(crowd: Crowd, id: bytes, record: bytes) -> None:
    """A message as firetime writes one, in one transaction."""
    entry = await crowd.raw.eval(
        "local e = redis.call('XADD', KEYS[1], '*', 'i', ARGV[1]) redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) "
        "redis.call('HSET', KEYS[3], ARGV[1], 'n' .. e) redis.call('LPUSH', KEYS[4], 1) return e",
        4,
        crowd.keys.normal,
        crowd.keys.tasks,
        crowd.keys.places,
        crowd.keys.bell,
        id,
        record,
    )
    assert entry


@pytest.mark.parametrize("how", ["a message", "an entry", "a delayed member", "a delayed member with a record"])
async def test_an_id_that_is_no_text_leaves_a_dead_letter_and_nothing_else(crowd: Crowd, how: str) -> None:
    id, record = b"\xff\xfe\x00bad", b'["note",[["never"],{}]]'
    if how == "a message":
        await put(crowd, id, record)
    elif how == "an entry":
        await crowd.raw.xadd(crowd.keys.normal, {b"i": id})
        await crowd.raw.lpush(crowd.keys.bell, 1)
    else:
        if how.endswith("record"):
            await crowd.raw.hset(crowd.keys.tasks, id, record)
        await crowd.raw.zadd(crowd.keys.delayed, {id + b"n": 1})
        await crowd.does_what_is_good()

    async def is_dead() -> bool:
        return bool(await crowd.raw.zcard(crowd.keys.dead))

    await until(is_dead, timeout=30)
    await crowd.does_what_is_good()
    assert await crowd.raw.hlen(crowd.keys.places) == 0
    assert "never" not in crowd.noted
    (letter,) = await crowd.runner.dead().page()
    assert letter.raw == record or letter.reason == "record lost" or letter.fields == [b"i", id]
    assert letter.id.startswith(r"\xff\xfe") or letter.fields
    assert await crowd.runner.dead().purge_all() == 1
    assert await crowd.raw.zcard(crowd.keys.dead) == 0
    assert await crowd.raw.hlen(crowd.keys.tasks) == 0


async def test_a_schedule_that_nobody_can_read_stops_no_other(crowd: Crowd) -> None:
    for number, definition in enumerate(ODD_JSON):
        await crowd.raw.hset(crowd.keys.schedules, f"odd{number}", b"print 0 " + definition)
        await crowd.raw.zadd(crowd.keys.schedules_due, {f"odd{number}": 1})
    await crowd.runner.schedules.add("good", crowd.note, args=("tick",), every=0.1)
    await until(lambda: "tick" in crowd.noted, timeout=30)
    told = {each.name: each.problem for each in await crowd.runner.schedules.list()}
    assert [name for name, problem in told.items() if not problem] == ["good"]
    await crowd.runner.schedules.remove("good")
    assert crowd.runner.worker is not None
    await _gets_healthy(crowd.runner.worker)


async def test_a_worker_told_of_nonsense_does_not_stop_those_who_ask(crowd: Crowd) -> None:
    for number, about in enumerate(ODD_JSON):
        await crowd.raw.hset(crowd.keys.workers, f"odd{number}", about)
    assert len(await crowd.runner.overview.workers("default")) == 1
    handle = await crowd.note.dispatch("x")
    await handle.result(timeout=30)
    for value in ODD_JSON:
        await crowd.raw.set(crowd.keys.result(handle.task_id), value)
        with suppress(InvalidTaskPayload):
            await handle.result(timeout=30)


KEYS = [
    "tasks", "state", "places", "high", "normal", "low", "bell", "delayed", "wake", "unique", "dead", "cancelling",
    "history", "leader", "epoch", "workers", "workers_seen", "schedules", "schedules_due", "schedules_last",
    "schedules_wake", "metrics", "swept",
]  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
async def test_a_key_of_a_wrong_type_stops_no_worker_for_longer_than_it_is_there(crowd: Crowd, name: str) -> None:
    await crowd.does_what_is_good()
    key = getattr(crowd.keys, name)
    kind = await crowd.raw.type(key)
    await crowd.raw.delete(key)
    await (crowd.raw.rpush(key, "foreign") if kind == b"string" else crowd.raw.set(key, "foreign"))
    await until(crowd.is_calm, timeout=30, what="it does not spin")
    await crowd.raw.delete(key)
    await crowd.does_what_is_good()
    worker = crowd.runner.worker
    assert worker is not None
    await _gets_healthy(worker)


# -------------------------------------------------------------------------------------------------------- decoders


@settings(max_examples=300)
@given(record=records, signed=st.booleans())
def test_a_codec_reads_a_message_or_says_that_it_cannot(record: bytes, signed: bool) -> None:
    codec = Guarded(Signed({"k": b"k" * 32}) if signed else JsonCodec(), "firetime")
    said: InvalidTaskPayload | None = None
    try:
        assert isinstance(codec.decode(record, "q", "a"), Message)
    except InvalidTaskPayload as error:
        said = error
    assert said.raw == record if said is not None else not signed


def _note(text: str, times: int = 1) -> None: ...


NOTE = Definition(_note, "note", TaskOptions())


@settings(max_examples=300)
@given(record=records)
def test_arguments_are_of_the_types_that_the_parameters_name_or_refused(record: bytes) -> None:
    try:
        args, kwargs = NOTE.decode(msgspec.Raw(record))
    except InvalidTaskPayload:
        return
    assert all(isinstance(value, str) for value in args[:1])
    assert all(type(value) is int for value in args[1:2])
    assert isinstance(kwargs, dict)


@settings(max_examples=300)
@given(stored=st.one_of(records, records.map(lambda body: b"0 1 " + body)))
def test_every_other_reader_bears_it(stored: bytes) -> None:
    state = read_state(stored)
    assert isinstance(read_netstrings(stored), list)
    message = Message("note", msgspec.Raw(stored))
    assert dead_letter(task_id="a", queue="q", message=message, raw=stored, state=state).task == "note"
    with suppress(InvalidOption):
        read_kept("often", b"print 0 " + stored)


# -------------------------------------------------------------------------------------------- what a message may name

NAMES = ["os.system", "__import__", "eval", "builtins.exec", "subprocess:run", "note.__globals__", "../note", "Crowd"]


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_is_called_but_what_is_registered(crowd: Crowd, name: str, tmp_path: Any) -> None:
    proof = tmp_path / "called"
    await put(crowd, b"evil", msgspec.json.encode([name, [[f"touch {proof}"], {}]]))

    async def is_dead() -> bool:
        return await crowd.raw.zscore(crowd.keys.dead, b"evil") is not None

    await until(is_dead, timeout=30)
    letter = await crowd.runner.dead().show("evil")
    assert (letter.reason, letter.task) == ("unknown", name)
    assert not proof.exists()


async def test_no_module_is_imported_for_a_message(
    crowd: Crowd, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "never_imported.py").write_text(f"open({str(tmp_path / 'called')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, words in enumerate(
        (
            ["never_imported", [[], {}]],
            ["never_imported.run", [[], {}]],
            ["note", [[{"__type__": "never_imported.Thing", "py/object": "never_imported.Thing", "type": "x"}], {}]],
            ["note", [[], {"text": {"__reduce__": ["never_imported", []]}}]],
        )
    ):
        await put(crowd, b"evil%d" % number, msgspec.json.encode(words))

    async def all_are_dead() -> bool:
        return int(await crowd.raw.zcard(crowd.keys.dead)) == 4

    await until(all_are_dead, timeout=30)
    assert not (tmp_path / "called").exists()
    assert crowd.noted == []


async def test_a_pickle_is_never_loaded(crowd: Crowd) -> None:
    await put(crowd, b"pickle", ODD_JSON[-1])

    async def is_dead() -> bool:
        return await crowd.raw.zscore(crowd.keys.dead, b"pickle") is not None

    await until(is_dead, timeout=30)
    assert (await crowd.runner.dead().show("pickle")).raw == ODD_JSON[-1]


def test_nothing_in_firetime_can_load_a_pickle_or_evaluate_a_text() -> None:
    able = re.compile(r"\b(?:import (?:pickle|marshal|shelve|dill|yaml)|(?<![.\w])(?:eval|exec|__import__)\()")
    sources = (Path(__file__).parents[2] / "src").rglob("*.py")
    assert [path.name for path in sources if able.search(path.read_text("utf-8"))] == []


async def test_a_question_about_garbage_is_an_answer_or_one_error(crowd: Crowd) -> None:
    await crowd.raw.set(crowd.keys.dead, "foreign")
    with pytest.raises(BrokerRefused, match="WRONGTYPE"):
        await crowd.runner.dead().count()
