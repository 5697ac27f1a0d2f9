"""What a command has found is printed: for people as text and tables, for programs as one JSON document."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from firetime.values.errors import BrokerUnavailable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_WIDE = 160
"""Columns where there is no terminal to ask: a pipe or a file."""

_MOST_TEXT = 120
_SPANS = ((86400, "d"), (3600, "h"), (60, "min"))


def emit(document: Any) -> None:
    """Prints a value as one JSON document."""
    typer.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def console(*, stderr: bool = False) -> Console:
    """Where text goes: in colour on a terminal only. What it prints is never taken for markup."""
    from rich.console import Console

    known = (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ
    return Console(
        stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=stderr, width=None if known else _WIDE
    )


def fail(error: BaseException) -> int:
    """Prints one red line on stderr; returns the exit code."""
    console(stderr=True).print(printable(what_failed(error)), style="red")
    return 1


def what_failed(error: BaseException) -> str:
    """The error in words; that nothing was accepted goes without saying where nothing was sent."""
    return error.reason if isinstance(error, BrokerUnavailable) else str(error)


def table(*columns: str, right: Collection[str] = (), whole: Collection[str] = ()) -> Table:
    """An empty table. Columns ``right`` hold numbers; lines in columns ``whole`` are not wrapped."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column in whole,
            overflow="fold",
            min_width=32 if column == "message" else len(column),
        )
    return made


def facts() -> Table:
    """An empty table of names and values."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    return made


def span(seconds: float) -> str:
    """A duration for people."""
    for size, unit in _SPANS:
        if seconds >= size:
            number = seconds / size
            return f"{number:.0f} {unit}" if unit == "min" or number >= 10 else f"{number:.1f} {unit}"
    if seconds >= 1 or seconds == 0:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def instant(at_ms: int | None, now_ms: int) -> str:
    """Local time with its zone; without the date when it is today's, and to the minute when it is not."""
    if at_ms is None:
        return ""
    at, now = (datetime.fromtimestamp(each / 1000, UTC).astimezone() for each in (at_ms, now_ms))
    return f"{at:%H:%M:%S %Z}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M %Z}"


def away(at_ms: int | None, now_ms: int) -> str:
    """How far away an instant is."""
    if at_ms is None:
        return ""
    away_s = (at_ms - now_ms) / 1000
    if abs(away_s) < 0.5:
        return "now"
    return f"in {span(away_s)}" if away_s > 0 else f"{span(-away_s)} ago"


def two_lines(first: str, second: str) -> Text:
    """A cell of two lines, the second paler, and no longer than a few lines of the table."""
    from rich.text import Text

    second = second if len(second) <= _MOST_TEXT else f"{second[: _MOST_TEXT - 1]}…"
    return Text.assemble(first, "\n", (second, "dim")) if second else Text(first)


def printable(text: str) -> str:
    """Text that somebody else wrote, without what would steer a terminal."""
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text)
