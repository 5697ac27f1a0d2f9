"""A server that was emptied: what was there is gone, nobody is stopped by that, and what is sent then is not missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.edges.driver import HOUR_MS, ME, OTHER, Ended, Sent

if TYPE_CHECKING:
    from tests.edges.driver import Driver


@pytest.mark.parametrize("scripts", ["kept", "flushed"])
async def test_what_is_sent_after_a_flush_is_claimed_and_the_groups_are_remade(own: Driver, scripts: str) -> None:
    await own.send("lost")
    await own.take("lost")
    await own.raw.flushall()
    if scripts == "flushed":
        await own.raw.script_flush()
    await own.send("n")
    await own.send("h", letter="h")
    claimed = await own.claim()
    assert (claimed.note, claimed.ids) == ("remade", ["h", "n"])
    assert (await own.claim()).note == ""


async def test_a_sweep_is_the_first_to_come_and_misses_nothing(own: Driver) -> None:
    await own.claim()
    await own.raw.flushall()
    await own.send("a")
    claimed = await own.claim(OTHER, sweep=True, lease_ms=0)
    assert (claimed.note, claimed.ids) == ("remade", ["a"])


async def test_what_ran_at_the_flush_is_refused_and_leaves_nothing(own: Driver) -> None:
    await own.send("a")
    held = await own.take("a")
    await own.raw.flushall()
    empty = await own.look()
    assert (await own.renew(held, unique=[("key", "a", 5)])).lost == {held.place}
    assert await own.complete(held, others=[Ended(held=held, remember_ms=HOUR_MS)]) == (["a", "a"], [])
    assert await own.retry(held, delay_us=1_000) == (["a"], [])
    assert await own.bury(held) == ["a"]
    assert await own.release(held) == ["a"]
    assert await own.cancel("a") == "not found"
    assert (await own.promote()).moved == 0
    assert (await own.status("a")).status == "unknown"
    assert await own.look() == empty


async def test_a_call_that_is_repeated_after_a_flush_is_done_again(own: Driver) -> None:
    await own.dispatch(Sent(id="a"), number=7)
    await own.raw.flushall()
    assert await own.dispatch(Sent(id="a"), number=7) == []
    assert (await own.claim(ME)).ids == ["a"]
