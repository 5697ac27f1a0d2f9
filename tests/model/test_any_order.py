"""Whatever is called in whatever order, the queue is as the design says after each step, and all comes to its end."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.edges.driver import Driver, connected
from tests.model.machine import AnyOrder

if TYPE_CHECKING:
    from tests.kit.servers import ServerProcess

EXAMPLES = int(os.environ.get("FIRETIME_TEST_MODEL_EXAMPLES", "0"))
"""How many runs on each server; 0: few, and always the same ones, for `make test`."""

STEPS = int(os.environ.get("FIRETIME_TEST_MODEL_STEPS", "50"))


@pytest.mark.timeout(0 if EXAMPLES else 600)  # a failure is made small before it is shown, which takes minutes
def test_any_order_of_calls_keeps_the_queue_as_the_book_says(server: ServerProcess, queue_name: str) -> None:
    numbers = count()
    with asyncio.Runner() as loop:
        stack = AsyncExitStack()
        product, raw = loop.run(stack.enter_async_context(connected(server)))
        try:
            machine: Any = lambda: AnyOrder(Driver(product, raw, f"{queue_name}.{next(numbers)}"), loop)  # noqa: E731
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=EXAMPLES or 40,
                    stateful_step_count=STEPS,
                    derandomize=not EXAMPLES,
                    database=None,
                    print_blob=True,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            loop.run(stack.aclose())
