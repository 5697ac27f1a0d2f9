"""What cannot be meant is refused where it is said: the error names it, says what was expected, and nothing is sent."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from firetime import (
    BrokerRefused,
    BrokerUnavailable,
    DuplicateTask,
    Exponential,
    FiretimeError,
    InvalidOption,
    InvalidTaskPayload,
    JsonCodec,
    Linear,
    TaskRunner,
)
from firetime.store.request import check_version
from firetime.values.message import Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from redis.asyncio import Redis

    from tests.conftest import StartServer
    from tests.story.stage import NewRunner

LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.fixture
def task(runner: TaskRunner) -> Any:
    @runner.task
    async def pay(invoice: Any, to: str = "Ada", *, urgent: bool = False) -> None: ...

    return pay


# ---------------------------------------------------------------------------------------------------- arguments

ARGUMENTS = [
    ("an object", (object(),), {}, "argument 1 (object) cannot be encoded"),
    ("a function", (len,), {}, "argument 1 (builtin_function_or_method)"),
    ("by name", (1,), {"to": socket.socket}, "argument 'to' (type)"),
    ("inside", ([{"a": {1j}}],), {}, "argument 1 (list)"),
    ("itself", (LOOP,), {}, "argument 1 (list)"),
    ("very deep", (DEEP,), {}, "argument 1 (list)"),
    ("half a character", ("\ud800",), {}, "argument 1 (str)"),
    ("no number", (float("nan"),), {}, "argument 1 (float) cannot be encoded: JSON has no NaN and no infinity"),
    ("infinity inside", ([1, {"a": (float("inf"),)}],), {}, "argument 1 (list) cannot be encoded: JSON has no NaN"),
    ("a missing one", (), {}, "missing a required argument: 'invoice'; its signature is pay(invoice: 'Any'"),
    ("too many", (1, "a", 3), {}, "too many positional arguments"),
    ("an unknown one", (1,), {"urgnet": True}, "got an unexpected keyword argument 'urgnet'"),
    ("twice", (1,), {"invoice": 2}, "multiple values for argument 'invoice'"),
    ("another type", (1, 2), {}, "argument 'to': Expected `str`, got `int`"),
    ("another type by name", (1,), {"urgent": "yes"}, "argument 'urgent': Expected `bool`, got `str`"),
]


@pytest.mark.parametrize(
    ("args", "kwargs", "said"), [case[1:] for case in ARGUMENTS], ids=[case[0] for case in ARGUMENTS]
)
async def test_arguments_that_do_not_fit_are_refused_at_dispatch(
    task: Any, raw: Redis, args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    for send in (task.dispatch, task.message, lambda *a, **k: task.dispatch_delayed(5, *a, **k)):
        with pytest.raises(InvalidTaskPayload) as refused:
            await maybe_awaited(send, args, kwargs)
        assert said in str(refused.value)
        assert refused.value.task == "pay"
    assert await raw.keys("*") == []


async def maybe_awaited(send: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    answer = send(*args, **kwargs)
    if asyncio.iscoroutine(answer):
        await answer


# -------------------------------------------------------------------------------------------------- times and options

NAIVE = datetime(2027, 1, 1)  # noqa: DTZ001  # that is the point
OPTIONS = [
    ("delay", -1, "delay=-1: expected seconds (or a timedelta) of at least 0"),
    ("delay", -0.001, "delay=-0.001"),
    ("delay", float("nan"), "delay=nan"),
    ("delay", float("inf"), "delay=inf"),
    ("delay", timedelta(seconds=-1), "delay=datetime.timedelta"),
    ("delay", timedelta.max, "at most 200 years"),
    ("delay", 200 * 365.25 * 86400, "a delay that ends before 2200"),
    ("delay", 10**400, "delay=1000"),
    ("delay", True, "delay=True"),
    ("delay", "5", "delay='5'"),
    ("at", NAIVE, "expected an aware datetime"),
    ("at", datetime(2200, 1, 1, 0, 0, 1, tzinfo=UTC), "expected an instant before 2200"),
    ("at", datetime(9999, 12, 31, tzinfo=UTC), "expected an instant before 2200"),
    ("at", 1_700_000_000, "expected an aware datetime"),
    ("queue", "", "queue='': expected 1 to 100 of the characters"),
    ("queue", "a b", "queue='a b'"),
    ("queue", "{a}", "queue='{a}'"),
    ("queue", "x" * 101, "queue='xxx"),
    ("queue", "é", "queue='é'"),
    ("queue", 7, "queue=7"),
    ("priority", "urgent", "priority='urgent': expected one of 'high', 'normal', 'low'"),
    ("priority", ["high"], "expected one of 'high', 'normal', 'low'"),
    ("task_id", "a b", "task_id='a b'"),
    ("task_id", "a\n", "task_id='a\\n'"),
    ("max_retry", -1, "max_retry=-1: expected a whole number of at least 0"),
    ("max_retry", 1.5, "max_retry=1.5"),
    ("timeout", 0, "expected more than 0 seconds"),
    ("timeout", float("nan"), "timeout=nan"),
    ("timeout", 1e300, "timeout=1e+300"),
    ("result_ttl", -1, "result_ttl=-1"),
    ("result_ttl", 1e18, "result_ttl=1e+18"),
    ("unique_for", "forever", "unique_for='forever'"),
    ("unique_for", 0, "unique_for=0"),
    ("unique_for", 1e300, "unique_for=1e+300"),
    ("on_conflict", "ignore", "on_conflict='ignore': expected one of 'raise', 'return', 'replace'"),
    ("headers", {"a": 1}, "expected a dict of str to str"),
    ("headers", "a=b", "expected a dict of str to str"),
    ("headers", {"a": "\ud800"}, "headers="),
    ("unique_key", "\ud800", "unique_key="),
]


@pytest.mark.parametrize(
    ("option", "value", "said"), OPTIONS, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(OPTIONS)]
)
async def test_an_option_that_cannot_be_meant_is_refused_by_its_name(
    task: Any, raw: Redis, option: str, value: object, said: str
) -> None:
    extra = {"unique_for": 5} if option == "unique_key" else {}
    with pytest.raises(InvalidOption) as refused:
        await task.options(**{option: value, **extra}).dispatch(1)
    assert said in str(refused.value)
    assert refused.value.name == option
    assert isinstance(refused.value, ValueError)
    assert await raw.keys("*") == []


@pytest.mark.parametrize(
    "delay", [-1, float("nan"), timedelta(days=400_000), "5"], ids=["negative", "nan", "far", "text"]
)
async def test_a_delay_that_cannot_be_meant_is_refused(task: Any, raw: Redis, delay: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^delay="):
        await task.dispatch_delayed(delay, 1)
    assert await raw.keys("*") == []


@pytest.mark.parametrize("when", [NAIVE, datetime(2201, 1, 1, tzinfo=UTC), "2027-01-01"], ids=["naive", "far", "text"])
async def test_an_instant_that_cannot_be_meant_is_refused(task: Any, raw: Redis, when: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^when="):
        await task.schedule_for(when, 1)
    assert await raw.keys("*") == []


async def test_a_delay_and_an_instant_exclude_each_other(task: Any) -> None:
    with pytest.raises(InvalidOption, match="either delay= or at=, not both"):
        task.options(delay=1, at=datetime(2027, 1, 1, tzinfo=UTC))


async def test_a_message_that_is_too_large_is_refused(new_runner: NewRunner, raw: Redis) -> None:
    runner = new_runner(max_payload=1000)

    @runner.task
    async def see(text: str) -> None: ...

    with pytest.raises(InvalidTaskPayload, match=r"its message has 10\d\d bytes, more than max_payload=1000"):
        await see.dispatch("x" * 1000)
    assert await raw.keys("*") == []
    await see.dispatch("x" * 900)


class Broken(JsonCodec):
    """A codec with a defect of its own."""

    def encode(self, message: Message) -> bytes:
        if message.headers:
            return super().encode(message).decode()  # type: ignore[return-value]
        raise LookupError("no key to sign with")


async def test_a_codec_that_fails_is_to_blame_and_nothing_is_sent(new_runner: NewRunner, raw: Redis) -> None:
    runner = new_runner(codec=Broken())

    @runner.task
    async def see() -> None: ...

    with pytest.raises(InvalidTaskPayload, match=r"task 'see': its message cannot be encoded: LookupError\('no key"):
        await see.dispatch()
    with pytest.raises(InvalidTaskPayload, match="the codec gave str, not bytes"):
        await see.options(headers={"a": "b"}).dispatch()
    assert await raw.keys("*") == []


# -------------------------------------------------------------------------------------------------------- registering


def named(name: str) -> Callable[[], None]:
    def function() -> None: ...

    function.__name__ = name
    return function


TASK_OPTIONS = [
    ("retries", 3, "retries=3: expected one of the options"),
    ("max_retry", "3", "max_retry='3'"),
    ("max_crashes", -1, "max_crashes=-1"),
    ("backoff", -1, "backoff=-1: expected a policy such as Exponential(1), seconds, or a function"),
    ("backoff", "fast", "backoff='fast'"),
    ("backoff", float("nan"), "backoff=nan"),
    ("retry_on", ValueError("x"), "expected an exception type, or a tuple of them"),
    ("no_retry_on", [ValueError, 5], "expected an exception type, or a tuple of them"),
    ("unique_key", "mine", "expected a function of the task's arguments"),
    ("delete_on_ack", 1, "delete_on_ack=1: expected True or False"),
    ("name", "a b", "name='a b'"),
    ("queue", "a b", "queue='a b'"),
]


@pytest.mark.parametrize(
    ("option", "value", "said"), TASK_OPTIONS, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(TASK_OPTIONS)]
)
def test_an_option_of_a_task_that_cannot_be_meant_is_refused_by_its_name(option: str, value: object, said: str) -> None:
    runner = TaskRunner("redis://nowhere.invalid")
    extra = {"unique_for": 5} if option == "unique_key" else {}
    with pytest.raises(InvalidOption) as refused:
        runner.task(**{option: value, **extra})(named("pay"))  # type: ignore[call-overload]
    assert said in str(refused.value)
    assert runner.tasks == {}


def test_two_tasks_of_one_name_are_refused() -> None:
    runner = TaskRunner("redis://nowhere.invalid")
    runner.task(named("pay"))
    with pytest.raises(DuplicateTask, match="a task named 'pay' is registered already") as refused:
        runner.task(named("pay"))
    assert refused.value.name == "pay"


def test_a_lambda_is_refused() -> None:
    runner = TaskRunner("redis://nowhere.invalid")
    with pytest.raises(InvalidOption, match="expected a named function"):
        runner.task(lambda: None)
    runner.task(name="nothing")(lambda: None)


def test_what_cannot_be_called_is_refused() -> None:
    runner = TaskRunner("redis://nowhere.invalid")
    with pytest.raises(InvalidOption, match="expected a named function"):
        runner.task("pay")  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["a b", "", "x" * 101], ids=["space", "empty", "long"])
async def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="task='"):
        await TaskRunner("redis://nowhere.invalid").dispatch(name)


@pytest.mark.parametrize(
    "make",
    [lambda: Exponential(-1), lambda: Exponential(1, cap=float("nan")), lambda: Linear("1")],  # type: ignore[arg-type]
    ids=["base", "cap", "step"],
)
def test_a_backoff_that_cannot_be_meant_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidOption):
        make()


# --------------------------------------------------------------------------------------------------- settings and URL

SETTINGS = [
    ("lease", 0, "lease=0: expected seconds (or a timedelta) of at least 0.2"),
    ("lease", "15 s", "lease='15 s': expected a number"),
    ("concurrency", 0, "concurrency=0: expected a whole number of at least 1"),
    ("heartbeat", 14, "at most half of the lease"),
    ("prefix", "a b", "prefix='a b'"),
    ("queues", "", "queue='': expected 1 to 100"),
    ("queues", (), "at least one queue"),
    ("queues", 5, "queues=5"),
    ("max_payload", 0, "max_payload=0"),
    ("leese", 5, "leese=5: expected one of the settings"),
    ("dispatch_deadline", float("inf"), "dispatch_deadline=inf"),
]


@pytest.mark.parametrize(
    ("setting", "value", "said"), SETTINGS, ids=[f"{name}-{n}" for n, (name, *_) in enumerate(SETTINGS)]
)
def test_a_setting_that_cannot_be_meant_is_refused_by_its_name(setting: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        TaskRunner("redis://nowhere.invalid", **{setting: value})
    assert said in str(refused.value)


def test_a_setting_in_the_environment_is_refused_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRETIME_LEASE", "soon")
    with pytest.raises(InvalidOption, match="FIRETIME_LEASE='soon': expected a number"):
        TaskRunner("redis://nowhere.invalid")


URLS = [
    ("http://localhost", "url='http://localhost': expected redis://"),
    ("localhost:6379", "expected redis://"),
    ("", "expected redis://"),
    ("redis://", "expected redis://"),
    ("redis://localhost:99999", "expected redis://"),
    ("redis://localhost:port", "expected redis://"),
    ("redis://localhost/first", "expected a database number, not 'first'"),
    ("redis+cluster://localhost/1", "no database but 0"),
    ("unix://", "expected redis://"),
    (6379, "url=6379: expected redis://"),
    ("http://:secret@localhost", "expected redis://"),
    ("redis://:secret@localhost:port", "expected redis://"),
]


@pytest.mark.parametrize(("url", "said"), URLS, ids=[f"url-{n}" for n, _ in enumerate(URLS)])
def test_a_url_that_cannot_be_meant_is_refused_and_its_password_not_shown(url: Any, said: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        TaskRunner(url)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


# ------------------------------------------------------------------------------------------------------------- servers


@pytest.mark.parametrize("kind", ["valkey9", "redis82", "redis70", "redis62"])
@pytest.mark.parametrize("login", ["", ":wrong@", "nobody:wrong@"], ids=["none", "password", "user"])
async def test_credentials_that_the_server_refuses_are_refused_at_once(
    start_server: StartServer, kind: str, login: str
) -> None:
    server = start_server(kind, requirepass="right")
    runner = TaskRunner(f"redis://{login}127.0.0.1:{server.port}")
    for attempt in (runner.dispatch("any"), runner.start(), runner.handle("any").status()):
        with pytest.raises(BrokerRefused, match="the server refuses these credentials or rights") as refused:
            await attempt
        assert "wrong" not in str(refused.value)
    await runner.aclose()


async def test_a_server_that_is_not_there_is_unavailable(start_server: StartServer) -> None:
    server = start_server()
    server.stop()
    runner = TaskRunner(server.url, dispatch_deadline=0.2)
    for attempt in (runner.dispatch("any"), runner.start(), runner.handle("any").status()):
        with pytest.raises(BrokerUnavailable, match=r"no connection from redis://127\.0\.0\.1:.*nothing was accepted"):
            await attempt
    await runner.aclose()


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ("6.0.16", False),
        ("5.0.7", False),
        ("2.8", False),
        ("6.2.0", True),
        ("6.2", True),
        ("7.0.15", True),
        ("10.0.1", True),
    ],
)
def test_a_server_older_than_6_2_is_refused(version: str, answer: bool) -> None:
    info = f"# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n"
    if answer:
        check_version(info)
    else:
        with pytest.raises(BrokerRefused, match=f"the server is Redis {version}; firetime needs Redis 6.2 or newer"):
            check_version(info)


@pytest.fixture
async def ancient() -> AsyncIterator[str]:
    """The URL of something that says of itself that it is Redis 6.0, and accepts everything."""
    commands = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int((await reader.readline())[1:])
                words.append((await reader.readexactly(length + 2))[:-2])
            commands.append(words[0])
            info = b"redis_version:6.0.16\r\n"
            writer.write(b"$%d\r\n%b\r\n" % (len(info), info) if words[0] == b"INFO" else b"+OK\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield f"redis://127.0.0.1:{port}"
    server.close()
    assert set(commands) <= {b"INFO", b"CLIENT"}


async def test_a_server_that_is_too_old_is_refused_each_time_and_told_nothing(ancient: str) -> None:
    runner = TaskRunner(ancient)
    for attempt in (runner.dispatch("any"), runner.dispatch("any"), runner.start(), runner.handle("any").status()):
        with pytest.raises(BrokerRefused, match=r"the server is Redis 6\.0\.16"):
            await attempt
    await runner.aclose()


async def test_every_error_is_of_one_family(task: Any) -> None:
    with pytest.raises(FiretimeError):
        await task.dispatch()
    with pytest.raises(ValueError, match="pay"):
        await task.dispatch()
