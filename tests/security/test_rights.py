"""Each role can do its work under its rights, needs every one of them, and can do nothing of another role."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from firetime import BrokerRefused, TaskRunner
from firetime.store.address import Address
from firetime.store.connect import Server
from firetime.store.rights import ROLES, Rights, rights_of, rules
from tests.edges.driver import Driver
from tests.kit.clients import raw_client
from tests.kit.servers import ServerProcess
from tests.security.exercises import EXERCISES, Stage, perform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.conftest import StartServer

REFUSED = r"(?i)NOPERM|permission|can't (run this command|access)|ACL"

KINDS = {"valkey9": True, "redis82": True, "redis70": True, "redis62": False}
"""Which tell reading from writing for each key."""


@pytest.fixture(scope="module", params=list(KINDS))
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose log of refusals is long enough."""
    config = {"acllog-max-len": "1000"}
    with ServerProcess(request.param, tmp_path_factory.mktemp("guarded"), config=config) as started:
        yield started


@pytest.fixture
async def admin(guarded: ServerProcess) -> AsyncIterator[Any]:
    async with raw_client(guarded.url) as raw:
        yield raw
        await raw.flushall()


async def let_in(raw: Any, kind: str, user: str, rights: Rights, queue: str = "*") -> None:
    said = rules(rights, prefix="firetime", queue=queue, per_key=KINDS[kind])
    await raw.execute_command("ACL", "SETUSER", user, "reset", "on", ">pass", *said)


@asynccontextmanager
async def staged(guarded: ServerProcess, raw: Any, user: str, queue: str) -> AsyncIterator[Stage]:
    url = guarded.url.replace("redis://", f"redis://{user}:pass@")
    own, other, runner = Server(Address(url)), Server(Address(guarded.url)), TaskRunner(url)
    try:
        yield Stage(Driver(own, raw, queue), Driver(other, raw, queue), runner)
    finally:
        await own.aclose()
        await other.aclose()
        await runner.aclose()


async def refused(raw: Any, user: str) -> list[str]:
    """What the server has refused to a user."""
    rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in await raw.execute_command("ACL", "LOG", 1000)]
    return [row[b"object"].decode() for row in rows if row[b"username"] == user.encode()]


@pytest.mark.parametrize("role", list(ROLES))
async def test_a_role_does_all_of_its_work_and_is_refused_nothing(
    guarded: ServerProcess, admin: Any, role: str, queue_name: str
) -> None:
    await let_in(admin, guarded.kind, role, ROLES[role])
    await admin.execute_command("ACL", "LOG", "RESET")
    async with staged(guarded, admin, role, queue_name) as stage:
        await perform(EXERCISES[role], stage)
    assert await refused(admin, role) == []


def without_one(rights: Rights, *, per_key: bool) -> dict[str, Rights]:
    """The rights with one word less, by that word; where reading is told from writing, a half of one is a word too."""
    found = {f"+{word}": msgspec.structs.replace(rights, commands=rights.commands - {word}) for word in rights.commands}
    found |= {
        f"&{word}": msgspec.structs.replace(rights, channels=rights.channels - {word}) for word in rights.channels
    }
    for name, mode in rights.keys.items():
        others = {other: mode for other, mode in rights.keys.items() if other != name}
        found[f"~{name}"] = msgspec.structs.replace(rights, keys=others)
        if mode == "rw" and per_key:
            for half in mode:
                found[f"%{mode.replace(half, '')}~{name}"] = msgspec.structs.replace(
                    rights, keys={**others, name: mode.replace(half, "")}
                )
    return found


@pytest.mark.parametrize("role", list(ROLES))
async def test_each_word_of_a_role_is_needed(guarded: ServerProcess, admin: Any, role: str, queue_name: str) -> None:
    superfluous: list[str] = []
    for number, (word, rights) in enumerate(without_one(ROLES[role], per_key=KINDS[guarded.kind]).items()):
        user = f"{role}{number}"
        await let_in(admin, guarded.kind, user, rights)

        async def is_refused(user: str = user) -> bool:
            return bool(await refused(admin, user))

        await admin.execute_command("ACL", "LOG", "RESET")
        async with staged(guarded, admin, user, f"{queue_name[-40:]}.{number}") as stage:
            await perform(EXERCISES[role], stage, stop=is_refused)
        if not await is_refused():
            superfluous.append(word)
        await admin.execute_command("ACL", "DELUSER", user)
        await admin.flushall()
    assert superfluous == [], " ".join(sorted(superfluous))


