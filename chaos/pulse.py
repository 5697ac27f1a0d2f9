"""A thread finds out that its process stood still: frozen, starved by others, or with its interpreter held."""

from __future__ import annotations

import threading
import time

from chaos.clock import true_us
from chaos.journal import Journal

_BEAT_S = 0.1
_LATE_S = 0.4


def tell_of_stalls(journal: Journal) -> threading.Event:
    """From now on the journal hears of every stall of this process, until the event is set."""
    over = threading.Event()
    threading.Thread(target=_beat, args=(journal, over), name="chaos-pulse", daemon=True).start()
    return over


def _beat(journal: Journal, over: threading.Event) -> None:
    last, last_us = time.monotonic(), true_us()
    while not over.wait(_BEAT_S):
        now, now_us = time.monotonic(), true_us()
        if now - last > _BEAT_S + _LATE_S:
            journal.tell("q", last_us, now_us)
        last, last_us = now, now_us
