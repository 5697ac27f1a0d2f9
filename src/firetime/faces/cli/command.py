"""All groups of commands make one command, ``firetime``, which tells in one line what went wrong."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from firetime.faces.cli import acl, check, cron, dead, demo, queues, tasks, worker
from firetime.faces.cli.load import AppBroken
from firetime.faces.cli.paper import fail
from firetime.store.embedded import EmbeddedUnavailable
from firetime.values.errors import FiretimeError
from firetime.values.version import __version__


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"firetime {__version__}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Distributed tasks on Redis or Valkey: work, and look at the work."""


def make() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="firetime",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for group in (worker, demo, check, queues, tasks, dead, cron, acl):
        group.register(app)
    return app


def main() -> None:
    """The command ``firetime``. What is wrong is one line on stderr and exit code 1; wrong usage is exit code 2."""
    try:
        make()(prog_name="firetime")
    except AppBroken as error:
        error.show_traceback()
        sys.exit(fail(error))
    except (FiretimeError, EmbeddedUnavailable) as error:
        sys.exit(fail(error))
