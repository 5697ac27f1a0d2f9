"""News of cancels comes in and reaches the runs that they are about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from firetime.store.connect import CALL_S
from firetime.values.errors import QueueError
from firetime.values.ids import as_text
from firetime.worker.workshop import Health, Patience, Workshop

_FIRST_S = 1.0
_SILENCE_S = 20.0
"""After so long without a word a subscription is asked whether it still stands."""


async def when_heard(hears: asyncio.Event, claim: Callable[[], Awaitable[None]]) -> None:
    """Claims, but not before cancels are heard: what is claimed earlier could not be called back for a while."""
    with contextlib.suppress(TimeoutError):  # then a renewal tells of them, later
        async with asyncio.timeout(_FIRST_S):
            await hears.wait()
    await claim()


async def hear_cancels(
    shop: Workshop,
    health: Health,
    cancel: Callable[[str], None],
    *,
    hears: asyncio.Event,
    on_hearing: Callable[[], None],
) -> None:
    """For ever: hears at once who is asked to stop. What is missed is told by the next renewal.

    ``on_hearing``: it hears from now on, and what was said before has been missed; ``hears`` is set the first time.
    """
    patience = Patience(health, "control")
    line = shop.server.line()
    channels = [keys.control_channel for keys in shop.queues.values()]
    while True:
        patience.turns(_SILENCE_S)
        try:
            await line.say("SUBSCRIBE", *channels)
            silent = 0
            while silent < 2:
                patience.turns(_SILENCE_S + 2 * CALL_S)
                heard = await line.listen(_SILENCE_S)
                patience.over()
                silent = silent + 1 if heard is None else 0
                if heard is None:
                    await line.say("PING")
                elif heard[0] == b"message":
                    cancel(as_text(heard[2]))
                elif heard[0] == b"subscribe":
                    hears.set()
                    on_hearing()
            await line.aclose()
        except QueueError as error:
            error.kind = "control"
            await patience.endure(error)
        except asyncio.CancelledError:
            await line.aclose()
            raise
