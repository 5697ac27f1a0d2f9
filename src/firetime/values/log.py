"""Lines for the log, whose handlers are user code: one that fails stops nothing else."""

from __future__ import annotations

import contextlib
import logging


def say(log: logging.Logger, level: int, text: str, *facts: object, error: BaseException | None = None) -> None:
    """One line, with the traceback of an error where there is one."""
    with contextlib.suppress(Exception):
        log.log(level, text, *facts, exc_info=error)
