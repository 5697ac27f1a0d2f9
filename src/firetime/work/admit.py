"""A delivery is run, or has ended before it starts: then its outcome says why."""

from __future__ import annotations

from firetime.values.definition import Definition
from firetime.values.message import Delivery
from firetime.values.options import TaskOptions
from firetime.values.verdict import Outcome

UNKNOWN_TASK = TaskOptions()
"""What holds for messages whose task is not known here, or that cannot be read."""


def admit(delivery: Delivery, definition: Definition | None) -> Outcome | None:
    """None when it is to be run; otherwise how it ended without running once (more)."""
    if delivery.state.phase == "failing":
        return Outcome("failing")
    if delivery.message is None:
        return Outcome("unreadable")
    if delivery.cancel_asked:
        return Outcome("cancelled")
    most_crashes = (UNKNOWN_TASK if definition is None else definition.options).max_crashes
    if delivery.crashes > most_crashes:
        return Outcome("crashed")
    if definition is None:
        return Outcome("unknown")
    return None
