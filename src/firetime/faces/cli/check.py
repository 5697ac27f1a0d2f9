"""The server, the settings in force and the queues are looked over; the exit code is for probes."""

from __future__ import annotations

import dataclasses
import platform
import socket
from typing import Annotated, Any

import msgspec
import typer

from firetime.faces.cli.paper import console, emit, facts, printable, span, table, what_failed
from firetime.faces.cli.queues import queue_document, queue_table
from firetime.faces.cli.reach import App, Json, Prefix, Queues, Reach, Url, ask
from firetime.produce.overview import QueueStats, ServerFacts
from firetime.runner import TaskRunner
from firetime.store.embedded import EmbeddedUnavailable
from firetime.values.access import Secret
from firetime.values.errors import FiretimeError
from firetime.values.settings import Settings
from firetime.values.shards import Shards
from firetime.values.version import __version__


class Findings(msgspec.Struct):
    """What a check has found so far."""

    server: ServerFacts | None = None
    queues: list[QueueStats] = []
    problems: list[str] = []
    """What makes the exit code 1."""
    warnings: list[str] = []

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def register(app: typer.Typer) -> None:
    """Adds the group's command."""
    app.command("check")(check)


def check(
    worker: Annotated[
        bool,
        typer.Option(
            "--worker", help="Also exit with 1 when no worker of a queue was seen for 3 leases, or none is well."
        ),
    ] = False,
    here: Annotated[bool, typer.Option("--here", help="With --worker: only workers of this host count.")] = False,
    queue: Queues = None,
    url: Url = None,
    prefix: Prefix = None,
    app: App = None,
    as_json: Json = False,
) -> None:
    """Check the server, and print the settings in force and where they came from.

    Exit code 0: healthy, with or without warnings; 1: not reachable, too old, a replica, or (--worker) no worker.
    """
    runner = Reach(url, prefix, app).runner()
    findings = Findings()
    own = list(runner.queues) if app is not None else []

    async def examine(runner: TaskRunner) -> None:
        findings.server = await runner.overview.server()
        _judge_server(findings, findings.server, runner.settings.min_replicas)
        found = queue or sorted({*own, *await runner.overview.queues()})
        findings.queues = [await runner.stats(name) for name in found]
        _judge_shards(findings)
        if worker:
            await _judge_workers(runner, findings, queue or own or found, here=here)

    try:
        ask(runner, examine)
    except (FiretimeError, EmbeddedUnavailable) as error:
        findings.problems.append(what_failed(error))
    if as_json:
        emit(_document(runner, findings))
    else:
        _print(runner, findings)
    raise typer.Exit(0 if findings.healthy else 1)


def _judge_server(findings: Findings, server: ServerFacts, min_replicas: int) -> None:
    if server.replica:
        findings.problems.append("the server is a read-only replica")
    if server.replicas < min_replicas:
        said = f"min_replicas is {min_replicas}, the server has {server.replicas}: no dispatch can be confirmed"
        findings.problems.append(said)
    if server.maxmemory_policy not in ("noeviction", ""):
        findings.warnings.append(
            f"maxmemory-policy is {server.maxmemory_policy}: a full server would delete tasks; set it to noeviction"
        )
    if not server.appendonly:
        findings.warnings.append("appendonly is off: a restart of the server loses what came after its last snapshot")


def _judge_shards(findings: Findings) -> None:
    for each in findings.queues:
        if each.shards and each.workers and each.unserved:
            names = ", ".join(each.unserved)
            findings.warnings.append(
                f"messages wait in {names}, which no worker serves: some program has a larger queue_shards; "
                "start the workers anew, and they will serve these too"
            )


async def _judge_workers(runner: TaskRunner, findings: Findings, queues: list[str], *, here: bool) -> None:
    gone_s = 3 * runner.settings.lease
    where = f" on {socket.gethostname()}" if here else ""
    for name in queues:
        now_ms = (await runner.stats(name)).server_ms
        seen = [
            each
            for each in await runner.overview.workers(name)
            if each.works and now_ms - each.seen_ms <= gone_s * 1000 and (not here or each.host == socket.gethostname())
        ]
        ailing = [
            f"worker {each.worker} ({each.host}, pid {each.pid}) of queue {name} does not work: {', '.join(each.ailing)}"
            for each in seen
            if each.ailing
        ]
        if not seen:
            findings.problems.append(f"no worker of queue {name}{where} was seen for {span(gone_s)}")
        # where others work, an ailing one is a loss of room only
        (findings.problems if len(ailing) == len(seen) else findings.warnings).extend(ailing)
    if not queues:
        findings.problems.append("no worker: there is no queue yet")


def _settings(runner: TaskRunner) -> list[dict[str, Any]]:
    effective = {
        "heartbeat": runner.settings.heartbeat_s,
        "sweep": runner.settings.sweep_s,
        "queues": runner.queues if runner.tasks else runner.settings.queues,
        "queue_shards": runner.settings.queue_shards.counts,
        "task_processes": runner.settings.task_process_count,
        "max_leaked_threads": runner.settings.leaks_allowed,
    }
    return [
        {
            "name": each.name,
            "value": _told(effective.get(each.name, getattr(runner.settings, each.name))),
            "source": runner.sourced.sources[each.name],
            "about": each.metadata["about"],
        }
        for each in dataclasses.fields(Settings)
    ]


def _told(value: Any) -> Any:
    return repr(value) if isinstance(value, Secret) else value


def _document(runner: TaskRunner, findings: Findings) -> dict[str, Any]:
    return {
        "healthy": findings.healthy,
        "problems": findings.problems,
        "warnings": findings.warnings,
        "firetime": __version__,
        "python": platform.python_version(),
        "address": runner.address,
        "address_source": runner.url_source,
        "server": findings.server,
        "settings": _settings(runner),
        "queues": [queue_document(each) for each in findings.queues],
    }


def _print(runner: TaskRunner, findings: Findings) -> None:
    out = console()
    top = facts()
    top.add_row("firetime", f"{__version__}, on Python {platform.python_version()}")
    top.add_row("address", f"{printable(runner.address)} ({runner.url_source})")
    if (server := findings.server) is not None:
        top.add_row("server", f"{server.kind} {server.version}, answers within {span(server.answered_in_s)}")
    out.print(top)
    listed = table("setting", "value", "source", "meaning")
    for each in _settings(runner):
        value = each["value"]
        listed.add_row(each["name"], _value(value), each["source"], each["about"], style=_dim(each["source"]))
    out.print("", listed, "", sep="\n")
    if findings.queues:
        out.print(queue_table(findings.queues), "", sep="\n")
    for warning in findings.warnings:
        out.print(f"warning: {printable(warning)}", style="yellow", soft_wrap=True)
    for problem in findings.problems:
        out.print(f"problem: {printable(problem)}", style="red", soft_wrap=True)
    if findings.healthy:
        out.print("healthy", style="green")


def _value(value: float | tuple[str, ...] | dict[str, int] | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ", ".join(value) or "(its tasks')"
    if isinstance(value, dict):
        return str(Shards(value))
    return f"{value:g} s" if isinstance(value, float) else str(value)


def _dim(source: str) -> str | None:
    return "dim" if source == "default" else None
