"""The event loop is watched from another thread: what blocks it is told, with where it stands, once for each blockage."""

from __future__ import annotations

import asyncio
import selectors
import sys
import traceback
from collections.abc import Callable

from firetime.values.errors import LoopBlocked
from firetime.values.message import Delivery

_MOST_FRAMES = 30
_OF_LOOPS = (selectors.__file__, asyncio.runners.__file__, asyncio.base_events.__file__)
"""Where a loop stands that waits for events: asyncio's own in its selector, one written in C where it was started."""

_LOOKS = 4
"""How often the watchdog looks, and the event loop shows that it turns, within the time after which it is told."""


def look_every_s(warn_after_s: float) -> float:
    """How often to look at, and to show, that the event loop turns."""
    return min(1.0, warn_after_s / _LOOKS)


class Blockage:
    """For how long the event loop has not turned while this process ran: one that is frozen blocks nothing."""

    def __init__(self, warn_after_s: float) -> None:
        self.lasted_s = 0.0
        """How long the present one, or else the latest, has lasted."""
        self._warn_after_s = warn_after_s
        self._most_s = 2 * look_every_s(warn_after_s)
        self._turned = self._looked = float("-inf")
        self.told = False

    def look(self, now: float, turned: float) -> bool:
        """Whether it is to be told now; ``turned``: when the event loop last turned, on the same clock as ``now``."""
        if turned > self._turned:
            self._turned, self._looked = turned, max(self._looked, turned)
            self.told, self.lasted_s = False, 0.0
        # a look that comes late was kept from coming, by whatever froze or starved the process, and that is no blockage
        self.lasted_s += min(max(0.0, now - self._looked), self._most_s)
        self._looked = now
        if self.told or self.lasted_s < self._warn_after_s:
            return False
        self.told = True
        return True


def blocked_by(
    loop: asyncio.AbstractEventLoop,
    thread: int,
    delivery_of: Callable[[asyncio.Task[object] | None], Delivery | None],
    lasted_s: float,
) -> LoopBlocked | None:
    """What blocks a loop that runs in another thread, and where it stands now.

    None where it waits for events: then nothing blocks it, and the machine is too busy to let it run.
    """
    task = asyncio.current_task(loop)
    delivery = delivery_of(task)
    # documented, whatever its name says
    frame = sys._current_frames().get(thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if task is None and (frame is None or frame.f_code.co_filename in _OF_LOOPS):
        return None
    stack = "".join(traceback.format_stack(frame, _MOST_FRAMES)) if frame is not None else ""
    return LoopBlocked(delivery.task if delivery else "", delivery.task_id if delivery else "", lasted_s, stack)
