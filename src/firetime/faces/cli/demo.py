"""`firetime demo`: the main job on real input, on a server of its own, checked."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("demo")(demo)


def demo() -> None:
    """Run the standard library's sources through two workers, kill one, and check every count.

    Starts an embedded Valkey in a temporary folder and needs nothing else; takes less than a minute and leaves nothing
    behind. Exits 1 if anything was lost, early or miscounted.
    """
    from firetime.faces.demo.show import main

    raise typer.Exit(main())