# ------------------------------------------------------------------------------------------------- what nobody may do


async def test_a_producer_cannot_claim_settle_cancel_or_read_arguments(
    guarded: ServerProcess, admin: Any, queue_name: str
) -> None:
    await let_in(admin, guarded.kind, "producer", ROLES["producer"])
    async with staged(guarded, admin, "producer", queue_name) as stage:
        await stage.own.send("a")
        await stage.admin.claim(free=0)
        before = await stage.admin.look()
        keys = stage.own.keys
        for attempt in (
            stage.own.claim(),
            stage.own.promote(),
            stage.own.lead(),
            stage.own.cancel("a"),
            stage.own.server.ask("XREADGROUP", "GROUP", "workers", "me", "STREAMS", keys.normal, ">"),
            stage.own.server.ask("XRANGE", keys.normal, "-", "+"),
            stage.own.server.ask("HGETALL", keys.tasks),
            stage.own.server.ask("GET", "another:application"),
            stage.own.server.ask("FLUSHALL"),
            stage.own.server.ask("CONFIG", "GET", "*"),
            stage.own.server.ask("KEYS", "*"),
        ):
            with pytest.raises(BrokerRefused, match=REFUSED):
                await attempt
        if KINDS[guarded.kind]:
            with pytest.raises(BrokerRefused, match=REFUSED):
                await stage.own.server.ask("SET", keys.paused, "1")
        assert (await stage.admin.look()).lanes == before.lanes


@pytest.mark.parametrize("with_script", [True, False])
async def test_a_dashboard_cannot_write(guarded: ServerProcess, admin: Any, queue_name: str, with_script: bool) -> None:
    await let_in(admin, guarded.kind, "dashboard", ROLES["dashboard"])
    async with staged(guarded, admin, "dashboard", queue_name) as stage:
        await stage.admin.send("a")
        keys, ask = stage.own.keys, stage.own.server.ask
        writes: list[tuple[Any, ...]] = [
            ("HSET", keys.tasks, "a", "x"),
            ("HDEL", keys.tasks, "a"),
            ("DEL", keys.normal),
            ("XADD", keys.normal, "*", "i", "a"),
            ("XDEL", keys.normal, "1-1"),
            ("SET", keys.paused, "1"),
            ("ZADD", keys.delayed, "1", "an"),
            ("PUBLISH", keys.ended_channel, "a"),
            ("EXPIRE", keys.tasks, "1"),
        ]
        before = await everything(admin)
        for words in writes:
            if with_script:
                source = f"return redis.call({', '.join(repr(word) for word in words)})"
                words = ("EVALSHA", await ask("SCRIPT", "LOAD", source), 1, words[1])  # noqa: PLW2901
            with pytest.raises(BrokerRefused, match=REFUSED):
                await ask(*words)
        for edge in (stage.own.send("b"), stage.own.claim(), stage.own.cancel("a"), stage.own.purge("a")):
            with pytest.raises(BrokerRefused):
                await edge
        assert await everything(admin) == before


async def everything(raw: Any) -> dict[bytes, bytes]:
    return {key: await raw.dump(key) for key in await raw.keys("*")}


async def test_a_user_of_one_queue_does_not_reach_another(guarded: ServerProcess, admin: Any, queue_name: str) -> None:
    await let_in(admin, guarded.kind, "worker", ROLES["worker"], queue="mine")
    async with staged(guarded, admin, "worker", "mine") as stage, staged(guarded, admin, "worker", "other") as other:
        await stage.own.claim()
        for attempt in (other.own.claim(), other.own.lead(), other.hear("SUBSCRIBE", other.own.keys.control_channel)):
            with pytest.raises(BrokerRefused, match=REFUSED):
                await attempt


async def test_a_right_that_is_missing_is_one_clear_error(start_server: StartServer, queue_name: str) -> None:
    server = start_server("valkey9")
    async with raw_client(server.url) as raw:
        await let_in(raw, "valkey9", "producer", ROLES["producer"])
    runner = TaskRunner(server.url.replace("redis://", "redis://producer:pass@"), dispatch_deadline=600)
    with pytest.raises(BrokerRefused, match=REFUSED):
        await runner.handle("a").cancel()
    await runner.aclose()


def test_roles_together_are_their_union() -> None:
    both = rights_of(["producer", "dashboard"])
    assert both.commands == ROLES["producer"].commands | ROLES["dashboard"].commands
    assert (both.keys["tasks"], both.keys["places"], both.keys["metrics"]) == ("rw", "rw", "r")
