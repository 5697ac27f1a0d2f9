"""The kinds of tasks, by name."""

from __future__ import annotations

COROUTINES = ("noop", "sleep", "flaky", "stamp")
IN_THREADS = ("plain",)
SLEEP_S = 0.01
