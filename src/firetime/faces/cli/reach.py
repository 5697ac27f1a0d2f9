"""Options say where the server is; a question is asked there and the connection closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from firetime.faces.cli.load import load
from firetime.runner import EMBEDDED_FOLDER, TaskRunner
from firetime.values.errors import FiretimeError

T = TypeVar("T")

Url = Annotated[
    str | None,
    typer.Option("--url", help=f"The server. Default: $FIRETIME_URL, $REDIS_URL, or the one in ./{EMBEDDED_FOLDER}."),
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", help="What keys begin with. Default: $FIRETIME_PREFIX, or firetime.")
]
App = Annotated[
    str | None, typer.Option("--app", metavar="MODULE:RUNNER", help="Ask the server of this runner instead.")
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", help="Only this queue; may be repeated. Default: all, found by a scan of the keys."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


class NoServer(FiretimeError):
    """Nothing says where the server is."""

    def __init__(self) -> None:
        super().__init__(
            f"which server? Give --url or --app, or set FIRETIME_URL (there is no ./{EMBEDDED_FOLDER} here)"
        )


@dataclass(frozen=True, slots=True)
class Reach:
    """How a command reaches the server."""

    url: str | None
    prefix: str | None
    app: str | None

    def runner(self) -> TaskRunner:
        """The runner to ask through; nothing is connected yet."""
        if self.app is None:
            return TaskRunner(self.url, prefix=self.prefix)
        if self.url is not None or self.prefix is not None:
            raise typer.BadParameter("--app brings its own server and prefix: leave out --url and --prefix")
        return load(self.app)


def ask(runner: TaskRunner, question: Callable[[TaskRunner], Awaitable[T]]) -> T:
    """The answer. A command that only looks starts no server where there has never been one: ``NoServer``."""
    if runner.url_source == "embedded" and not Path(EMBEDDED_FOLDER).is_dir():
        raise NoServer
    logging.getLogger("firetime").setLevel(logging.ERROR)

    async def asked() -> T:
        try:
            return await question(runner)
        finally:
            await runner.aclose()

    return asyncio.run(asked())


async def chosen(runner: TaskRunner, given: list[str] | None) -> list[str]:
    """The queues given, else all that have keys."""
    return given or await runner.overview.queues()
