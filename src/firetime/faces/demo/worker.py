"""One worker process of the demo: started with the server's url and the journal's folder, it works until asked to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from firetime.faces.demo.journal import Journal
from firetime.faces.demo.sources import prepare_to_measure
from firetime.faces.demo.tasks import make_runner, register


def main(url: str, folder: str) -> None:
    """Works until SIGTERM, or until the process that started this one is gone."""
    prepare_to_measure()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    asyncio.run(_work(url, Path(folder)))


async def _work(url: str, folder: Path) -> None:
    asked_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)
    runner = make_runner(url)
    register(runner, folder)
    async with runner:
        Journal(folder).ready()
        await asked_to_stop.wait()


def _leave_with_parent() -> None:
    """Standard input is a pipe from the parent, and ends when that has ended, however that came."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
