"""Signed and encrypted messages run; what was changed, moved or not sealed is a dead letter that says why."""

from __future__ import annotations

import base64
import os
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from firetime import Encrypted, Fixed, InvalidOption, JsonCodec, Signed, Status, TaskExecutionError, UntrustedMessage
from firetime.values import seal
from firetime.values.codec import Guarded, Label
from firetime.values.message import Message
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from firetime import TaskRunner
    from firetime.values.codec import Sealing
    from tests.story.stage import Drain, NewRunner

OLD, NEW = secrets.token_bytes(32), secrets.token_bytes(32)
HERE = Label("firetime", "message", "default", "a")

KINDS: dict[str, Callable[..., Sealing]] = {
    "signed": Signed,
    "encrypted": Encrypted,
    "both": lambda keys, **more: Signed(keys, **more, codec=Encrypted(keys, **more)),
}


@pytest.fixture(params=list(KINDS))
def make(request: pytest.FixtureRequest) -> Callable[..., Sealing]:
    return KINDS[request.param]


@pytest.fixture
def sealed(new_runner: NewRunner, make: Callable[..., Sealing]) -> TaskRunner:
    return new_runner(codec=make({"old": OLD}))


def tasks(runner: TaskRunner, ran: list[Any]) -> Any:
    @runner.task(max_retry=1, backoff=Fixed(0), result_ttl=60)
    async def pay(who: str) -> str:
        ran.append(who)
        if who == "mallory":
            raise LookupError("no account of mallory")
        return f"paid {who}"

    return pay


# ------------------------------------------------------------------------------------------------------------ it works


async def test_a_sealed_task_runs_and_its_result_comes_back(sealed: TaskRunner, drain: Drain, raw: Any) -> None:
    pay = tasks(sealed, [])
    handle = await pay.dispatch("ada")
    await drain(sealed)
    assert await handle.result(timeout=30) == "paid ada"
    stored = await raw.get(sealed.desk.keys("default").result(handle.task_id))
    assert stored[:2] in (b"S1", b"E1")


@pytest.mark.parametrize("shards", [1, 4])
async def test_a_group_is_sealed_for_where_it_goes(
    new_runner: NewRunner, drain: Drain, make: Callable[..., Sealing], shards: int
) -> None:
    runner = new_runner(codec=make({"old": OLD}), queue_shards={"default": shards})
    ran: list[Any] = []
    pay = tasks(runner, ran)
    message = pay.message("ada")
    group = await runner.group([message, message, pay.message("grace")], then=pay.message("all"))
    await drain(runner)
    assert (sorted(ran[:3]), ran[3:]) == (["ada", "ada", "grace"], ["all"])
    assert await group.then.result(timeout=30) == "paid all"
    assert await runner.dead().count() == 0


async def test_errors_come_back_too_and_a_dead_letter_is_replayed(sealed: TaskRunner, drain: Drain, raw: Any) -> None:
    ran: list[Any] = []
    pay = tasks(sealed, ran)
    handle = await pay.dispatch("mallory")
    await drain(sealed)
    with pytest.raises(TaskExecutionError, match="no account of mallory"):
        await handle.result(timeout=30)
    letter = await sealed.dead().show(handle.task_id)
    assert (letter.args, letter.failures, letter.reason) == (["mallory"], 2, "exhausted")
    await sealed.dead().replay(handle.task_id)
    await drain(sealed)
    assert ran == ["mallory"] * 4
    await sealed.dead().purge_all()


@pytest.mark.parametrize("make", [Encrypted], ids=["encrypted"])
async def test_what_is_encrypted_stands_nowhere_in_clear_text(sealed: TaskRunner, drain: Drain, raw: Any) -> None:
    pay = tasks(sealed, [])
    handles = [
        await pay.dispatch("mallory"),
        await pay.options(headers={"trace": "mallory"}).dispatch("ada of mallory"),
    ]
    await sealed.schedules.add("nightly", pay, args=("mallory",), cron="0 4 * * *")
    found = [await everything(raw)]
    await drain(sealed)
    assert await handles[1].result(timeout=30) == "paid ada of mallory"
    found.append(await everything(raw))
    assert [b"mallory" in each for each in found] == [False, False]
    await sealed.schedules.remove("nightly")
    await sealed.dead().purge_all()


async def everything(raw: Any) -> bytes:
    """All values of all keys, as they are stored."""
    found: list[bytes] = []
    async for key in raw.scan_iter():
        kind = await raw.type(key)
        if kind == b"hash":
            found += [word for pair in (await raw.hgetall(key)).items() for word in pair]
        elif kind == b"string":
            found.append(await raw.get(key))
        elif kind == b"stream":
            found += [word for _, fields in await raw.xrange(key) for pair in fields.items() for word in pair]
        elif kind == b"zset":
            found += await raw.zrange(key, 0, -1)
    return b"\n".join(found)


