"""Everything that a role does, once: as the user of that role, beside an admin who prepares what it needs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from firetime import BrokerRefused
from firetime.produce.pause import keep_paused
from firetime.produce.whereabouts import how_many_in_use
from firetime.store.keys import QueueKeys
from tests.edges.driver import FRESH, HOUR_MS, Ended, Sent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from firetime import TaskRunner
    from tests.edges.driver import Driver

    Step = Callable[["Stage"], Awaitable[object]]


class Stage:
    """One queue: as the role sees it, as an admin does, and a runner of the role."""

    def __init__(self, own: Driver, admin: Driver, runner: TaskRunner) -> None:
        self.own = own
        self.admin = admin
        self.runner = runner
        self.queue = own.keys.queue

    async def hear(self, *words: str) -> object:
        """What a subscription, or a PING over one, is answered."""
        line = self.own.server.line()
        try:
            await line.say(*words)
            return await line.listen(5)
        finally:
            await line.end()


async def perform(steps: Sequence[Step], stage: Stage, *, stop: Callable[[], Awaitable[bool]] | None = None) -> None:
    """All steps; with ``stop`` whatever fails in one is no matter to the next, until it says that it is enough."""
    for step in steps:
        if stop is None:
            await step(stage)
            continue
        # whatever comes of a right that is missing: what counts is that the server has refused something
        with suppress(Exception):
            await asyncio.wait_for(step(stage), 10)
        if await stop():
            return


# ------------------------------------------------------------------------------------------------------------- producer


async def send(s: Stage) -> None:
    await s.own.dispatch(Sent(id="a"), Sent(id="b", in_us=HOUR_MS * 1000), Sent(id="c", explicit=True), max_length=100)
    await s.own.dispatch(Sent(id="d", key="k", hold_ms=1, in_us=HOUR_MS * 1000))
    await s.own.dispatch(Sent(id="e", key="k", hold_ms=1, on_conflict="replace", in_us=HOUR_MS * 2000))
    await s.own.dispatch(Sent(id="f", key="soon", hold_ms=1))
    await asyncio.sleep(0.01)
    await s.own.dispatch(Sent(id="g", key="soon", hold_ms=1))
    # as after a reply that got lost
    await s.own.dispatch(Sent(id="h"), client="again", number=1)
    await s.own.dispatch(Sent(id="h"), client="again", number=1)


async def send_groups(s: Stage) -> None:
    await s.own.group(Sent(id="m", explicit=True), ends=False)
    await s.own.group(Sent(id="n", in_us=HOUR_MS * 1000), begins=False, max_length=100)
    await s.own.group(group="of nobody")
    assert await s.own.server.ask("HLEN", s.own.keys.group("g")) == 3
    await s.own.server.ask("DEL", s.own.keys.group("g"))


async def ask(s: Stage) -> None:
    handle = s.runner.handle("b", queue=s.queue)
    assert await handle.status() == "delayed"
    assert await s.runner.handle("a", queue=s.queue).status() == "ready"
    await s.admin.raw.set(s.own.keys.ended("z"), "done value 1", px=60_000)
    await s.admin.raw.set(s.own.keys.result("z"), "7", px=60_000)
    assert await s.runner.handle("z", queue=s.queue).result(timeout=10) == 7
    await s.hear("SUBSCRIBE", s.own.keys.ended_channel)
    assert await s.own.server.ask("PING")


async def enter(s: Stage) -> None:
    """As whoever connects for the first time, to a server that has lost its scripts."""
    await s.admin.raw.script_flush()
    await s.own.server.now_us()
    for words in (("CLUSTER", "SLOTS"), ("ASKING",)):
        with suppress(BrokerRefused):  # this server is no cluster
            await s.own.server.ask(*words)


async def wait_for_replicas(s: Stage) -> None:
    """As with min_replicas; this server has none."""
    await s.own.server.ask("WAIT", 0, 1)


async def find_shards(s: Stage) -> None:
    """As of a queue that had more of them: one that is empty by now."""
    former = QueueKeys("firetime", f"{s.queue}:1")
    await s.admin.raw.xadd(former.normal, {"i": "a"})
    await s.admin.raw.xtrim(former.normal, maxlen=0)
    assert await how_many_in_use(s.own.server, [former]) == 1


PRODUCER: list[Step] = [enter, send, send_groups, wait_for_replicas, ask]

# --------------------------------------------------------------------------------------------------------------- worker


async def begin(s: Stage) -> None:
    await s.own.alive()
    await s.own.lead()
    await s.own.lead()


async def claim_and_complete(s: Stage) -> None:
    assert (await s.own.claim()).note == "remade"
    await s.admin.send("a", "b", "c")
    await s.admin.dispatch(Sent(id="u", key="k"))
    await s.admin.raw.hset(s.own.keys.cancelling, "nobody", "1")
    await s.admin.raw.hset(s.own.keys.state, "nobody", "0 1 {}")
    taken = {one.id: one for one in (await s.own.claim(sweep=True)).given}
    await s.own.complete(taken["a"], metrics=[("task_count", 1)])
    ended = Ended(held=taken["u"], key="k", remember_ms=HOUR_MS, result_ms=HOUR_MS, value=b"1", history=True)
    await s.own.complete(others=[ended])
    await s.own.renew(taken["b"], unique=[("k", "b", 1)])
    await s.own.release(taken["b"], started=True)
    await s.own.complete(taken["c"])
    await s.admin.group(Sent(id="m"))
    taken = {one.id: one for one in (await s.own.claim()).given}
    await s.own.complete(others=[Ended(held=taken["m"], group="g")])


async def fail_and_bury(s: Stage) -> None:
    await s.admin.dispatch(Sent(id="r", key="again", hold_ms=HOUR_MS), Sent(id="x", key="last", hold_ms=HOUR_MS))
    taken = {one.id: one for one in (await s.own.claim()).given}
    await s.own.renew(taken["r"], unique=[("again", "r", HOUR_MS)])
    await s.own.retry(taken["r"], delay_us=HOUR_MS * 1000, key="again", hold_ms=HOUR_MS)
    await s.own.bury(taken["x"], key="last", state=FRESH)
    await s.admin.send("s")
    await s.own.retry(await s.own.take("s"))
    again = (await s.own.claim()).given[0]
    await s.admin.cancel("s")
    await s.own.retry(again)


async def rescue(s: Stage) -> None:
    await s.admin.send("lost", "deleted")
    await s.admin.raw.xadd(s.own.keys.normal, {"foreign": "entry"})
    taken = {one.id: one for one in (await s.own.claim("gone")).given}
    await s.admin.raw.xdel(s.own.keys.normal, taken["deleted"].entry)
    await s.admin.raw.set(s.own.keys.swept, "somebody")
    await s.admin.raw.delete(s.own.keys.swept)
    await s.own.claim("me", sweep=True, lease_ms=0, sweep_ms=1)
    await s.own.renew(unknown_ms=0)


async def promote(s: Stage) -> None:
    await s.admin.dispatch(Sent(id="p", in_us=1), Sent(id="q", in_us=HOUR_MS * 1000))
    await asyncio.sleep(0.01)
    assert (await s.own.promote()).moved >= 1


async def tick(s: Stage) -> None:
    slot = await s.own.now_ms() - 10
    await s.own.put("nightly", next_ms=slot)
    await s.own.put("nightly", next_ms=slot)
    await s.own.slots()
    run = Sent(id="nightly@1")
    assert await s.own.tick("nightly", run, slot_ms=slot, next_ms=slot + 1, overlap="skip", key="n", hold_ms=1) == (
        "ticked",
        1,
    )
    await s.own.tick("nightly", Sent(id="nightly@2"), slot_ms=slot + 1, next_ms=slot + 2, key="n", hold_ms=1)
    await s.own.tick("nightly", Sent(id="nightly@3"), slot_ms=slot + 2, overlap="skip", next_ms=slot + HOUR_MS)


async def listen(s: Stage) -> None:
    await s.hear("SUBSCRIBE", s.own.keys.control_channel)
    await s.own.server.ask("PING")
    await s.own.server.ask("BLPOP", s.own.keys.bell, 1)
    await s.own.server.ask("XREAD", "BLOCK", 1, "STREAMS", s.own.keys.wake, s.own.keys.schedules_wake, "0", "0")
    await s.own.server.ask("XLEN", s.own.keys.normal)
    await s.own.server.ask("HGET", s.own.keys.schedules, "nightly")


async def close_new_shards(s: Stage) -> None:
    """Of a queue that is paused."""
    shard = QueueKeys("firetime", f"{s.queue}:0")
    await s.admin.raw.set(s.own.keys.paused, "1")
    await keep_paused(s.own.server, [s.own.keys, shard])
    assert await s.admin.raw.exists(shard.paused)
    await s.admin.raw.delete(s.own.keys.paused, shard.paused)


async def go(s: Stage) -> None:
    await s.own.prune()
    await s.own.leave("gone")
    await s.own.leave()


WORKER: list[Step] = [
    enter,
    find_shards,
    close_new_shards,
    begin,
    claim_and_complete,
    fail_and_bury,
    rescue,
    promote,
    tick,
    listen,
    go,
]

# ------------------------------------------------------------------------------------------------- dashboard, operator


async def prepare(s: Stage) -> None:
    await s.admin.send("ready", "running")
    await s.admin.dispatch(Sent(id="later", in_us=HOUR_MS * 1000, key="later", hold_ms=HOUR_MS))
    await s.admin.claim(free=1)
    await s.admin.alive()
    await s.admin.lead()
    await s.admin.put("nightly", next_ms=await s.admin.now_ms() + HOUR_MS)
    await s.admin.send("bad")
    bad = [one for one in (await s.admin.claim("other")).given if one.id == "bad"]
    await s.admin.bury(*bad, consumer="other")
    await s.admin.send("ready2")
    await s.admin.raw.set(s.own.keys.ended("z"), "done value 1", px=60_000)
    await s.admin.raw.set(s.own.keys.result("z"), "7", px=60_000)


async def look(s: Stage) -> None:
    await s.runner.overview.server()
    assert s.queue in await s.runner.overview.queues()
    stats = await s.runner.stats(s.queue)
    assert (stats.dead, stats.delayed) == (1, 1)
    await s.runner.overview.workers(s.queue)
    await s.runner.overview.delayed(s.queue)
    await s.runner.overview.in_lanes(s.queue)
    for task_id in ("ready2", "later", "bad", "z", "nobody"):
        await s.runner.handle(task_id, queue=s.queue).look()
    assert (await s.runner.dead(s.queue).show("bad")).id == "bad"
    assert len(await s.runner.dead(s.queue).page()) == 1
    assert len(await s.runner.schedules.list(queue=s.queue)) == 1


async def operate(s: Stage) -> None:
    await s.runner.pause(s.queue)
    await s.runner.resume(s.queue)
    later = s.runner.handle("later", queue=s.queue)
    await later.reschedule(7200)
    await s.own.reschedule("later", at_ms=await s.admin.now_ms() + HOUR_MS, key="later", hold_ms=HOUR_MS)
    await s.own.reschedule("ready2", in_us=5)
    await s.own.reschedule("nobody", in_us=5)
    await s.own.cancel("running")
    await s.own.cancel("ready2")
    await s.own.cancel("z")
    await s.own.cancel("later", key="later")
    await s.own.server.ask("DEL", s.own.keys.group("g"))
    await s.admin.dispatch(Sent(id="now", in_us=HOUR_MS * 1000))
    await s.admin.raw.delete(s.own.keys.bell)
    await s.runner.handle("now", queue=s.queue).run_now()
    await s.runner.handle("now", queue=s.queue).cancel()


async def mend(s: Stage) -> None:
    await s.own.replay("bad", key="again", hold_ms=1)
    await s.own.replay("bad", key="again", hold_ms=1)
    await asyncio.sleep(0.01)
    await s.admin.send("worse")
    worse = [one for one in (await s.admin.claim("other")).given if one.id == "worse"]
    await s.admin.bury(*worse, consumer="other")
    await s.own.replay("worse", key="again", hold_ms=1, number=1000)
    await s.own.replay("worse", key="again", hold_ms=1, number=1000)
    letters = s.runner.dead(s.queue)
    await letters.count()
    await letters.page()
    await letters.purge("worse")


async def keep_schedules(s: Stage) -> None:
    now_ms = await s.admin.now_ms()
    await s.own.put("hourly", next_ms=now_ms + HOUR_MS)
    await s.own.put("hourly", next_ms=now_ms + HOUR_MS)
    await s.own.pause_schedule("hourly", on=True)
    await s.own.pause_schedule("hourly", on=False, next_ms=now_ms + HOUR_MS)
    named = s.runner.named("any", queue=s.queue)
    await named.dispatch_delayed(3600)
    with suppress(Exception):  # the admin's definition is none that can be read
        await s.runner.schedules.trigger("hourly", queue=s.queue)
    await s.own.server.ask("HGET", s.own.keys.schedules, "hourly")
    await s.own.remove_schedule("hourly")


EXERCISES: dict[str, list[Step]] = {
    "producer": PRODUCER,
    "worker": WORKER,
    "dashboard": [enter, find_shards, prepare, look],
    "operator": [enter, find_shards, prepare, operate, mend, wait_for_replicas, keep_schedules],
}
