"""Queues are listed, paused and resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from firetime.faces.cli.paper import away, console, emit, instant, span, table, two_lines
from firetime.faces.cli.reach import App, Json, Prefix, Queues, Reach, Url, ask, chosen
from firetime.produce.overview import QueueStats
from firetime.runner import TaskRunner

if TYPE_CHECKING:
    from rich.table import Table

Queue = Annotated[str, typer.Argument(help="The queue.")]


def register(app: typer.Typer) -> None:
    """Adds the group's commands."""
    app.command("queues")(queues)
    app.command("pause")(pause)
    app.command("resume")(resume)


def queues(
    shards: Annotated[bool, typer.Option("--shards", help="Also each shard of a queue that is spread.")] = False,
    queue: Queues = None,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """List the queues: lengths, workers, predicted wait, and who leads.

    A queue that is spread over shards is one row, where $FIRETIME_QUEUE_SHARDS or --app tells of it.
    """

    async def stats(runner: TaskRunner) -> list[QueueStats]:
        found = [await runner.stats(name) for name in await chosen(runner, queue)]
        return [each for total in found for each in (total, *(await _each_shard(runner, total) if shards else ()))]

    found = ask(Reach(url, prefix, app).runner(), stats)
    if as_json:
        emit([queue_document(each) for each in found])
    elif found:
        console().print(queue_table(found))
    else:
        typer.echo("no queues yet")


async def _each_shard(runner: TaskRunner, total: QueueStats) -> list[QueueStats]:
    """A spread queue's shards; the first of its names, its home, is the name of the whole, and so has no row."""
    return [await runner.stats(name) for name in total.shards[1:]]


def pause(queue: Queue, url: Url = None, prefix: Prefix = None, app: App = None, as_json: Json = False) -> None:
    """Let no worker take tasks from a queue.

    What runs, runs on, and dispatches are accepted.
    """

    async def paused(runner: TaskRunner) -> bool:
        known = queue in await runner.overview.queues()
        await runner.pause(queue)
        return known

    known = ask(Reach(url, prefix, app).runner(), paused)
    doubt = "" if known else " (nothing has ever been sent to it)"
    _tell_paused(queue, f"{queue} is paused{doubt}", paused=True, as_json=as_json)


def resume(queue: Queue, url: Url = None, prefix: Prefix = None, app: App = None, as_json: Json = False) -> None:
    """Open a paused queue again."""

    async def resumed(runner: TaskRunner) -> bool:
        return await runner.resume(queue)

    was_paused = ask(Reach(url, prefix, app).runner(), resumed)
    text = f"{queue} is open again" if was_paused else f"{queue} was not paused"
    _tell_paused(queue, text, paused=False, as_json=as_json)


def _tell_paused(queue: str, text: str, *, paused: bool, as_json: bool) -> None:
    if as_json:
        emit({"queue": queue, "paused": paused})
    else:
        typer.echo(text)


def queue_document(stats: QueueStats) -> dict[str, Any]:
    """A queue as JSON has it."""
    document: dict[str, Any] = msgspec.to_builtins(stats)
    return document


def queue_table(found: list[QueueStats]) -> Table:
    """Queues as people read them."""
    numbers = ("ready", "running", "dead", "workers", "wait")
    made = table("queue", "ready", "running", "delayed", "dead", "workers", "wait", "leader", right=numbers)
    for each in found:
        next_ms, leader = each.next_fire_ms, f"{each.leader}, epoch {each.leader_epoch}"
        coming = f", {_first(next_ms, each.server_ms)}" if next_ms is not None else ""
        since = f"{instant(each.leader_since_ms, each.server_ms)}, {away(each.leader_since_ms, each.server_ms)}"
        made.add_row(
            two_lines(each.queue, _beside(each)),
            str(each.ready),
            str(each.running),
            two_lines(f"{each.delayed}{coming}", instant(next_ms, each.server_ms)),
            str(each.dead),
            str(each.workers),
            "" if each.predicted_wait_s is None else span(each.predicted_wait_s),
            two_lines(leader, f"since {since}") if each.leader else "nobody",
            style="red" if each.dead or each.unserved or (each.ready and not each.workers) else None,
        )
    return made


def _beside(each: QueueStats) -> str:
    said = (f"{len(each.shards) - 1} shards" if each.shards else "", "paused" if each.paused else "")
    return ", ".join(filter(None, said))


def _first(fire_ms: int, now_ms: int) -> str:
    return f"{'next' if fire_ms >= now_ms else 'due'} {away(fire_ms, now_ms)}"
