"""Arguments travel as JSON and arrive as the types that the function's parameters name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pytest

from firetime import InvalidOption, InvalidTaskPayload

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from firetime import TaskRunner
    from tests.story.stage import Drain

pytestmark = pytest.mark.usefixtures("server")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Address:
    street: str
    number: int | None = None


class Order(msgspec.Struct, frozen=True):
    id: UUID
    total: Decimal
    to: Address
    lines: tuple[int, ...] = ()


class Point(NamedTuple):
    x: int
    y: int


ORDER = Order(UUID(int=7), Decimal("12.340"), Address("Rue Ada", 36), (1, 2))


async def test_arguments_arrive_as_the_types_of_the_parameters(runner: TaskRunner, drain: Drain) -> None:
    seen: list[object] = []

    @runner.task
    async def see(
        order: Order,
        address: Address,
        when: datetime,
        day: date,
        id: UUID,
        price: Decimal,
        colour: Colour,
        blob: bytes,
        span: timedelta,
        point: Point,
        kind: Literal["a", "b"] = "a",
        *more: Colour,
        keys: set[int],
        **rest: UUID,
    ) -> None:
        seen.extend([order, address, when, day, id, price, colour, blob, span, point, kind, more, keys, rest])

    when = datetime(2027, 1, 1, 9, 0, 0, 123_456, tzinfo=UTC)
    sent = (
        *(ORDER, Address("Rue Grace"), when, date(2027, 2, 28), UUID(int=1), Decimal("0.10"), Colour.BLUE),
        *(b"\x00\xff bytes", timedelta(milliseconds=1500), Point(1, -2), "b", Colour.RED, Colour.BLUE),
    )
    await see.dispatch(*sent, keys={1, 2}, first=UUID(int=2))  # type: ignore[arg-type]
    await drain()
    assert seen == [*sent[:11], (Colour.RED, Colour.BLUE), {1, 2}, {"first": UUID(int=2)}]


async def test_parameters_without_a_type_take_what_json_knows(runner: TaskRunner, drain: Drain) -> None:
    seen: list[object] = []

    @runner.task
    def see(*args: Any, **kwargs: Any) -> None:
        seen.extend([args, kwargs])

    await see.dispatch(1, 2.5, "three", None, [True, {}], {"é": "\U0001f525"}, big=2**63, empty=[])
    await drain()
    assert seen == [(1, 2.5, "three", None, [True, {}], {"é": "\U0001f525"}), {"big": 2**63, "empty": []}]


async def test_defaults_are_those_of_the_function_that_runs(runner: TaskRunner, drain: Drain) -> None:
    seen = []

    @runner.task
    async def see(a: int, /, b: int = 2, *, c: int = 3) -> None:
        seen.append((a, b, c))

    await see.dispatch(1)
    await see.dispatch(1, c=30)
    await see.dispatch(1, b=20)
    await drain()
    assert seen == [(1, 2, 3), (1, 2, 30), (1, 20, 3)]


async def test_an_argument_of_another_type_is_refused_at_dispatch(runner: TaskRunner, raw: Redis) -> None:
    @runner.task
    async def see(order: Order) -> None: ...

    with pytest.raises(InvalidTaskPayload, match="argument 'order': Expected `object`, got `str`"):
        await see.dispatch("seven")  # type: ignore[arg-type]
    assert await raw.keys("*") == []


async def test_an_argument_of_another_type_sent_by_name_fails_the_task(runner: TaskRunner, drain: Drain) -> None:
    from tests.kit.waiting import until

    @runner.task(max_retry=0, name="see")
    async def see(order: Order) -> None: ...

    del runner.tasks["see"]  # as in a producer without the code
    handle = await runner.dispatch("see", "seven")
    runner.tasks["see"] = see.definition
    await drain()
    await until(lambda: runner.worker)
    letter = await runner.dead().show(handle.task_id)
    assert letter.errors[0].type == "firetime.values.errors.InvalidTaskPayload"
    assert "argument 'order'" in letter.errors[0].text


async def test_a_type_that_cannot_travel_is_refused_where_the_task_is_registered(runner: TaskRunner) -> None:
    with pytest.raises(InvalidOption, match="parameter='stream': expected a type that msgspec can decode"):

        @runner.task
        async def see(stream: dict[Order, dict[int, int]] | Order | Address) -> None: ...


async def test_a_type_that_exists_for_the_type_checker_only_is_refused_where_the_task_is_registered(
    runner: TaskRunner,
) -> None:
    with pytest.raises(InvalidOption, match="import the type outside TYPE_CHECKING"):

        @runner.task
        async def see(redis: Redis) -> None: ...
