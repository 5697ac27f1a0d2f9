"""F30: a group of ten, results off; a member does its work twice, for its worker vanished: the callback runs once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from firetime import TaskRunner
    from tests.faults.crew import Crew
    from tests.kit.proxy import FaultProxy
    from tests.story.stage import LookAt

pytestmark = pytest.mark.usefixtures("server")

SHORT: dict[str, Any] = {"lease": 1.0, "sweep": 0.2, "leader_lease": 0.6}


async def all_is_over(look_at: LookAt) -> None:
    async def over() -> bool:
        left = await look_at()
        return not left.tasks and not left.pending

    await until(over, timeout=20)
    assert [key for key in (await look_at()).keys if key.startswith("group:")] == []


@pytest.mark.parametrize("how", ["SIGSTOP", "SIGKILL"])
async def test_the_callback_runs_once(crew: Crew, runner: TaskRunner, look_at: LookAt, how: str) -> None:
    members = [runner.named("vanish").message("twice", how)]
    members += [runner.named("note").message(str(number)) for number in range(9)]
    group = await runner.group(members, then=runner.named("note").message("sums"))
    first = crew.start(**SHORT)
    await crew.until("ended", "twice")
    crew.start(**SHORT)
    await crew.until("ran", "sums")
    if how == "SIGSTOP":  # it goes on just before its settlement, of which nobody is in need any more
        first.thaw()
        await until(lambda: crew.lines("refused", "vanish") or crew.lines("lost", "vanish"), timeout=20)
    await all_is_over(look_at)
    assert [line.crashes for line in crew.lines("ended", "twice")] == [0, 1]
    assert {line.tag for line in crew.lines("ran")} == {*map(str, range(9)), "sums"}
    assert len(crew.lines("ran", "sums")) == 1
    assert await group.pending() is None


async def test_it_does_when_all_ten_run_twice_at_the_same_time(crew: Crew, runner: TaskRunner, look_at: LookAt) -> None:
    members = [runner.named("hold").message(str(number)) for number in range(10)]
    await runner.group(members, then=runner.named("note").message("sums"))
    first = crew.start(**SHORT)
    await crew.until("started", times=10)
    first.freeze()
    crew.start(**SHORT)
    await crew.until("started", times=20)
    first.thaw()
    for number in range(10):
        crew.let_go(str(number))
    await crew.until("ran", "sums")
    await all_is_over(look_at)
    assert len(crew.lines("ran", "sums")) == 1


async def test_it_does_when_the_reply_to_the_last_settlement_is_lost(
    start_proxy: Callable[[str], FaultProxy], crew: Crew, runner: TaskRunner, look_at: LookAt
) -> None:
    proxy = start_proxy(crew.url)
    members = [runner.named("hold").message(str(number)) for number in range(10)]
    await runner.group(members, then=runner.named("note").message("sums"))
    crew.start(proxy.url, **SHORT)
    await crew.until("started", times=10)
    for number in range(9):
        crew.let_go(str(number))
    await crew.until("ended", times=9)

    async def one_is_left() -> bool:
        return len((await look_at()).tasks) == 1

    await until(one_is_left)
    proxy.swallow_replies(3, only="EVALSHA")
    crew.let_go("9")
    await crew.until("ran", "sums")
    await all_is_over(look_at)
    assert len(crew.lines("ran", "sums")) == 1
