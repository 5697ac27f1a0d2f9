"""Dead letters are listed, shown, sent again with fresh counters, or deleted for good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from firetime.faces.cli.message import call_text, letter_document, show_letter
from firetime.faces.cli.paper import away, console, emit, instant, printable, table, two_lines
from firetime.faces.cli.reach import App, Json, Prefix, Queues, Reach, Url, ask, chosen
from firetime.runner import TaskRunner
from firetime.values.dead_letter import DeadLetter
from firetime.values.errors import MessageNotFound

if TYPE_CHECKING:
    from rich.table import Table

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The message's id.")]
MaybeId = Annotated[str | None, typer.Argument(metavar="ID", help="The message's id; or --all.", show_default=False)]
OfTask = Annotated[str | None, typer.Option("--task", help="Those of this task.")]
WithError = Annotated[str | None, typer.Option("--error", help="Those whose last error is of this type.")]
All = Annotated[bool, typer.Option("--all", help="All, or those that --task and --error choose.")]


def register(app: typer.Typer) -> None:
    """Adds the group's commands."""
    group = typer.Typer(no_args_is_help=True)
    for command in (ls, show, replay, purge):
        group.command(command.__name__)(command)
    app.add_typer(group, name="dead", help="Look at dead letters, send them again, or delete them.")


def ls(
    task: OfTask = None,
    error: WithError = None,
    queue: Queues = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """List dead letters, the oldest of each queue first."""

    async def letters(runner: TaskRunner) -> tuple[list[DeadLetter], int, int]:
        found: list[DeadLetter] = []
        total = server_ms = 0
        for name in await chosen(runner, queue):
            found += await runner.dead(name).page(task=task, error=error, limit=limit - len(found))
            stats = await runner.stats(name)
            total, server_ms = total + stats.dead, stats.server_ms
        return found, total, server_ms

    found, total, server_ms = ask(Reach(url, prefix, app).runner(), letters)
    if as_json:
        emit({"total": total, "dead": [letter_document(each) for each in found]})
        return
    if found:
        console().print(_table(found, server_ms))
    typer.echo(f"{len(found)} of {total} dead letters" if len(found) < total else f"{total} dead letters")


def show(
    task_id: TaskId,
    queue: Queues = None,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """Show one dead letter with its errors and their tracebacks."""

    async def letter(runner: TaskRunner) -> tuple[DeadLetter, int]:
        name = await _queue_of(runner, task_id, queue)
        return await runner.dead(name).show(task_id), (await runner.stats(name)).server_ms

    found, server_ms = ask(Reach(url, prefix, app).runner(), letter)
    if as_json:
        emit(letter_document(found))
    else:
        show_letter(found, server_ms)


def replay(
    task_id: MaybeId = None,
    everything: All = False,
    task: OfTask = None,
    error: WithError = None,
    queue: Queues = None,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """Send a dead letter, or many, again with fresh counters.

    One whose unique key is held by another message by now stays.
    """
    _one_or_all(task_id, everything, task, error)

    async def replayed(runner: TaskRunner) -> int:
        if task_id is not None:
            await runner.dead(await _queue_of(runner, task_id, queue)).replay(task_id)
            return 1
        names = await chosen(runner, queue)
        return sum([await runner.dead(name).replay_all(task=task, error=error) for name in names])

    _tell("replayed", ask(Reach(url, prefix, app).runner(), replayed), as_json=as_json)


def purge(
    task_id: MaybeId = None,
    everything: All = False,
    task: OfTask = None,
    error: WithError = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    queue: Queues = None,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """Delete a dead letter, or many, for good."""
    _one_or_all(task_id, everything, task, error)
    if everything and not yes:
        which = "".join([f" of task {task}" if task else "", f" with {error}" if error else ""])
        _must_agree(f"Delete all dead letters{which} for good?")

    async def purged(runner: TaskRunner) -> int:
        if task_id is not None:
            await runner.dead(await _queue_of(runner, task_id, queue)).purge(task_id)
            return 1
        names = await chosen(runner, queue)
        return sum([await runner.dead(name).purge_all(task=task, error=error) for name in names])

    _tell("purged", ask(Reach(url, prefix, app).runner(), purged), as_json=as_json)


def _must_agree(question: str) -> None:
    # on stderr: a JSON document has stdout to itself
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Abort


def _one_or_all(task_id: str | None, everything: bool, task: str | None, error: str | None) -> None:
    if (task_id is None) != everything:
        raise typer.BadParameter("give either an ID or --all")
    if task_id is not None and (task or error):
        raise typer.BadParameter("--task and --error choose among --all")


async def _queue_of(runner: TaskRunner, task_id: str, given: list[str] | None) -> str:
    names = await chosen(runner, given)
    for name in names:
        try:
            await runner.dead(name).show(task_id)
        except MessageNotFound:
            continue
        return name
    where = f"of {', '.join(names)}" if names else ": there is no queue yet"
    raise MessageNotFound(task_id, f"among the dead letters {where}")


def _tell(what: str, count: int, *, as_json: bool) -> None:
    if as_json:
        emit({what: count})
    else:
        typer.echo(f"{count} {what}")


def _table(found: list[DeadLetter], server_ms: int) -> Table:
    listed = table("message", "queue", "died", "why", whole=("died",))
    for each in found:
        latest = each.errors[-1] if each.errors else None
        times = f" after {each.failures} failure{'s' if each.failures > 1 else ''}" if each.failures else ""
        error = printable(f"{latest.type}: {latest.text}").replace("\n", " ") if latest else ""
        listed.add_row(
            two_lines(each.id, call_text(each)),
            each.queue,
            two_lines(instant(each.died_ms, server_ms), away(each.died_ms, server_ms)),
            two_lines(f"{each.reason}{times}", error),
        )
    return listed
