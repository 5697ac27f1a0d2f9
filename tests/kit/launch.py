"""A command runs in this very process, which the kernel ends when the one that asked for it ends, however that ends.

Usage: python launch.py <pid of the one that asks> <command> <argument>...
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with(parent: int) -> None:
    """From now on the kernel kills this process when `parent`, the one that started it, is gone."""
    if sys.platform == "linux":
        if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            sys.exit("prctl(PR_SET_PDEATHSIG) failed: this process could be orphaned, so it does not start")
        if os.getppid() != parent:  # it ended before prctl was called
            sys.exit("the process that asked for this one has ended already")


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606  # without a shell is the point
