"""The demo on its stage: a server in a folder of its own, the play, its progress, and the table at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from firetime import FiretimeError
from firetime.faces.demo import sources
from firetime.faces.demo.crew import without_configuration
from firetime.faces.demo.proof import Facts, Line, lines, percentile
from firetime.faces.demo.story import Story
from firetime.store import keeper
from firetime.store.embedded import EmbeddedUnavailable, join_or_start

_INTERRUPTED = 130
_SERVER_ENDS_S = 15.0


class Screen:
    """What has happened, line by line, and under it how far it is: a bar, where there is a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar = self._progress.add_task("tasks run", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Something has happened."""
        self._console.print(
            f"{time.monotonic() - self._began:5.1f} s  {text}", markup=False, highlight=False, soft_wrap=True
        )

    def ended(self, tasks: int, of: int) -> None:
        """So many tasks have ended."""
        self._progress.update(self._bar, completed=tasks, total=of)


def main(console: Console | None = None) -> int:
    """Plays the demo; returns the exit code: 1 when anything was lost, early or miscounted."""
    console = console or Console()
    _forget_configuration()
    files = sources.source_files()
    try:
        with _folder() as folder, Screen(console) as screen:
            facts = _play(folder, files, screen)
    except KeyboardInterrupt:
        console.print("interrupted; nothing is left behind")
        return _INTERRUPTED
    except (FiretimeError, EmbeddedUnavailable, TimeoutError) as error:
        console.print(f"the demo could not be played: {error}", style="red")
        return 1
    return _tell(console, facts)


def _play(folder: Path, files: list[Path], screen: Screen) -> Facts:
    server = join_or_start(folder / "server")
    screen.say("an embedded Valkey has started")
    story = Story(server.url, folder, files, screen)
    try:
        return asyncio.run(_until_asked_to_stop(story))
    except (FiretimeError, TimeoutError):
        screen.say(f"the workers logged:\n{story.log}")
        raise
    finally:
        server.close()


async def _until_asked_to_stop(story: Story) -> Facts:
    """SIGTERM and a closed terminal end it as Ctrl-C does, so that it can clean up."""
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(sign, os.kill, os.getpid(), signal.SIGINT)
    try:
        return await story.play()
    finally:
        await story.aclose()


@contextlib.contextmanager
def _folder() -> Generator[Path]:
    """A folder for server and journals, which is removed when the server, too, has ended."""
    with tempfile.TemporaryDirectory(prefix="firetime-demo-") as name:
        folder = Path(name)
        try:
            yield folder
        finally:
            _wait_for_server(folder / "server" / keeper.KEEPER)


def _wait_for_server(lock: Path) -> None:
    give_up = time.monotonic() + _SERVER_ENDS_S
    while lock.exists() and keeper.held(lock) and time.monotonic() < give_up:
        time.sleep(0.02)


def _forget_configuration() -> None:
    """What configures firetime on this machine is no business of its demo; nor is what it would log of the server."""
    kept = without_configuration(os.environ)
    for name in set(os.environ) - set(kept):
        del os.environ[name]
    logging.getLogger("firetime").setLevel(logging.ERROR)


def _tell(console: Console, facts: Facts) -> int:
    found = lines(facts)
    console.print(_table(facts, found))
    wrong = [line.what for line in found if not line.good]
    if wrong:
        console.print(f"the workers logged:\n{facts.log}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"Not as promised: {', '.join(wrong)}.", style="bold red")
        return 1
    console.print("Nothing lost, nothing early, every count right.", style="bold green")
    return 0


def _table(facts: Facts, found: list[Line]) -> Table:
    table = Table("", "promised", "found", "", title=f"firetime demo: {len(facts.sent):,} tasks")
    table.columns[0].no_wrap = True
    table.columns[1].justify = table.columns[2].justify = "right"
    for line in found:
        table.add_row(
            line.what, line.expected, line.found, "ok" if line.good else "WRONG", style="" if line.good else "red"
        )
    table.add_section()
    for what, told in _measured(facts):
        table.add_row(what, "", told, "")
    return table


def _measured(facts: Facts) -> list[tuple[str, str]]:
    late = facts.late_ms
    return [
        ("tasks a second", f"{len(facts.sent) / facts.worked_s:,.0f}"),
        ("late by p50 / p99 / max", f"{percentile(late, 0.5):.0f} / {percentile(late, 0.99):.0f} / {late[-1]:.0f} ms"),
        ("run twice, settled once", f"{facts.run_again}"),
        ("all tasks, by two workers", f"{facts.worked_s:.1f} s"),
        ("all files, directly", f"{facts.direct.cpu_s:.1f} s of CPU"),
    ]
