"""One adapter for each peer, through its public interface only.

``Producer``: ``open``, ``one(task, number)``, ``bulk(task, numbers)``, ``later(task, numbers, delay_s)``, ``close``; all
coroutines, or all plain functions. ``work()`` serves the tasks named in ``$BENCH_TASKS`` until it is ended.
"""

from __future__ import annotations

import os

URL = os.environ.get("BENCH_URL", "")
VARIANT = os.environ.get("BENCH_VARIANT", "")
TASKS = tuple(filter(None, os.environ.get("BENCH_TASKS", "").split(",")))
