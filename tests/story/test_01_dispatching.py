"""A function becomes a task; dispatching it sends one run to whichever worker is free."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from firetime import Handle, InvalidTaskPayload, QueueFull, Status, TaskAlreadyDispatched, TaskNotFound, current_task
from tests.kit.waiting import until

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.kit.servers import ServerProcess
    from tests.story.stage import Drain, LookAt, NewRunner

pytestmark = pytest.mark.usefixtures("server")


async def test_a_dispatched_task_is_run(runner: TaskRunner, drain: Drain) -> None:
    greeted = []

    @runner.task
    async def greet(name: str) -> None:
        greeted.append(name)

    await greet.dispatch("Ada")
    await drain()
    assert greeted == ["Ada"]


async def test_a_plain_function_runs_in_a_thread(runner: TaskRunner, drain: Drain) -> None:
    ran_in = []

    @runner.task
    def compute() -> None:
        ran_in.append(threading.current_thread())

    await compute.dispatch()
    await drain()
    assert ran_in[0] is not threading.current_thread()


async def test_calling_a_task_runs_it_here_and_sends_nothing(runner: TaskRunner, raw: Redis) -> None:
    @runner.task
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    assert double(21) == 42
    assert double.__doc__ == "Twice as much."
    assert await raw.keys("*") == []


async def test_what_was_dispatched_before_any_worker_existed_waits_for_one(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    for number in range(3):
        await see.dispatch(number)
    assert (await runner.stats()).ready == 3
    await drain()
    assert seen == [0, 1, 2]


async def test_a_task_can_be_dispatched_by_its_name_without_its_code(
    runner: TaskRunner, drain: Drain, new_runner: NewRunner
) -> None:
    seen = []

    @runner.task
    async def send(to: str, *, urgent: bool = False) -> None:
        seen.append((to, urgent, current_task().headers))

    producer = new_runner()
    await producer.dispatch("send", "Ada", urgent=True)
    await producer.named("send", headers={"trace": "7"}).dispatch("Grace")
    await drain()
    assert sorted(seen) == [("Ada", True, {}), ("Grace", False, {"trace": "7"})]


async def test_by_its_name_a_task_that_is_known_here_is_checked_as_usual(runner: TaskRunner) -> None:
    @runner.task
    async def send(to: str) -> None: ...

    with pytest.raises(InvalidTaskPayload, match="missing a required argument: 'to'"):
        await runner.dispatch("send")


async def test_a_task_may_go_by_another_name_than_its_function(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task(name="mail.send:v2")
    async def send() -> None:
        seen.append(current_task().name)

    await send.dispatch()
    await drain()
    assert seen == ["mail.send:v2"]


async def test_tasks_of_different_queues_are_run_by_one_worker(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task(queue="mails")
    async def mail() -> None:
        seen.append(current_task().queue)

    @runner.task(queue="reports")
    async def report() -> None:
        seen.append(current_task().queue)

    handles = [await mail.dispatch(), await report.dispatch()]
    await drain()
    assert sorted(seen) == ["mails", "reports"]
    assert [handle.queue for handle in handles] == ["mails", "reports"]


async def test_a_worker_may_serve_other_queues_than_those_of_its_tasks(new_runner: NewRunner, drain: Drain) -> None:
    served = new_runner(queues=("night",))
    seen = []

    @served.task
    async def see() -> None:
        seen.append(current_task().queue)

    await see.dispatch()
    await see.options(queue="night").dispatch()
    await drain(served)
    assert seen == ["night"]
    assert (await served.stats()).ready == 1


async def test_options_hold_for_one_dispatch_and_never_mix_with_the_arguments(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task
    async def see(queue: str, *, task_id: int = 0) -> None:
        seen.append((queue, task_id, current_task().id, current_task().headers))

    handle = await see.options(task_id="mine", headers={"a": "b"}).dispatch("an argument", task_id=7)
    await see.options().dispatch("plain")
    await drain()
    assert handle.task_id == "mine"
    assert seen[0] == ("an argument", 7, "mine", {"a": "b"})
    assert seen[1][0] == "plain"
    assert seen[1][3] == {}


async def test_an_id_of_ones_own_is_accepted_once(runner: TaskRunner, drain: Drain) -> None:
    @runner.task
    async def pay() -> None: ...

    invoice = pay.options(task_id="invoice-7")
    handle = await invoice.dispatch()
    with pytest.raises(TaskAlreadyDispatched, match="invoice-7"):
        await invoice.dispatch()
    await drain()
    with pytest.raises(TaskAlreadyDispatched) as refused:  # remembered for a while after its end too
        await invoice.dispatch()
    assert refused.value.task_id == "invoice-7"
    assert await handle.status() == Status.DONE


async def test_an_id_that_is_taken_gives_its_holders_handle_where_that_is_asked_for(runner: TaskRunner) -> None:
    @runner.task
    async def pay() -> None: ...

    once = pay.options(task_id="invoice-7", on_conflict="return")
    assert await once.dispatch() == await once.dispatch()
    assert (await runner.stats()).ready == 1


async def test_an_id_is_free_again_when_it_is_remembered_no_more(new_runner: NewRunner, drain: Drain) -> None:
    forgetful = new_runner(remember_ids=0.05)
    ran = []

    @forgetful.task
    async def pay() -> None:
        ran.append(1)

    async def accepted() -> bool:
        try:
            await pay.options(task_id="invoice-7").dispatch()
        except TaskAlreadyDispatched:
            return False
        return True

    assert await accepted()
    await drain(forgetful)
    await until(accepted)
    await drain(forgetful)
    assert len(ran) == 2


async def test_many_messages_go_out_together_and_come_back_as_handles_in_order(
    runner: TaskRunner, drain: Drain
) -> None:
    seen = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    handles = await runner.dispatch_many(see.message(number) for number in range(1200))
    await drain()
    assert len({handle.task_id for handle in handles if isinstance(handle, Handle)}) == 1200
    assert sorted(seen) == list(range(1200))


async def test_of_many_messages_each_has_its_own_answer(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task(unique_for=60)
    async def rebuild(shop: int) -> None:
        seen.append(shop)

    @runner.task(queue="other")
    async def other(shop: int) -> None:
        seen.append(shop)

    answers = await runner.dispatch_many(
        [
            rebuild.message(1),
            rebuild.message(2),
            rebuild.message(1),
            other.message(3),
            rebuild.options(on_conflict="return").message(2),
            rebuild.options(task_id="mine").message(4),
            rebuild.options(task_id="mine").message(5),
        ]
    )
    kinds = [type(answer) for answer in answers]
    assert kinds == [Handle, Handle, TaskAlreadyDispatched, Handle, Handle, Handle, TaskAlreadyDispatched]
    assert answers[4] == answers[1]
    await drain()
    assert sorted(seen) == [1, 2, 3, 4]


async def test_dispatching_nothing_is_nothing(runner: TaskRunner, raw: Redis) -> None:
    assert await runner.dispatch_many([]) == []
    assert await raw.keys("*") == []


async def test_a_finished_task_leaves_nothing_behind(runner: TaskRunner, drain: Drain, look_at: LookAt) -> None:
    @runner.task
    async def nothing() -> None: ...

    await nothing.dispatch()
    await drain()
    left = await look_at()
    assert (left.tasks, left.state, left.places, left.pending, left.remembered()) == ({}, {}, {}, {}, set())


async def test_a_task_that_no_worker_knows_waits_for_one_that_does(new_runner: NewRunner, drain: Drain) -> None:
    old, new = new_runner(), new_runner()
    seen = []

    @new.task
    async def brand_new() -> None:
        seen.append(1)

    handle = await brand_new.dispatch()
    await drain(old)
    assert await handle.status() == Status.DELAYED
    assert (await handle.look()).state.failures == 0
    await old.stop()
    await new.start()
    await until(lambda: seen)


async def test_a_task_that_nobody_knows_in_time_is_a_dead_letter(new_runner: NewRunner, drain: Drain) -> None:
    told = []
    runner = new_runner(unknown_ttl=0)

    @runner.on_failed
    async def hear(letter: object, error: BaseException) -> None:
        told.append(error)

    handle = await runner.dispatch("nobody")
    await drain(runner)
    assert isinstance(told[0], TaskNotFound)
    assert (await runner.dead().show(handle.task_id)).reason == "unknown"


async def test_tasks_dispatched_at_once_share_their_calls(
    runner: TaskRunner, raw: Redis, server: ServerProcess
) -> None:
    @runner.task
    async def see(number: int) -> None: ...

    await see.dispatch(-1)
    before = (await raw.info("commandstats")).get("cmdstat_evalsha", {}).get("calls", 0)
    await asyncio.gather(*(see.dispatch(number) for number in range(500)))
    after = (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]
    assert after - before <= 4


async def test_a_full_queue_takes_no_more(new_runner: NewRunner, drain: Drain) -> None:
    runner = new_runner(max_length=3)
    seen: list[int] = []

    @runner.task
    async def see(number: int) -> None:
        seen.append(number)

    await see.dispatch(0)
    await see.dispatch_delayed(0, 1)
    answers = await runner.dispatch_many(see.message(number) for number in (2, 3, 4))
    assert [isinstance(answer, QueueFull) for answer in answers] == [False, True, True]
    with pytest.raises(QueueFull, match="queue 'default' takes no more: it holds max_length messages"):
        await see.dispatch(5)
    await drain(runner)
    await see.dispatch(6)
    await drain(runner)
    assert seen == [0, 1, 2, 6]
