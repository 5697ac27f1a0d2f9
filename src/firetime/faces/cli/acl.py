"""Users with the least rights that their work needs are printed as lines for the server's ACL file."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

import typer

from firetime.store.rights import ROLES, rights_of, rules
from firetime.values.ids import checked_name
from firetime.values.settings import Settings

Users = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[USER=]ROLE[+ROLE]...",
        help=f"The users: {', '.join(ROLES)}, or several roles for one: app=worker+producer. Default: one for each role.",
    ),
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", envvar="FIRETIME_PREFIX", help="What keys begin with. Default: firetime.")
]


def register(app: typer.Typer) -> None:
    """Adds the group's command."""
    app.command("acl")(acl)


def acl(
    users: Users = None,
    prefix: Prefix = None,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only this queue; * is all.")] = "*",
    redis_6: Annotated[
        bool, typer.Option("--redis-6", help="For Redis 6.2, which knows no rights for each key.")
    ] = False,
    database: Annotated[bool, typer.Option("--database", help="Also let them select another database than 0.")] = False,
) -> None:
    """Print users with the least rights that their work needs, for the server's ACL file.

    The lines go to stdout and hold only hashes; the new random passwords go to stderr, this once.
    """
    # not a runner's settings: those of the way to a server may make no sense without one
    prefix = checked_name("prefix", prefix or Settings().prefix)
    for said in users or list(ROLES):
        user, named, roles = said.partition("=")
        rights = rights_of((roles if named else user).split("+"))
        words = rules(rights, prefix=prefix, queue=queue, per_key=not redis_6)
        password = secrets.token_urlsafe(32)
        hashed = hashlib.sha256(password.encode()).hexdigest()
        name = user if named else f"{prefix}-{user.replace('+', '-')}"
        typer.echo(" ".join(["user", name, "on", f"#{hashed}", *words, *(["+select"] if database else [])]))
        typer.echo(f"{name} {password}", err=True)
