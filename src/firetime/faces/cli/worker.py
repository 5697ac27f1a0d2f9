"""A runner is found by its name and works until it is asked to stop, in this process or in several."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from firetime.faces.cli.children import Children
from firetime.faces.cli.lifeline import hold
from firetime.faces.cli.load import load
from firetime.faces.cli.logs import Level, set_up
from firetime.runner import TaskRunner
from firetime.values.version import __version__

_log = logging.getLogger("firetime")

Name = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:RUNNER",
        help="Where the TaskRunner is, such as app:runner; with one in the module, app will do.",
    ),
]
Served = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", help="Serve this queue; may be repeated. Default: those of the runner's tasks."),
]
LogLevel = Annotated[
    Level,
    typer.Option(metavar="LEVEL", case_sensitive=False, help="debug, info (a line for each task), warning or error."),
]


def register(app: typer.Typer) -> None:
    """Adds the group's commands."""
    app.command("worker")(worker)
    app.command("scheduler")(scheduler)


def worker(
    name: Name,
    queue: Served = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", metavar="N", help="Coroutine tasks at once. Default: 100.")
    ] = None,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Other (def) tasks at once. Default: 16.")] = None,
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Worker processes; one that dies is replaced.")
    ] = 1,
    burst: Annotated[bool, typer.Option("--burst", help="Exit when nothing is ready and nothing runs here.")] = False,
    schedules: Annotated[bool, typer.Option("--scheduler/--no-scheduler", help="Promote delayed tasks too.")] = True,
    lease: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds until a vanished worker's tasks are run again.")
    ] = None,
    shutdown: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds that tasks may run on after SIGTERM.")
    ] = None,
    log_level: LogLevel = Level.INFO,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run tasks until SIGTERM or Ctrl-C.

    Then it takes no more, gives back what has not started, and lets the rest finish; a second signal cancels the rest
    at once and gives it back too. A server that is away is waited for.
    """
    given = {
        "queues": ",".join(queue) if queue else None,
        "concurrency": concurrency,
        "threads": threads,
        "lease": lease,
        "shutdown": shutdown,
    }
    if processes > 1:
        given["queue"] = given.pop("queues")
        flags = ["--burst"] * burst + ["--no-scheduler"] * (not schedules)
        words = [word for option, value in given.items() if value is not None for word in (f"--{option}", str(value))]
        command = ["worker", name, *words, *flags, "--log-level", log_level.value]
        set_up(log_level, with_pid=True)
        raise typer.Exit(asyncio.run(_several(command, processes, burst=burst)))
    runner = _prepared(name, given, log_level, lifeline)
    _serve(runner, workers=True, scheduler=schedules, until_idle=burst)


def scheduler(
    name: Name,
    queue: Served = None,
    promote_batch: Annotated[
        int | None, typer.Option(metavar="N", help="Tasks promoted in one call. Default: 250.")
    ] = None,
    log_level: LogLevel = Level.INFO,
) -> None:
    """Promote delayed tasks, and run none.

    Workers started with --no-scheduler leave that to it. A server that is away is waited for.
    """
    given = {"queues": ",".join(queue) if queue else None, "promote_batch": promote_batch}
    _serve(_prepared(name, given, log_level, None), workers=False, scheduler=True, until_idle=False)


async def _several(command: list[str], count: int, *, burst: bool) -> int:
    return await Children(command, burst=burst).run(count)


def _prepared(name: str, given: dict[str, Any], level: Level, lifeline: int | None) -> TaskRunner:
    runner = load(name)
    runner.target = name
    set_up(level, with_pid=lifeline is not None)
    runner.configure(**given)
    if lifeline is not None:
        hold(lifeline, runner)
    return runner


def _serve(runner: TaskRunner, *, workers: bool, scheduler: bool, until_idle: bool) -> None:
    settings = runner.settings
    does = f"runs {len(runner.tasks)} tasks ({settings.concurrency} coroutines, {settings.threads} threads at once)"
    _log.info(
        "firetime %s %s of %s at %s",
        __version__,
        does if workers else "promotes delayed tasks",
        ", ".join(runner.queues),
        runner.address,
    )
    if workers and not runner.tasks:
        _log.warning("this runner has no task; are the modules that define them imported where it is made?")
    with asyncio.Runner(loop_factory=_loop_factory()) as loop:
        loop.run(runner.run(workers=workers, scheduler=scheduler, until_idle=until_idle))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of uvloop where there is one: it is about twice as fast."""
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
