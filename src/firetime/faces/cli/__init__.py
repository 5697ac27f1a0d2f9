"""Words typed at a shell become calls of a runner: ``firetime worker app:runner``; one file a group of commands."""

from firetime.faces.cli.command import main

__all__ = ["main"]
