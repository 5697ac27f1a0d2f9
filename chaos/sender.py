"""Orders are dispatched until each has its answer; the journal hears of each before and after."""

from __future__ import annotations

import asyncio

from chaos.journal import Journal
from chaos.load import Order
from chaos.plan import Plan
from firetime import BrokerUnavailable, FiretimeError, Handle, QueueError, TaskAlreadyDispatched, TaskRunner
from firetime.values.message import Parcel

_PAUSE_S = 0.2
_CANCEL_PATIENCE_S = 30.0


class Sender:
    """What a producer sends."""

    def __init__(self, runner: TaskRunner, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self._runner = runner
        self._plan = plan
        self._cancels: set[asyncio.Task[None]] = set()

    async def send(self, orders: list[Order]) -> None:
        """Dispatches all; what was surely refused is sent again, and what has an id of its own until that is known."""
        while orders:
            parcels = [self._parcel(order) for order in orders]
            self.journal.tell_all(map(_intent, orders, parcels))
            answers = await self._runner.dispatch_many(parcels)
            said = [_answer(parcel, answer) for parcel, answer in zip(parcels, answers, strict=True)]
            self.journal.tell_all(
                ("a", parcel.task_id, what, other) for parcel, (what, other) in zip(parcels, said, strict=True)
            )
            again = []
            for order, answer, (what, _) in zip(orders, answers, said, strict=True):
                if what == "no" or (what == "maybe" and order.explicit_id):
                    again.append(order)
                elif order.cancel_after_s is not None and isinstance(answer, Handle):
                    self._cancel_later(answer, order.cancel_after_s)
            orders = again
            if orders:
                await asyncio.sleep(_PAUSE_S)

    async def finish(self) -> None:
        """Waits for what is still to be cancelled."""
        await asyncio.gather(*self._cancels)

    def _parcel(self, order: Order) -> Parcel:
        task = self._runner.named(
            order.task,
            queue=order.queue,
            priority=order.priority,
            delay=order.delay_s or None,
            task_id=f"order-{self._plan.seed}-{order.number}" if order.explicit_id else None,
            on_conflict=order.on_conflict,
        )
        return task.message(order.number, *order.args)

    def _cancel_later(self, handle: Handle[object], after_s: float) -> None:
        task = asyncio.get_running_loop().create_task(self._cancel(handle, after_s))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def _cancel(self, handle: Handle[object], after_s: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(after_s)
        self.journal.tell("k", handle.task_id)
        give_up = loop.time() + _CANCEL_PATIENCE_S
        while loop.time() < give_up:
            try:
                answer = await handle.cancel()
            except QueueError:
                await asyncio.sleep(_PAUSE_S)
            else:
                self.journal.tell("c", handle.task_id, answer.name)
                return


def _intent(order: Order, parcel: Parcel) -> tuple[object, ...]:
    explicit = int(order.explicit_id)
    return ("i", parcel.task_id, order.number, order.task, order.queue, explicit, parcel.delay_us, order.unique_key)


def _answer(parcel: Parcel, answer: Handle[object] | FiretimeError) -> tuple[str, str]:
    """What became of a message, and of which other it was told."""
    if isinstance(answer, Handle):
        if answer.task_id == parcel.task_id:
            return "yes", ""
        return ("moved" if parcel.on_conflict == "replace" else "held"), answer.task_id
    if isinstance(answer, TaskAlreadyDispatched):
        return ("exists" if parcel.explicit_id else "held"), answer.task_id
    if isinstance(answer, BrokerUnavailable) and answer.maybe_accepted:
        return "maybe", ""
    return "no", type(answer).__name__
