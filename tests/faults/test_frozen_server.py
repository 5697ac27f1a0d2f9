"""A server that stands still for longer than a lease takes nobody's tasks when it goes on."""

import asyncio
from collections.abc import Callable

from firetime import Status, TaskRunner
from tests.kit.servers import ServerProcess
from tests.kit.waiting import until

LEASE_S = 2.0


async def test_a_server_frozen_for_longer_than_a_lease_costs_no_running_task_its_lease(
    start_server: Callable[..., ServerProcess],
) -> None:
    server = start_server()
    runners = [TaskRunner(server.url, lease=LEASE_S, queues=("default",)) for _ in range(2)]
    over = asyncio.Event()

    for runner in runners:

        @runner.task(name="long")
        async def long() -> None:
            await over.wait()

    handles = [await runners[0].named("long").dispatch() for _ in range(10)]
    try:
        for runner in runners:
            await runner.start()

        async def all_run() -> bool:
            return all([await handle.status() == Status.RUNNING for handle in handles])

        await until(all_run)
        # both have been connected for longer than a lease by then, so that both sweep
        await asyncio.sleep(LEASE_S * 1.5)
        server.freeze()
        await asyncio.sleep(LEASE_S * 1.5)
        server.thaw()
        await asyncio.sleep(LEASE_S)
        assert [(await handle.look()).crashes for handle in handles] == [0] * 10
    finally:
        over.set()
        for runner in runners:
            await runner.aclose()
