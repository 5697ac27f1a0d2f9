"""Messages that wait or run are listed, shown and cancelled."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from firetime.faces.cli.message import call_text, letter_of, look_document, show_look
from firetime.faces.cli.paper import away, console, emit, instant, table, two_lines
from firetime.faces.cli.reach import App, Json, Prefix, Queues, Reach, Url, ask, chosen
from firetime.produce.control import Look
from firetime.produce.overview import QueueStats
from firetime.runner import TaskRunner
from firetime.values.states import CancelAnswer

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The message's id.")]
_ANSWERS = {
    CancelAnswer.CANCELLED: "{} is cancelled",
    CancelAnswer.REQUESTED: "{} runs already: a coroutine is cancelled now, a thread runs to its end, is not retried",
    CancelAnswer.FINISHED: "{} has ended already",
    CancelAnswer.NOT_FOUND: "{} is gone",
}


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the messages there are."""

    messages: list[Look]
    offset: int
    total: int
    delayed: int
    """How many wait for their fire-time, whatever was asked for."""
    server_ms: int

    @property
    def end(self) -> int:
        """Where the next page starts."""
        return self.offset + len(self.messages)


def register(app: typer.Typer) -> None:
    """Adds the group's commands."""
    group = typer.Typer(no_args_is_help=True)
    group.command("ls")(ls)
    group.command("show")(show)
    group.command("cancel")(cancel)
    app.add_typer(group, name="tasks", help="Look at messages that wait or run, and cancel them.")


def ls(
    delayed: Annotated[bool, typer.Option("--delayed", help="Those of the future, by fire-time.")] = False,
    queue: Queues = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many.")] = 50,
    offset: Annotated[int, typer.Option(min=0, metavar="N", help="Skip so many.")] = 0,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """List messages that are ready or running, the oldest of each queue and priority first; or delayed ones."""

    async def page(runner: TaskRunner) -> Page:
        stats = [await runner.stats(name) for name in await chosen(runner, queue)]
        found = await (_future if delayed else _present)(runner, stats, offset, limit)
        return Page(
            messages=found,
            offset=offset,
            total=sum(each.delayed if delayed else each.ready + each.running for each in stats),
            delayed=sum(each.delayed for each in stats),
            server_ms=stats[0].server_ms if stats else 0,
        )

    found = ask(Reach(url, prefix, app).runner(), page)
    if as_json:
        emit({"total": found.total, "offset": offset, "tasks": [look_document(each) for each in found.messages]})
    else:
        _print_page(found, delayed=delayed)


def show(
    task_id: TaskId,
    queue: Queues = None,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """Show one message in any state: its arguments, counters, errors and result."""

    async def look(runner: TaskRunner) -> tuple[Look, int]:
        found = await runner.overview.find(task_id, await chosen(runner, queue))
        return found, (await runner.stats(found.queue)).server_ms

    found, server_ms = ask(Reach(url, prefix, app).runner(), look)
    if as_json:
        emit(look_document(found))
    else:
        show_look(found, server_ms)


def cancel(
    task_id: TaskId,
    queue: Queues = None,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """Take a waiting message back, or ask a running one to stop.

    Exit code 1 when there was nothing to cancel.
    """

    async def cancelled(runner: TaskRunner) -> CancelAnswer:
        found = await runner.overview.find(task_id, await chosen(runner, queue))
        return await runner.handle(task_id, queue=found.queue).cancel()

    answer = ask(Reach(url, prefix, app).runner(), cancelled)
    if as_json:
        emit({"id": task_id, "answer": answer})
    else:
        typer.echo(_ANSWERS[answer].format(task_id))
    if answer not in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED):
        raise typer.Exit(1)


async def _future(runner: TaskRunner, stats: list[QueueStats], offset: int, limit: int) -> list[Look]:
    return await runner.overview.future([each.queue for each in stats], offset=offset, limit=limit)


async def _present(runner: TaskRunner, stats: list[QueueStats], offset: int, limit: int) -> list[Look]:
    """A page over several queues, one after the other."""
    found: list[Look] = []
    for each in stats:
        there = each.ready + each.running
        if offset < there and len(found) < limit:
            found += await runner.overview.in_lanes(each.queue, offset=offset, limit=limit - len(found))
        offset = max(0, offset - there)
    return found


def _print_page(page: Page, *, delayed: bool) -> None:
    when = "fire-time" if delayed else "ready since"
    if page.messages:
        listed = table("message", "queue", "status", when, "failed", right=("failed",), whole=(when,))
        for look in page.messages:
            letter = letter_of(look)
            listed.add_row(
                two_lines(look.task_id, call_text(letter)),
                look.queue,
                look.status.value,
                two_lines(instant(look.fire_ms, page.server_ms), away(look.fire_ms, page.server_ms)),
                str(letter.failures or ""),
            )
        console().print(listed)
    what = "delayed" if delayed else "ready or running"
    shown = f"{page.offset + 1} to {page.end} of " if page.messages and page.total > len(page.messages) else ""
    more = f"; next page: --offset {page.end}" if page.end < page.total else ""
    future = f"; {page.delayed} delayed: firetime tasks ls --delayed" if page.delayed and not delayed else ""
    typer.echo(f"{shown}{page.total} {what}{more}{future}")
