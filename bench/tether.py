"""A process ends when the one that started it ends, however that ends: ``python -m bench.tether COMMAND...``."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tether() -> None:
    """From now on the kernel kills this process when its parent has gone; an ``exec`` keeps that."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    tether()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - the words are ours
