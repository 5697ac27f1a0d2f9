"""A seed becomes the load: orders, each of one dispatch, in batches, the same every time."""

from __future__ import annotations

import random

import msgspec

from chaos.plan import QUEUES, Plan
from firetime.values.options import OnConflict
from firetime.values.states import Priority

BATCH = 100
"""Orders that a producer sends together."""

_KINDS = {
    "plain": 42,
    "thread": 8,
    "flaky": 10,
    "doomed": 2,
    "overdue": 0.5,
    "unique": 12,
    "long": 1,
    "long_thread": 0.5,
    "kept": 12,
}
"""Kind of task -> its share of the load, in parts."""

_UNIQUE_KEYS = 40
_PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low")
_ON_CONFLICT: tuple[OnConflict, ...] = ("raise", "return", "replace")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One dispatch that a producer is to make."""

    number: int
    """Of this order alone in the whole run; its task carries it as an argument."""
    task: str
    args: tuple[int | float | str, ...] = ()
    """The arguments behind the number."""
    queue: str
    priority: Priority = "normal"
    delay_s: float = 0.0
    explicit_id: bool = False
    on_conflict: OnConflict = "raise"
    cancel_after_s: float | None = None

    @property
    def unique_key(self) -> str:
        """What no other message may hold while this one lives; empty for most."""
        return str(self.args[0]) if self.task == "unique" else ""


def batches(plan: Plan, producer: int) -> int:
    """How many batches a producer has to send."""
    share = plan.tasks // plan.producers + (1 if producer < plan.tasks % plan.producers else 0)
    return -(-share // BATCH)


def batch_of(plan: Plan, producer: int, batch: int) -> list[Order]:
    """The orders of one batch: of its seed and place alone, so that a producer's successor finds the same."""
    chance = random.Random(f"{plan.seed}/{producer}/{batch}")
    share = plan.tasks // plan.producers + (1 if producer < plan.tasks % plan.producers else 0)
    first = batch * BATCH
    number = producer * 1_000_000_000
    return [_order(chance, number + at, forgetful=plan.forgetful) for at in range(first, min(first + BATCH, share))]


def _order(chance: random.Random, number: int, *, forgetful: bool) -> Order:
    kinds = {kind: share for kind, share in _KINDS.items() if not (forgetful and kind == "kept")}
    (task,) = chance.choices(list(kinds), list(kinds.values()))
    may_stop = task in ("plain", "flaky", "long", "kept")
    delayed = chance.random() < 0.2
    cancelled = not forgetful and may_stop and (delayed or task == "long") and chance.random() < 0.15
    return Order(
        number=number,
        task=task,
        args=_arguments(chance, task),
        queue=chance.choice(QUEUES),
        priority=chance.choices(_PRIORITIES, (1, 3, 1))[0],
        delay_s=round(chance.choice((0.05, 1.0, 8.0)) * chance.random(), 4) if delayed else 0.0,
        explicit_id=not forgetful and task not in ("unique", "doomed", "overdue") and chance.random() < 0.05,
        on_conflict=chance.choice(_ON_CONFLICT) if task == "unique" else "raise",
        cancel_after_s=round(3.0 * chance.random(), 4) if cancelled else None,
    )


def _arguments(chance: random.Random, task: str) -> tuple[int | float | str, ...]:
    match task:
        case "flaky":
            return (chance.randint(1, 3),)
        case "unique":
            return (f"key-{chance.randrange(_UNIQUE_KEYS)}", chance.choice((0, 0, 0, 1)))
        case "long" | "long_thread":
            return (round(chance.uniform(0.5, 4.0), 3),)
        case _:
            return ()
