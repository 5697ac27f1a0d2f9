"""A runner is found by its name and works until it is asked to stop, in this process or in several."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from firetime.faces.cli.children import RESTART, Children
from firetime.faces.cli.lifeline import hold
from firetime.faces.cli.load import load
from firetime.faces.cli.logs import Level, set_up
from firetime.runner import TaskRunner
from firetime.values.errors import RestartNeeded
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

Concurrency = Annotated[
    int | None, typer.Option("--concurrency", "-c", metavar="N", help="Coroutine tasks at once. Default: 100.")
]
Threads = Annotated[int | None, typer.Option(metavar="N", help="Other (def) tasks at once. Default: 16.")]
TaskProcesses = Annotated[
    int | None, typer.Option(metavar="N", help="Tasks of run_in='process' at once. Default: one for each core.")
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Start N worker processes; one that ends by itself is replaced."),
]
Lease = Annotated[
    float | None, typer.Option(metavar="S", help="Seconds until a vanished worker's tasks are run again.")
]
Shutdown = Annotated[float | None, typer.Option(metavar="S", help="Seconds that tasks may run on after SIGTERM.")]
MaxTasks = Annotated[
    int | None, typer.Option(metavar="N", help="Stop after N tasks, to be started anew: exit code 75.")
]
Health = Annotated[
    str | None,
    typer.Option(metavar="[HOST:]PORT", help="Serve /livez and /readyz there; of --processes each the next port."),
]


def register(app: typer.Typer) -> None:
    """Adds the group's commands."""
    app.command("worker")(worker)
    app.command("scheduler")(scheduler)


def worker(
    name: Name,
    queue: Served = None,
    concurrency: Concurrency = None,
    threads: Threads = None,
    task_processes: TaskProcesses = None,
    processes: Processes = None,
    burst: Annotated[bool, typer.Option("--burst", help="Exit when nothing is ready and nothing runs here.")] = False,
    schedules: Annotated[bool, typer.Option("--scheduler/--no-scheduler", help="Promote delayed tasks too.")] = True,
    lease: Lease = None,
    shutdown: Shutdown = None,
    max_tasks: MaxTasks = None,
    health: Health = None,
    log_level: LogLevel = Level.INFO,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
    place: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Run tasks until SIGTERM or Ctrl-C.

    Then it takes no more, gives back what has not started, and lets the rest finish; a second signal cancels the rest
    at once and gives it back too. A server that is away is waited for.

    Exit code 0: stopped as asked; 1: an error; 2: wrong usage; 75: stopped for --max-tasks or leaked threads, start
    another. With --processes that is done here.
    """
    given = {
        "queues": ",".join(queue) if queue else None,
        "concurrency": concurrency,
        "threads": threads,
        "task_processes": task_processes,
        "lease": lease,
        "shutdown": shutdown,
        "max_tasks": max_tasks,
        "health": health,
    }
    if processes is not None:
        given["queue"] = given.pop("queues")
        flags = ["--burst"] * burst + ["--no-scheduler"] * (not schedules)
        options = {name.replace("_", "-"): value for name, value in given.items() if value is not None}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = ["worker", name, *words, *flags, "--log-level", log_level.value]
        set_up(log_level, with_pid=True)
        raise typer.Exit(asyncio.run(_several(command, processes, burst=burst)))
    runner = _prepared(name, given, log_level, lifeline)
    if place:
        # those of one command serve side by side
        runner.configure(health=_moved(runner.settings.health, place))
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
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as loop:
            loop.run(runner.run(workers=workers, scheduler=scheduler, until_idle=until_idle))
    except RestartNeeded as needed:
        _log.info("stopped: %s", needed)
        raise typer.Exit(RESTART) from None


def _moved(address: str, by: int) -> str | None:
    host, _, port = address.rpartition(":")
    # 0 is any free port
    return f"{host}:{int(port) + by}" if port and int(port) else None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop of uvloop where there is one: it is about twice as fast."""
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