async def test_every_way_of_sending_is_opened_under_its_id(sealed: TaskRunner, drain: Drain) -> None:
    ran: list[Any] = []
    pay = tasks(sealed, ran)
    await pay.options(task_id="mine").dispatch("by id")
    await pay.dispatch_delayed(0.01, "later")
    twice = pay.message("twice")
    await sealed.dispatch_many([twice, twice])
    one = pay.options(unique_key="k", unique_for="done", on_conflict="replace", delay=30)
    handle = await one.dispatch("replaced")
    assert (await one.dispatch("replacing")).task_id == handle.task_id
    await handle.run_now()
    await sealed.named("pay").dispatch("by name")
    await sealed.schedules.add("often", pay, args=("again and again",), every=3600)
    await sealed.schedules.trigger("often")
    expected = sorted(["by id", "later", "twice", "twice", "replacing", "by name", "again and again"])
    await sealed.start()
    await until(lambda: len(ran) == len(expected), timeout=30)
    assert sorted(ran) == expected
    assert (await sealed.schedules.list())[0].task == "pay"
    await sealed.schedules.remove("often")
    await drain(sealed)


async def test_a_schedule_ticks_and_looks_the_same_at_the_next_start(sealed: TaskRunner, drain: Drain) -> None:
    ran: list[Any] = []
    pay = tasks(sealed, ran)
    assert await sealed.schedules.add("often", pay, args=("tick",), every=0.2) == "added"
    assert await sealed.schedules.add("often", pay, args=("tick",), every=0.2) == "same"
    assert await sealed.schedules.add("often", pay, args=("tock",), every=0.2) == "changed"
    await sealed.start()
    await until(lambda: "tock" in ran, timeout=30)
    await sealed.schedules.remove("often")
    await drain(sealed)


# -------------------------------------------------------------------------------------------------------- it is refused


async def only_letter(runner: TaskRunner, drain: Drain) -> Any:
    await drain(runner)
    (letter,) = await runner.dead().page()
    return letter


async def test_a_changed_message_is_a_dead_letter_with_its_bytes(sealed: TaskRunner, drain: Drain, raw: Any) -> None:
    ran: list[Any] = []
    told: list[BaseException] = []
    sealed.on_failed(lambda _letter, error: told.append(error))
    handle = await tasks(sealed, ran).dispatch("ada")
    key = sealed.desk.keys("default").tasks
    record = await raw.hget(key, handle.task_id)
    changed = record[:-1] + bytes([record[-1] ^ 1])
    await raw.hset(key, handle.task_id, changed)
    letter = await only_letter(sealed, drain)
    assert (ran, letter.raw, letter.reason, letter.task) == ([], changed, "malformed", "")
    assert (type(told[0]), "was changed, moved" in str(told[0])) == (UntrustedMessage, True)
    assert letter.errors[-1].type == "firetime.values.errors.UntrustedMessage"
    assert await handle.status() == Status.DEAD
    await sealed.dead().purge_all()


async def test_an_unsealed_message_is_a_dead_letter_unless_that_is_accepted(
    sealed: TaskRunner, new_runner: NewRunner, drain: Drain, make: Callable[..., Sealing]
) -> None:
    ran: list[Any] = []
    tasks(sealed, ran)
    await new_runner().dispatch("pay", "plain")
    letter = await only_letter(sealed, drain)
    assert (ran, b'["pay",[["plain"],{}]' in letter.raw) == ([], True)
    assert "is not signed" in letter.errors[0].text or "is not encrypted" in letter.errors[0].text
    await sealed.stop()
    accepting: dict[str, Any] = {"accept_unsigned": True} if make is Signed else {"accept_plain": True}
    if make not in (Signed, Encrypted):
        codec: Any = Signed({"old": OLD}, codec=Encrypted({"old": OLD}, accept_plain=True), accept_unsigned=True)
    else:
        codec = make({"old": OLD}, **accepting)
    lenient = new_runner(codec=codec)
    tasks(lenient, ran)
    await lenient.dead().replay_all()
    await drain(lenient)
    assert ran == ["plain"]


@pytest.mark.parametrize("where", ["another id", "another queue"])
async def test_a_record_put_elsewhere_is_refused_there(sealed: TaskRunner, drain: Drain, raw: Any, where: str) -> None:
    ran: list[Any] = []
    pay = tasks(sealed, ran)
    sealed.task(queue="other", name="other")(pay.__wrapped__)
    handle = await pay.options(delay=3600).dispatch("once only")
    there = sealed.named("other") if where == "another queue" else pay
    target = await there.dispatch("ada")
    record = await raw.hget(sealed.desk.keys("default").tasks, handle.task_id)
    await raw.hset(sealed.desk.keys(target.queue).tasks, target.task_id, record)
    await drain(sealed)
    (letter,) = await sealed.dead(target.queue).page()
    assert (ran, letter.raw) == ([], record)
    await sealed.dead(target.queue).purge_all()
    await handle.cancel()


