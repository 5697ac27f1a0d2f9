"""Functions become tasks: each under one name, with its options checked and its arguments' types known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from firetime.produce.desk import Desk
from firetime.produce.schedules import Declared, Schedules
from firetime.produce.task import Task
from firetime.values.backoff import Backoff
from firetime.values.definition import Definition
from firetime.values.durations import Duration
from firetime.values.errors import DuplicateTask, InvalidOption
from firetime.values.options import OnConflict, RunIn, UniqueFor, task_options
from firetime.values.schedule import Misfire, Overlap
from firetime.values.states import Priority

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """What ``runner.task(...)`` with options gives, and ``runner.cron`` and ``runner.every``."""

    @overload
    def __call__(self, function: Task[P, R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class Registry:
    """The tasks of one runner, by name."""

    def __init__(self, desk: Desk) -> None:
        self.tasks: dict[str, Definition] = {}
        self.schedules = Schedules(desk, self.tasks)
        """The recurring schedules: add, pause, resume, remove, trigger, list."""
        self.desk = desk
        self._declared: dict[tuple[str, str], Declared] = {}

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: Priority | None = None,
        max_retry: int | None = None,
        backoff: Backoff | Callable[[int, BaseException], Duration] | Duration | None = None,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        no_retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        timeout: Duration | None = None,
        unique_for: UniqueFor | None = None,
        unique_key: Callable[..., object] | None = None,
        on_conflict: OnConflict | None = None,
        result_ttl: Duration | None = None,
        max_crashes: int | None = None,
        delete_on_ack: bool | None = None,
        run_in: RunIn | None = None,
    ) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Registers a function: a coroutine runs on the event loop, a ``def`` in a thread.

        ``name``: default ``function.__name__``. ``queue``: default "default". ``priority``: "high", "normal" (default)
        or "low". ``max_retry``: retries after failures, default 3, so 4 runs. ``backoff``: default
        ``Exponential(1, cap=3600)`` with full jitter. ``retry_on`` / ``no_retry_on``: exception types, default all /
        none; any other error makes a dead letter at once. ``timeout``: seconds of one run, default none; then it fails
        with ``TaskTimeout``. ``unique_for``: seconds past the fire-time, or "done", in which no second message with
        the same ``unique_key`` (a function of the arguments, default the task and its arguments) is accepted;
        ``on_conflict``: "raise" (default), "return" the holder's handle, or "replace": move one that is still delayed.
        ``result_ttl``: seconds to keep the value, default 0: not at all. ``max_crashes``: runs whose worker may vanish
        before it is a dead letter, default 3; 0 is at most once. ``delete_on_ack=False`` keeps what was completed in
        the queue's history stream. ``run_in``: where a ``def`` runs, in a "thread" (default) of the worker or in a
        "process" of its own, for what computes, holds the GIL, or must be ended at its timeout; the module that
        registers it is imported there.

        Raises ``InvalidOption`` naming the option, ``UniqueForRequired``, and ``DuplicateTask``.
        """
        if function is None:

            def decorate(decorated: Callable[..., Any]) -> Task[Any, Any]:
                return self._register(decorated, options)

            return decorate
        return self._register(function, options)

    def _register(self, function: Callable[..., Any], options: dict[str, Any]) -> Task[Any, Any]:
        options = dict(options)
        name = options.pop("name", None) or getattr(function, "__name__", "")
        if not callable(function) or name == "<lambda>":
            raise InvalidOption("task", function, "a named function (a lambda has no name that a worker could find)")
        if name in self.tasks:
            raise DuplicateTask(name)
        checked = task_options(name, options)
        self.desk.shards.check_not_a_shard("queue", checked.queue)
        definition = Definition(function, name, checked)
        self.tasks[name] = definition
        return Task(self.desk, definition)

    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        start: datetime | None = None,
        until: datetime | None = None,
        misfire: Misfire = "once",
        misfire_limit: int = 100,
        grace: Duration = 1.0,
        jitter: Duration = 0.0,
        overlap: Overlap = "run",
    ) -> TaskDecorator:
        """Runs a task at the slots of a cron expression: five fields, or six with seconds first, in time zone ``tz``.

        On a function, or above ``@runner.task(...)``. ``name``: of the schedule, default the task's. The definition
        is written when a runner with a scheduler starts; another one of the same name is replaced, a pause kept.
        The other arguments are those of ``schedules.add``. Where the clock changes, a schedule whose minute and hour are
        given ("30 2 * * *") runs at the end of a skipped hour and once in a repeated one; any other follows the clock
        (the rule of Debian's cron). Raises ``InvalidOption``.
        """
        when = _given(locals())
        return self._recurring(name, tuple(args), kwargs or {}, {"cron": expression, **when})

    def every(
        self,
        interval: Duration,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        start: datetime | None = None,
        until: datetime | None = None,
        misfire: Misfire = "once",
        misfire_limit: int = 100,
        grace: Duration = 1.0,
        jitter: Duration = 0.0,
        overlap: Overlap = "run",
    ) -> TaskDecorator:
        """Runs a task every so many seconds (or a timedelta), first one interval after it is first written.

        With ``start``, at that instant and whole intervals after it. Otherwise like ``cron``.
        """
        when = _given(locals())
        return self._recurring(name, tuple(args), kwargs or {}, {"every": interval, **when})

    def _recurring(
        self, name: str | None, args: tuple[Any, ...], kwargs: Mapping[str, Any], when: dict[str, Any]
    ) -> TaskDecorator:
        def decorate(function: Any) -> Any:
            is_task = isinstance(function, Task)
            task = cast("Task[Any, Any]", function) if is_task else self._register(function, {})
            declared = self.schedules.declare(name or task.name, task.definition, args, kwargs, **when)
            key = self.desk.shards.logical(declared.queue), declared.schedule.name
            if key in self._declared:
                raise InvalidOption("name", declared.schedule.name, "a schedule name not yet taken; give another name=")
            self._declared[key] = declared
            return task

        return decorate

    async def write_schedules(self) -> None:
        """Writes what ``cron`` and ``every`` declared; done by ``start``."""
        for declared in self._declared.values():
            await self.schedules.put(declared)

    async def restore_schedules(self, queue: str) -> None:
        """Writes those of a queue that are there no more, after the server has lost data; another definition stays."""
        for declared in self._declared.values():
            if declared.queue == queue:
                await self.schedules.put(declared, only_missing=True)


_WHEN = ("tz", "start", "until", "misfire", "misfire_limit", "grace", "jitter", "overlap")


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in _WHEN if arguments.get(name) is not None}
