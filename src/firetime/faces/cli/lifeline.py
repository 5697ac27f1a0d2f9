"""A line between a worker's process and the one that started it: up it a process says that it works, and its end is heard."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time

from firetime.runner import TaskRunner
from firetime.values.events import Event, WorkerEvent

READY = b"+"
_GRACE_S = 15.0
"""What a process may take beyond its ``shutdown`` setting to end by itself after its parent has vanished."""


def hold(descriptor: int, runner: TaskRunner) -> None:
    """Says when the runner works; stops it as SIGTERM does when the other end is gone, however that ended."""
    line = socket.socket(fileno=descriptor)
    line.set_inheritable(False)

    def tell(event: Event) -> None:
        if isinstance(event, WorkerEvent) and event.what == "ready":
            line.send(READY)

    def listen() -> None:
        # an end that was lost instead of closed is the same news
        with contextlib.suppress(OSError):
            line.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(runner.settings.shutdown + _GRACE_S)
        os._exit(1)

    runner.events.subscribe(tell, every_task=False)
    threading.Thread(target=listen, name="firetime-lifeline", daemon=True).start()