async def test_a_forged_result_is_refused(sealed: TaskRunner, drain: Drain, raw: Any) -> None:
    pay = tasks(sealed, [])
    one, other = await pay.dispatch("ada"), await pay.dispatch("grace")
    await drain(sealed)
    keys = sealed.desk.keys("default")
    for forged in (b'"paid eve"', await raw.get(keys.result(other.task_id))):
        await raw.set(keys.result(one.task_id), forged)
        assert await one.status() == Status.DONE
        with pytest.raises(UntrustedMessage):
            await one.result(timeout=30)
    assert await other.result(timeout=30) == "paid grace"


async def test_a_forged_state_counts_for_nothing(sealed: TaskRunner, drain: Drain, raw: Any) -> None:
    ran: list[Any] = []
    handle = await tasks(sealed, ran).dispatch("ada")
    await raw.hset(sealed.desk.keys("default").state, handle.task_id, b'0 1 {"phase":"failing","reason":"exhausted"}')
    await drain(sealed)
    assert ran == ["ada"]


# ------------------------------------------------------------------------------------------------------------- rotation


async def test_a_key_is_rotated_while_messages_are_on_their_way(
    sealed: TaskRunner, new_runner: NewRunner, drain: Drain, make: Callable[..., Sealing]
) -> None:
    ran: list[Any] = []
    await tasks(sealed, []).dispatch("with the old key")
    both, late = new_runner(codec=make({"old": OLD, "new": NEW}, use="new")), new_runner(codec=make({"new": NEW}))
    pay = tasks(both, ran)
    await pay.dispatch("with the new key")
    await drain(both)
    assert sorted(ran) == ["with the new key", "with the old key"]
    await both.stop()
    handle = await sealed.dispatch("pay", "too late")
    tasks(late, ran)
    letter = await only_letter(late, drain)
    assert (letter.id, len(ran)) == (handle.task_id, 2)
    assert "is sealed with the key 'old', which is not known here" in letter.errors[0].text
    await late.stop()
    await both.dead().replay(handle.task_id)
    await drain(both)
    assert ran[2:] == ["too late"]


async def test_a_schedule_is_sealed_anew_when_the_key_changes(
    sealed: TaskRunner, new_runner: NewRunner, make: Callable[..., Sealing]
) -> None:
    await sealed.schedules.add("often", tasks(sealed, []), args=("x",), cron="0 4 * * *")
    rotated = new_runner(codec=make({"old": OLD, "new": NEW}, use="new"))
    assert await rotated.schedules.add("often", tasks(rotated, []), args=("x",), cron="0 4 * * *") == "changed"
    assert (await new_runner(codec=make({"new": NEW})).schedules.list())[0].task == "pay"
    assert "which is not known here" in (await sealed.schedules.list())[0].problem
    await rotated.schedules.remove("often")


async def test_keys_of_the_environment(
    new_runner: NewRunner, monkeypatch: pytest.MonkeyPatch, drain: Drain, raw: Any
) -> None:
    monkeypatch.setenv(
        "FIRETIME_ENCRYPTION_KEYS", f"new:{base64.b64encode(NEW).decode()}, old:{base64.b64encode(OLD).decode()}"
    )
    monkeypatch.setenv("FIRETIME_SIGNING_KEYS", f"new:{base64.b64encode(NEW).decode()}")
    runner = new_runner()
    shown = repr(runner.settings) + repr(runner.desk.house)
    assert base64.b64encode(NEW).decode() not in shown
    handle = await tasks(runner, []).dispatch("ada")
    record = await raw.hget(runner.desk.keys("default").tasks, handle.task_id)
    assert record.startswith(b"S1 new i ")
    assert b"E1 new i " in record
    await drain(runner)
    assert await handle.result(timeout=30) == "paid ada"


# ----------------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("name", list(KINDS))
def test_no_byte_of_a_record_can_be_changed_or_left_out(name: str) -> None:
    codec = KINDS[name]({"k": OLD})
    record = codec.wrap(b'["pay",[[1],{}]]', HERE)
    assert codec.unwrap(record, HERE) == b'["pay",[[1],{}]]'
    for at in range(len(record)):
        for other in (
            record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :],
            record[:at],
            record[:at] + record[at + 1 :],
        ):
            with pytest.raises(UntrustedMessage):
                codec.unwrap(other, HERE)


