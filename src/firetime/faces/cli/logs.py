"""Log lines go to stderr in one readable form, unless the app has set up its own."""

from __future__ import annotations

import logging
from enum import StrEnum


class Level(StrEnum):
    """What ``--log-level`` takes."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def set_up(level: Level, *, with_pid: bool = False) -> None:
    """From ``level`` on, firetime's and the app's. An app that has handlers of its own keeps them."""
    number = logging.getLevelNamesMapping()[level.value.upper()]
    root = logging.getLogger()
    if not root.handlers:
        formatter = logging.Formatter(f"%(asctime)s %(levelname)-7s {'%(process)d ' * with_pid}%(name)s: %(message)s")
        formatter.default_msec_format = "%s.%03d"
        handler = logging.StreamHandler()
        handler.setFormatter(formatter)
        root.addHandler(handler)
        root.setLevel(number)
    logging.getLogger("firetime").setLevel(number)
