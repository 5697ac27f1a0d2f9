"""Recurring schedules are listed, run now, paused, resumed and removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from firetime.faces.cli.paper import away, console, emit, instant, printable, span, table, two_lines
from firetime.faces.cli.reach import App, Json, Prefix, Queues, Reach, Url, ask, chosen
from firetime.produce.schedules import ScheduleInfo
from firetime.runner import TaskRunner
from firetime.values.errors import MessageNotFound

if TYPE_CHECKING:
    from rich.table import Table

Name = Annotated[str, typer.Argument(help="The schedule's name.")]


def register(app: typer.Typer) -> None:
    """Adds the group's commands."""
    group = typer.Typer(no_args_is_help=True)
    for command in (ls, run, pause, resume, rm):
        group.command(command.__name__)(command)
    app.add_typer(group, name="cron", help="Look at recurring schedules; run, pause, resume or remove one.")


def ls(
    queue: Queues = None,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """List recurring schedules and their next slots."""

    async def listed(runner: TaskRunner) -> tuple[list[ScheduleInfo], int]:
        names = await chosen(runner, queue)
        found = [each for name in names for each in await runner.schedules.list(queue=name)]
        return found, (await runner.stats(names[0])).server_ms if names else 0

    found, server_ms = ask(Reach(url, prefix, app).runner(), listed)
    if as_json:
        emit([msgspec.to_builtins(each) for each in found])
    elif found:
        console().print(_table(found, server_ms))
    else:
        typer.echo("no schedules")


def run(
    name: Name, queue: Queues = None, url: Url = None, prefix: Prefix = None, app: App = None, as_json: Json = False
) -> None:
    """Send one run now, beside the slots; also of one that is paused."""

    async def triggered(runner: TaskRunner, where: str) -> str:
        return (await runner.schedules.trigger(name, queue=where)).task_id

    where, task_id = _do(name, queue, Reach(url, prefix, app), triggered)
    if as_json:
        emit({"name": name, "queue": where, "id": task_id})
    else:
        typer.echo(f"{task_id} is sent to {where}")


def pause(
    name: Name, queue: Queues = None, url: Url = None, prefix: Prefix = None, app: App = None, as_json: Json = False
) -> None:
    """Let a schedule rest; slots of the meantime are not made up for.

    It stays paused over deploys until it is resumed.
    """

    async def paused(runner: TaskRunner, where: str) -> None:
        await runner.schedules.pause(name, queue=where)

    where, _ = _do(name, queue, Reach(url, prefix, app), paused)
    _tell({"name": name, "queue": where, "paused": True}, f"{name} is paused", as_json=as_json)


def resume(
    name: Name, queue: Queues = None, url: Url = None, prefix: Prefix = None, app: App = None, as_json: Json = False
) -> None:
    """Let a paused schedule go on with its next slot."""

    async def resumed(runner: TaskRunner, where: str) -> None:
        await runner.schedules.resume(name, queue=where)

    where, _ = _do(name, queue, Reach(url, prefix, app), resumed)
    _tell({"name": name, "queue": where, "paused": False}, f"{name} goes on", as_json=as_json)


def rm(
    name: Name, queue: Queues = None, url: Url = None, prefix: Prefix = None, app: App = None, as_json: Json = False
) -> None:
    """Remove a schedule; runs that were sent go on.

    One that code declares comes back when a runner with that code starts.
    """

    async def removed(runner: TaskRunner, where: str) -> None:
        await runner.schedules.remove(name, queue=where)

    where, _ = _do(name, queue, Reach(url, prefix, app), removed)
    _tell({"name": name, "queue": where, "removed": True}, f"{name} is removed", as_json=as_json)


def _do(
    name: str, given: list[str] | None, reach: Reach, act: Callable[[TaskRunner, str], Awaitable[Any]]
) -> tuple[str, Any]:
    """Acts on the schedule of that name: its queue, and what the act gave."""

    async def done(runner: TaskRunner) -> tuple[str, Any]:
        where = await _queue_of(runner, name, given)
        return where, await act(runner, where)

    return ask(reach.runner(), done)


async def _queue_of(runner: TaskRunner, name: str, given: list[str] | None) -> str:
    names = await chosen(runner, given)
    found = [each for each in names if any(one.name == name for one in await runner.schedules.list(queue=each))]
    if len(found) > 1:
        raise typer.BadParameter(f"{name} is in {' and in '.join(found)}: give --queue")
    if not found:
        raise MessageNotFound(
            name, f"among the schedules of {', '.join(names)}" if names else "; there is no queue yet"
        )
    return found[0]


def _tell(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        emit(document)
    else:
        typer.echo(text)


def _table(found: list[ScheduleInfo], server_ms: int) -> Table:
    listed = table("schedule", "queue", "when", "next", "last run", "misfire", whole=("next",))
    for each in found:
        listed.add_row(
            two_lines(printable(each.name), printable(each.problem or each.task)),
            each.queue,
            two_lines(*_when(each)),
            two_lines(_next(each, server_ms), away(each.next_ms, server_ms)),
            printable(each.last_id or ""),
            two_lines(each.misfire, "skips while it runs" if each.overlap == "skip" else ""),
            style="red" if each.problem else "dim" if each.paused else None,
        )
    return listed


def _when(each: ScheduleInfo) -> tuple[str, str]:
    jitter = f"up to {span(each.jitter_s)} later" if each.jitter_s else ""
    if each.every_s is not None:
        return f"every {span(each.every_s)}", jitter
    return each.cron or "", ", ".join(part for part in (each.tz, jitter) if part)


def _next(each: ScheduleInfo, server_ms: int) -> str:
    if each.paused:
        return "paused"
    return "over" if each.next_ms is None else instant(each.next_ms, server_ms)
