"""The faults of a schedule happen, each at its time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from redis.exceptions import RedisError

from chaos import clock
from chaos.clock import true_us
from chaos.crew import Place
from chaos.diary import ALL
from chaos.faults import Fault
from chaos.load import Order
from chaos.plan import QUEUES
from chaos.sender import Sender
from chaos.stage import Stage
from tests.kit.proxy import FaultProxy

_REST_S = 1.0
"""So long the server is left in peace after it was struck."""

_FAULT_TASKS = 9_000_000_000
"""The orders of the tasks that are faults are numbered from here on."""

_SPARE_BYTES = 65_536


class Striker:
    """Makes faults happen on a stage."""

    def __init__(self, stage: Stage, sender: Sender) -> None:
        self._stage = stage
        self._sender = sender
        self._server_struck = asyncio.Lock()
        self._task_number = _FAULT_TASKS
        self._ways: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "worker killed": self._kill_worker,
            "worker asked to stop": self._stop_worker,
            "worker frozen": self._freeze_worker,
            "leader killed": self._kill_leader,
            "leader frozen": self._freeze_leader,
            "worker's clock moved": self._move_clock,
            "worker killed by its task": self._send_killer,
            "event loop blocked by a task": self._send_blocker,
            "producer killed": self._kill_producer,
            "producer frozen": self._freeze_producer,
            "connections cut": self._cut,
            "replies lost": self._lose_replies,
            "connections black-holed": self._black_hole,
            "connections refused": self._refuse,
            "connections slowed": self._slow_down,
            "server restarted": self._restart_server,
            "server killed": self._kill_server,
            "server frozen": self._freeze_server,
            "server's memory filled": self._fill_memory,
            "server's scripts forgotten": self._forget_scripts,
            "all connections cut": self._cut_all,
        }

    async def strike(self, faults: list[Fault]) -> None:
        """All of them, side by side where their times want it; returns when the last is over."""
        async with asyncio.TaskGroup() as together:
            for fault in faults:
                together.create_task(self._at_its_time(fault))

    async def _at_its_time(self, fault: Fault) -> None:
        await asyncio.sleep(max(0.0, self._stage.began_s + fault.at_s - time.time()))
        await self._ways[fault.kind](fault)

    # --- workers and producers

    async def _kill_worker(self, fault: Fault) -> None:
        await self._kill(fault, self._mortal(fault))

    async def _kill_leader(self, fault: Fault) -> None:
        await self._kill(fault, await asyncio.to_thread(self._stage.leader, fault.chosen))

    async def _kill_producer(self, fault: Fault) -> None:
        await self._kill(fault, self._producer(fault))

    async def _kill(self, fault: Fault, place: Place | None) -> None:
        if place is None or place.over:
            self._stage.diary.not_possible.append(fault.kind)
            return
        async with place.busy:
            began_us = true_us()
            await asyncio.to_thread(place.kill)
            self._stage.diary.write(fault.kind, place.slot, began_us)

    async def _stop_worker(self, fault: Fault) -> None:
        place = self._mortal(fault)
        async with place.busy:
            began_us, started = true_us(), place.started
            place.ask_to_stop()
            give_up = time.monotonic() + 60
            while place.started == started and time.monotonic() < give_up:
                await asyncio.sleep(0.05)
            self._stage.diary.write(fault.kind, place.slot, began_us)

    async def _freeze_worker(self, fault: Fault) -> None:
        await self._freeze(fault, self._stage.workers[fault.chosen % len(self._stage.workers)])

    async def _freeze_leader(self, fault: Fault) -> None:
        await self._freeze(fault, await asyncio.to_thread(self._stage.leader, fault.chosen))

    async def _freeze_producer(self, fault: Fault) -> None:
        await self._freeze(fault, self._producer(fault))

    async def _freeze(self, fault: Fault, place: Place | None) -> None:
        if place is None or place.over:
            self._stage.diary.not_possible.append(fault.kind)
            return
        async with place.busy:
            began_us = true_us()
            await asyncio.to_thread(place.freeze)
            await asyncio.sleep(fault.lasts_s)
            place.thaw()
            self._stage.diary.write(fault.kind, place.slot, began_us)

    async def _move_clock(self, fault: Fault) -> None:
        place = self._stage.workers[fault.chosen % len(self._stage.workers)]
        clock.move(self._stage.folder / f"{place.slot}.clock", fault.amount)
        self._stage.diary.write(fault.kind, place.slot, true_us(), amount=fault.amount)

    def _mortal(self, fault: Fault) -> Place:
        mortal = self._stage.workers[self._stage.plan.spared :]
        return mortal[fault.chosen % len(mortal)]

    def _producer(self, fault: Fault) -> Place | None:
        """One that still has something to send."""
        at_work = [place for place in self._stage.producers if not place.over]
        return at_work[fault.chosen % len(at_work)] if at_work else None

    # --- tasks that are faults

    async def _send_killer(self, fault: Fault) -> None:
        await self._send(fault, "kill")

    async def _send_blocker(self, fault: Fault) -> None:
        began_us = true_us()
        await self._send(fault, "block", fault.lasts_s)
        # who runs it, and when, the journals know
        self._stage.diary.write(fault.kind, "whoever ran it", began_us, amount=fault.lasts_s)

    async def _send(self, fault: Fault, task: str, *args: float) -> None:
        self._task_number += 1
        queue = QUEUES[fault.chosen % len(QUEUES)]
        await self._sender.send([Order(number=self._task_number, task=task, args=args, queue=queue, priority="high")])

    # --- the network

    def _link(self, fault: Fault) -> tuple[str, FaultProxy]:
        slots = list(self._stage.proxies)
        slot = slots[fault.chosen % len(slots)]
        return slot, self._stage.proxies[slot]

    async def _cut(self, fault: Fault) -> None:
        await self._break(fault, lambda proxy: proxy.cut())

    async def _lose_replies(self, fault: Fault) -> None:
        await self._break(fault, lambda proxy: proxy.swallow_replies(round(fault.amount), only="EVALSHA"))

    async def _black_hole(self, fault: Fault) -> None:
        await self._break(fault, lambda proxy: proxy.blackhole())

    async def _refuse(self, fault: Fault) -> None:
        def close_the_door(proxy: FaultProxy) -> None:
            proxy.refuse()
            proxy.cut()

        await self._break(fault, close_the_door)

    async def _slow_down(self, fault: Fault) -> None:
        await self._break(fault, lambda proxy: proxy.delay(fault.amount))

    async def _break(self, fault: Fault, how: Callable[[FaultProxy], None]) -> None:
        slot, proxy = self._link(fault)
        place = self._stage.crew.places[slot]
        async with place.link_busy:
            began_us = true_us()
            await asyncio.to_thread(how, proxy)
            if fault.lasts_s:
                await asyncio.sleep(fault.lasts_s)
                await asyncio.to_thread(proxy.heal)
            self._stage.diary.write(fault.kind, slot, began_us, amount=fault.amount)

    async def _cut_all(self, fault: Fault) -> None:
        began_us = true_us()
        for proxy in self._stage.proxies.values():
            await asyncio.to_thread(proxy.cut)
        self._stage.diary.write(fault.kind, ALL, began_us)

    # --- the server

    async def _restart_server(self, fault: Fault) -> None:
        await self._bring_down(fault, self._stage.server.stop)

    async def _kill_server(self, fault: Fault) -> None:
        await self._bring_down(fault, self._stage.server.kill)

    async def _bring_down(self, fault: Fault, how: Callable[[], None]) -> None:
        async with self._server_struck:
            began_us = true_us()
            await asyncio.to_thread(how)
            await asyncio.sleep(fault.lasts_s)
            await asyncio.to_thread(self._stage.server.start)
            self._stage.diary.write(fault.kind, ALL, began_us)
            await asyncio.sleep(_REST_S)

    async def _freeze_server(self, fault: Fault) -> None:
        async with self._server_struck:
            began_us = true_us()
            await asyncio.to_thread(self._stage.server.freeze)
            await asyncio.sleep(fault.lasts_s)
            self._stage.server.thaw()
            self._stage.diary.write(fault.kind, ALL, began_us)
            await asyncio.sleep(_REST_S)

    async def _fill_memory(self, fault: Fault) -> None:
        async with self._server_struck:
            began_us = true_us()
            redis = self._stage.redis
            try:
                used = (await asyncio.to_thread(redis.info, "memory"))["used_memory"]
                # what it uses at rest is more than what is allowed now: whatever needs memory is refused at once
                await asyncio.to_thread(redis.config_set, "maxmemory", max(1, used - _SPARE_BYTES))
                await asyncio.sleep(fault.lasts_s)
            finally:
                await self._raise_memory()
            self._stage.diary.write(fault.kind, ALL, began_us)
            await asyncio.sleep(_REST_S)

    async def _raise_memory(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._stage.redis.config_set, "maxmemory", 0)
            except RedisError:
                await asyncio.sleep(random.uniform(0.05, 0.1))
            else:
                return

    async def _forget_scripts(self, fault: Fault) -> None:
        async with self._server_struck:
            began_us = true_us()
            await asyncio.to_thread(self._stage.redis.script_flush)
            self._stage.diary.write(fault.kind, ALL, began_us)