@pytest.mark.parametrize("name", list(KINDS))
def test_what_is_sealed_for_one_place_opens_in_no_other(name: str) -> None:
    codec = KINDS[name]({"k": OLD})
    places = [
        HERE,
        HERE._replace(prefix="other"),
        HERE._replace(kind="result"),
        HERE._replace(queue="other"),
        HERE._replace(id="b"),
        Label("firetime", "message", "defaul", "ta"),
        Label("firetime1", "message", "default", "a"),
    ]
    for sealed_for in places:
        for opened_at in places:
            if sealed_for == opened_at:
                continue
            with pytest.raises(UntrustedMessage):
                codec.unwrap(codec.wrap(b"x", sealed_for), opened_at)
    anywhere = codec.wrap(b"x", HERE._replace(id=""))
    assert codec.unwrap(anywhere, HERE) == b"x"
    with pytest.raises(UntrustedMessage):
        codec.unwrap(anywhere, HERE._replace(queue="other"))


def test_an_encrypted_record_never_looks_the_same_twice_and_a_signed_one_does() -> None:
    encrypted, signed = Encrypted({"k": OLD}), Signed({"k": OLD})
    assert len({encrypted.wrap(b"x", HERE) for _ in range(100)}) == 100
    assert len({signed.wrap(b"x", HERE) for _ in range(100)}) == 1


def test_a_derived_key_is_left_before_its_nonces_may_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "MOST_SEALS", 10)
    codec = Encrypted({"k": OLD})
    records = [codec.wrap(b"x", HERE) for _ in range(35)]
    salts = [record[len(b"E1 k i ") :][:16] for record in records]
    assert [salts.count(salt) for salt in dict.fromkeys(salts)] == [10, 10, 10, 5]
    assert {codec.unwrap(record, HERE) for record in records} == {b"x"}


def test_a_forked_child_has_a_key_of_its_own() -> None:
    codec = Encrypted({"k": OLD})
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, codec.wrap(b"x", HERE))
        os._exit(0)
    os.waitpid(child, 0)
    record = os.read(reading, 1000)
    os.close(reading)
    os.close(writing)
    assert record[7:23] != codec.wrap(b"x", HERE)[7:23]
    assert codec.unwrap(record, HERE) == b"x"


BAD_KEYS: list[tuple[Any, dict[str, Any], str]] = [
    ({}, {}, r"keys=\*\*\*: expected keys by their ids"),
    (b"x" * 32, {}, r"keys=\*\*\*: expected keys by their ids"),
    ({"k": b"short"}, {}, r"keys\['k'\]='<5 bytes>': expected (at least )?32 bytes"),
    ({"k": "x" * 32}, {}, r"keys\['k'\]=<class 'str'>: expected (at least )?32 bytes"),
    ({"a b": OLD}, {}, "keys='a b': expected ids of"),
    ({7: OLD}, {}, "keys='int': expected ids of"),
    ({"a": OLD, "b": NEW}, {}, "use=None: expected the id of the key that seals, one of a, b"),
    ({"a": OLD}, {"use": "c"}, "use='c': expected the id of one of the keys: a"),
]


@pytest.mark.parametrize("kind", [Signed, Encrypted])
@pytest.mark.parametrize(("keys", "more", "said"), BAD_KEYS, ids=[str(n) for n, _ in enumerate(BAD_KEYS)])
def test_keys_that_will_not_do_are_named_and_not_told(kind: Any, keys: Any, more: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        kind(keys, **more)


@pytest.mark.parametrize("text", ["k", "k:", ":", "k:%%%", "k:c2hvcnQ=", "k:é"])
def test_keys_of_the_environment_that_will_not_do(
    monkeypatch: pytest.MonkeyPatch, new_runner: NewRunner, text: str
) -> None:
    monkeypatch.setenv("FIRETIME_SIGNING_KEYS", text)
    with pytest.raises(InvalidOption, match=r"(signing_keys=\*\*\*|'<5 bytes>': expected at least 32 bytes)"):
        new_runner()


def test_keys_beside_a_codec_are_refused(monkeypatch: pytest.MonkeyPatch, new_runner: NewRunner) -> None:
    monkeypatch.setenv("FIRETIME_SIGNING_KEYS", f"k:{base64.b64encode(OLD).decode()}")
    with pytest.raises(InvalidOption, match="expected no codec= beside it"):
        new_runner(codec=JsonCodec())


def test_an_encryption_key_is_of_one_length() -> None:
    with pytest.raises(InvalidOption, match="'<33 bytes>': expected 32 bytes"):
        Encrypted({"k": OLD + b"x"})
    Signed({"k": OLD + b"x"})


def test_a_plain_codec_pays_nothing_for_it() -> None:
    guarded, message = Guarded(JsonCodec()), JsonCodec().decode(b'["pay",[[1],{}]]')
    assert isinstance(message, Message)
    assert guarded.encode(message, "q", "a") == JsonCodec().encode(message)
    assert guarded.wrap(b"1", "result", "q", "a") == b"1"
