"""Many tasks, garbage among them, and a server that is away."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from firetime import BrokerUnavailable, Fixed, JsonCodec, Status, TaskRunner, current_task
from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.keys import CONSTANT_KEYS
from firetime.store.places import connect
from firetime.values.message import Message
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis

    from tests.conftest import StartServer
    from tests.kit.proxy import FaultProxy
    from tests.kit.servers import ServerProcess
    from tests.story.stage import Drain, LookAt, NewRunner


@pytest.fixture
def dice() -> random.Random:
    """What pytest-randomly has seeded: the same in a run that is repeated with the same seed."""
    return random.Random(random.getrandbits(64))


# ----------------------------------------------------------------------------------------------------------------- F21


@pytest.mark.usefixtures("server")
async def test_f21_a_thousand_cancelled_calls_never_mix_up_a_reply_or_leak_a_connection(
    url: str, raw: Redis, dice: random.Random
) -> None:
    others = (await raw.info("clients"))["connected_clients"]
    server = connect(Address(url), Shift())
    names = [f"firetime:{number}" for number in range(50)]
    for name in names:
        await raw.set(name, name)

    async def ask(name: str) -> None:
        assert await server.ask("GET", name) == name.encode()

    for _ in range(1000):
        call = asyncio.create_task(ask(dice.choice(names)))
        for _ in range(dice.randrange(12)):
            await asyncio.sleep(0)
        call.cancel()
        if dice.random() < 0.1:
            await asyncio.gather(call, return_exceptions=True)
    before = (await raw.info("clients"))["connected_clients"]
    for _ in range(20):
        await asyncio.gather(*(ask(name) for name in names))
    assert (await raw.info("clients"))["connected_clients"] <= before + len(names)
    await server.aclose()

    async def all_are_gone() -> bool:
        return bool((await raw.info("clients"))["connected_clients"] <= others)

    await until(all_are_gone)


async def test_f21_nor_do_dispatches_and_questions_that_were_cancelled(
    start_proxy: Callable[[str], FaultProxy], new_runner: NewRunner, url: str, drain: Drain, dice: random.Random
) -> None:
    proxy = start_proxy(url)
    proxy.delay(0.001)
    runner = new_runner(proxy.url)
    delayed = [await runner.named("see", delay=1000 + number, task_id=f"{number}").dispatch() for number in range(20)]
    due = [(await handle.look()).fire_ms for handle in delayed]
    calls: list[asyncio.Task[Any]] = []
    for number in range(300):
        calls.append(asyncio.create_task(dice.choice([dice.choice(delayed).look, delayed[0].status])()))
        calls.append(asyncio.create_task(runner.named("see", task_id=f"more-{number}").dispatch()))
        await asyncio.sleep(dice.random() * 0.004)
        for call in calls[-2:]:
            call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    looks = await asyncio.gather(*(handle.look() for handle in delayed))
    assert [(look.task_id, look.fire_ms) for look in looks] == [(str(n), at) for n, at in enumerate(due)]


# ----------------------------------------------------------------------------------------------------------------- F38


@pytest.mark.usefixtures("server")
async def test_f38_garbage_in_the_stream_is_parked_with_its_bytes_and_the_queue_goes_on(
    new_runner: NewRunner, raw: Redis, drain: Drain
) -> None:
    runner = new_runner()
    seen: list[int] = []
    told: list[Any] = []

    @runner.on_failed
    async def hear(letter: Any, error: BaseException) -> None:
        told.append(letter)

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    garbage: list[dict[bytes, bytes]] = [
        {b"who": b"somebody else"},
        {b"i": b""},
        {b"i": b"nobody"},
        {b"i": b"\xff\x00\xfe"},
        {b"\xff": b"\x00" * 100_000, b"": b""},
    ]
    keys = runner.desk.keys("default")
    for number, fields in enumerate(garbage):
        await see.dispatch(number)
        await raw.xadd(keys.normal, fields)  # type: ignore[arg-type]
    await drain(runner)
    assert seen == list(range(5))
    letters = await runner.dead().page()
    assert {letter.reason for letter in letters} == {"malformed"}
    parked = sorted([list(letter.fields) for letter in letters])
    assert parked == sorted([word for pair in fields.items() for word in pair] for fields in garbage)
    assert len(told) == 5
    assert await runner.dead().purge_all() == 5


async def test_f38_a_body_of_50_megabytes_too(new_runner: NewRunner, raw: Redis, drain: Drain) -> None:
    runner = new_runner()
    seen: list[int] = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    body = b"\xfe" * 50_000_000
    await see.dispatch(1)
    await raw.xadd(runner.desk.keys("default").normal, {"body": body})
    await see.dispatch(2)
    await drain(runner)
    assert seen == [1, 2]
    (letter,) = await runner.dead().page()
    assert letter.fields == [b"body", body]
    assert await runner.dead().purge_all() == 1


RECORDS = {
    "no JSON": b"\xff\xfe",
    "another shape": b'{"task": "see"}',
    "too short": b"[]",
    "a wrong type": b'["see", 5, 7]',
    "very deep": b'["see", ' + b"[" * 200_000 + b"]" * 200_000 + b"]",
    "half a character": b'["see", [["\\ud800"], {}]]',
    "nothing": b"",
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
async def test_f38_a_record_that_cannot_be_read_is_parked_with_its_bytes(
    new_runner: NewRunner, raw: Redis, drain: Drain, record: bytes
) -> None:
    runner = new_runner()
    seen: list[str] = []

    @runner.task(max_retry=0)
    async def see(text: str) -> None:
        seen.append(text)

    handle = await see.dispatch("spoilt")
    await raw.hset(runner.desk.keys("default").tasks, handle.task_id, record)
    await see.dispatch("good")
    await drain(runner)
    assert seen == ["good"]
    (letter,) = await runner.dead().page()
    assert letter.id == handle.task_id
    assert letter.raw == record or letter.reason in {"exhausted", "record lost"}
    assert await handle.status() == Status.DEAD
    await runner.dead().purge(handle.task_id)


class Strict(JsonCodec):
    """A codec that checks a signature, and is not careful."""

    def decode(self, record: bytes) -> Message:
        raise KeyError("signature")


async def test_f38_what_a_codec_of_ones_own_fails_on_is_parked_with_its_bytes(
    new_runner: NewRunner, raw: Redis, drain: Drain
) -> None:
    sender, runner = new_runner(), new_runner(codec=Strict())
    handle = await sender.dispatch("see")
    await drain(runner)
    (letter,) = await runner.dead().page()
    assert (letter.id, letter.reason, b"see" in letter.raw) == (handle.task_id, "malformed", True)
    await runner.dead().purge(handle.task_id)


@pytest.mark.usefixtures("server")
async def test_f38_garbage_in_the_delayed_set_is_parked_too(new_runner: NewRunner, raw: Redis, drain: Drain) -> None:
    runner = new_runner()
    keys = runner.desk.keys("default")
    await raw.zadd(keys.delayed, {b"nobody-n": 1, b"": 2, b"x": 3})
    await runner.start()

    async def all_are_parked() -> bool:
        return await runner.dead().count() == 3

    await until(all_are_parked)
    assert {letter.reason for letter in await runner.dead().page()} == {"record lost"}
    await runner.dead().purge_all()


# ----------------------------------------------------------------------------------------------------------------- F40


@pytest.mark.timeout(180)
async def test_f40_a_hundred_thousand_tasks_leave_a_constant_number_of_keys(
    new_runner: NewRunner, raw: Redis, look_at: LookAt
) -> None:
    many = 100_000
    runner = new_runner(concurrency=500)
    runs = 0

    @runner.task(max_retry=1, backoff=Fixed(0.01))
    async def work(number: int) -> None:
        nonlocal runs
        runs += 1
        if number % 100 == 0 or (number % 20 == 1 and current_task().failures == 0):
            raise ValueError(number)

    await runner.start()
    await runner.dispatch_many(work.message(number) for number in range(many))

    async def all_have_ended() -> bool:
        left = await runner.stats()
        return (left.ready, left.running, left.delayed, left.dead) == (0, 0, 0, many // 100)

    await until(all_have_ended, timeout=120)
    assert runs == many + many // 100 + many // 20
    assert await runner.dead().purge_all() == many // 100
    left = await look_at()
    assert (left.tasks, left.state, left.places, left.delayed, left.unique) == ({}, {}, {}, {}, {})
    assert (left.lanes, left.pending) == ({"h": {}, "n": {}, "l": {}}, {})
    documented = {"lane:h", "lane:n", "lane:l", "wake", "bell", "metrics", "leader", "leader:epoch"}
    documented |= {"workers", "workers_seen", "swept"}
    others = left.keys - documented
    assert [key.split(":")[0] for key in others] == ["call"]
    assert await raw.dbsize() == len(left.keys) <= CONSTANT_KEYS == len(documented) + 1
    await runner.stop()
    assert (await look_at()).keys <= documented | others


# ----------------------------------------------------------------------------------------------------------------- F42


@pytest.mark.usefixtures("server")
async def test_f42_behind_a_flood_of_high_ones_ten_low_ones_get_their_share_and_a_retry_keeps_its_place(
    new_runner: NewRunner, drain: Drain
) -> None:
    runner = new_runner(concurrency=1)
    seen: list[str] = []

    @runner.task(backoff=Fixed(0))
    async def work(what: str) -> None:
        seen.append(what)
        if what == "flaky" and current_task().failures == 0:
            raise ValueError

    await work.options(priority="high").dispatch("flaky")
    await runner.dispatch_many(work.options(priority="low").message("low") for _ in range(10))
    await runner.dispatch_many(work.options(priority="high").message("high") for _ in range(300))
    await drain(runner)
    assert len(seen) == 312
    last_low = max(at for at, what in enumerate(seen) if what == "low")
    assert last_low < 10 * 10 + 10  # one in ten, as documented
    # the retry stands at the end of the high lane: behind what was sent meanwhile, before the rest of the low ones
    assert seen[-1] == "flaky"
    assert seen[0] == "flaky"


# ----------------------------------------------------------------------------------------------------------------- F44


async def test_f44_with_the_server_down_views_and_handlers_get_an_error_in_time_and_nothing_is_sent_later(
    start_server: StartServer,
) -> None:
    server: ServerProcess = start_server()
    runner = TaskRunner(server.url, dispatch_deadline=1)
    seen: list[str] = []

    @runner.task
    async def see(what: str) -> None:
        seen.append(what)

    await see.dispatch("before")
    await asyncio.to_thread(see.dispatch_sync, "before")
    await asyncio.to_thread(server.stop)
    longest_s, last = 0.0, time.perf_counter()

    async def tick() -> None:
        nonlocal longest_s, last
        while True:
            await asyncio.sleep(0.005)
            longest_s, last = max(longest_s, time.perf_counter() - last), time.perf_counter()

    async def handler() -> str:
        try:
            await see.dispatch("from a handler")
        except BrokerUnavailable as error:
            return f"503 {error.maybe_accepted}"
        return "200"

    def view() -> str:
        try:
            see.dispatch_sync("from a view")
        except BrokerUnavailable as error:
            return f"503 {error.maybe_accepted}"
        return "200"

    ticking = asyncio.create_task(tick())
    began = time.perf_counter()
    answers = await asyncio.gather(handler(), asyncio.to_thread(view), handler(), asyncio.to_thread(view))
    took_s = time.perf_counter() - began
    ticking.cancel()
    assert list(answers) == ["503 False"] * 4
    assert took_s < 1.6
    assert longest_s < 0.5
    await asyncio.to_thread(server.start)
    await see.dispatch("after")
    await runner.start()
    assert runner.worker is not None
    await runner.worker.until_idle()
    assert seen == ["after"]
    await runner.aclose()
    await asyncio.to_thread(runner.close)
