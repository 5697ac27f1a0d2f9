"""Everything about a runner that can be set, with its default, its meaning and where its value came from."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firetime.values.access import Access, Secret, Verify, checked_secret, checked_verify, checked_word
from firetime.values.durations import seconds
from firetime.values.errors import InvalidOption
from firetime.values.ids import checked_name
from firetime.values.shards import NO_SHARDS, Shards, checked_shards


def _about(default: Any, about: str, check: Callable[[str, Any], Any]) -> Any:
    return field(default=default, metadata={"about": about, "check": check})


def _span(least: float = 0.0) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        return seconds(name, float(value) if isinstance(value, str) else value, least=least)

    return check


def _count(least: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        number = int(value) if isinstance(value, str) else value
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise InvalidOption(name, value, f"a whole number of at least {least}")
        return number

    return check


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _address(name: str, value: Any) -> str:
    host, _, port = str(value).rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise InvalidOption(name, value, "a port of 0 to 65535, or host:port")
    return f"{host or '127.0.0.1'}:{int(port)}"


def _queues(name: str, value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else tuple(value)
    if not names:
        raise InvalidOption(name, value, "at least one queue")
    return tuple(checked_name("queue", queue) for queue in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a runner; ``firetime check`` prints those in force. Durations are seconds."""

    prefix: str = _about("firetime", "what every key begins with", checked_name)
    username: str | None = _about(None, "the user to log in as, where the URL names none", checked_word)
    password: Secret | None = _about(None, "the password, where the URL has none", checked_secret)  # noqa: RUF009
    tls_ca: str | None = _about(None, "CA certificates to trust, a PEM file (default: the system's)", checked_word)
    tls_cert: str | None = _about(None, "certificate to show the server, a PEM file", checked_word)
    tls_key: str | None = _about(None, "its key, a PEM file (default: in tls_cert)", checked_word)
    tls_verify: Verify | None = _about(None, "full (default), ca (any host name), or none", checked_verify)  # noqa: RUF009
    signing_keys: Secret | None = _about(None, "keys that sign messages: id:base64,...", checked_secret)  # noqa: RUF009
    encryption_keys: Secret | None = _about(None, "keys that encrypt them: id:base64,...", checked_secret)  # noqa: RUF009
    queues: tuple[str, ...] = _about((), "queues its worker serves (default: those of its tasks)", _queues)
    queue_shards: Shards = field(
        default=NO_SHARDS, metadata={"about": "over how many shards a hot queue is spread", "check": checked_shards}
    )
    concurrency: int = _about(100, "coroutine tasks at once", _count(1))
    threads: int = _about(16, "def tasks at once", _count(1))
    task_processes: int | None = _about(
        None, "run_in='process' tasks at once, a process each (default: one for each core)", _count(1)
    )
    recycle_processes: int = _about(0, "tasks after which such a process is replaced; 0: never", _count(0))
    lease: float = _about(15.0, "how long a silent worker keeps its tasks", _span(0.2))
    heartbeat: float | None = _about(None, "how often leases are renewed (default: lease / 3)", _span(0.05))
    sweep: float | None = _about(None, "how often lost leases are looked for (default: lease / 3)", _span(0.05))
    leader_lease: float = _about(5.0, "how long a silent leader leads", _span(0.2))
    standby_grace: float = _about(1.0, "how overdue a task is before others than the leader promote it", _span())
    promote_batch: int = _about(250, "delayed tasks promoted in one call", _count(1))
    dispatch_deadline: float = _about(5.0, "how long a dispatch tries before BrokerUnavailable", _span(0.01))
    min_replicas: int = _about(0, "replicas that must have a message before its dispatch returns", _count(0))
    shutdown: float = _about(30.0, "how long running tasks may finish when the worker stops", _span())
    unknown_ttl: float = _about(3600.0, "how long a task that nobody knows is kept for a worker that does", _span())
    remember_ids: float = _about(3600.0, "how long an explicit id, or a cancel, is remembered", _span(0.001))
    min_delay: float = _about(0.0, "shortest delay that is accepted", _span())
    max_payload: int = _about(1024 * 1024, "bytes of one message", _count(1))
    max_length: int = _about(0, "messages waiting in a queue before QueueFull; 0: no limit", _count(0))
    history_length: int = _about(10_000, "completed messages kept with delete_on_ack=False", _count(1))
    stall_limit: float = _about(300.0, "how long a blocked event loop keeps its leases", _span(1.0))
    block_warning: float = _about(1.0, "how long a task may block the event loop before the log names it", _span(0.1))
    max_leaked_threads: int | None = _about(
        None,
        "threads lost to tasks that ignored their timeout before the worker restarts (default: threads)",
        _count(0),
    )
    max_tasks: int = _about(0, "tasks after which a worker stops, to be started anew; 0: never", _count(0))
    health: str = _about("", "[host:]port of its health page over HTTP (host: 127.0.0.1)", _address)
    long_queue_threshold: int = _about(0, "waiting messages that call on_long_queue; 0: never", _count(0))

    @property
    def access(self) -> Access:
        """How to get in."""
        return Access(**{name: getattr(self, name) for name in Access.__struct_fields__})

    @property
    def heartbeat_s(self) -> float:
        """How often leases are renewed."""
        return self.lease / 3 if self.heartbeat is None else self.heartbeat

    @property
    def task_process_count(self) -> int:
        """How many processes run tasks: the cores that this process may use, where nothing is said."""
        return self.task_processes or _cores()

    @property
    def leaks_allowed(self) -> int:
        """How many threads may be lost to tasks that ignored their timeout."""
        return self.threads if self.max_leaked_threads is None else self.max_leaked_threads

    @property
    def sweep_s(self) -> float:
        """How often lost leases are looked for."""
        return self.lease / 3 if self.sweep is None else self.sweep


@dataclass(frozen=True, slots=True)
class Sourced:
    """Settings together with where each value came from: ``argument``, the environment variable, or ``default``."""

    settings: Settings
    sources: Mapping[str, str]


def resolve(arguments: Mapping[str, Any], environ: Mapping[str, str]) -> Sourced:
    """Settings from arguments, else from ``FIRETIME_*``, else the defaults.

    Raises ``InvalidOption`` for a value that cannot be meant, and for an argument that does not exist.
    """
    fields = {each.name: each for each in dataclasses.fields(Settings)}
    for name in arguments:
        if name not in fields:
            # a misspelt password is one all the same
            given = Secret("") if isinstance(arguments[name], str) else arguments[name]
            raise InvalidOption(name, given, "one of the settings " + ", ".join(sorted(fields)))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, each in fields.items():
        variable = f"FIRETIME_{name.upper()}"
        if arguments.get(name) is not None:
            sources[name], given, blamed = "argument", arguments[name], name
        elif environ.get(variable):
            sources[name], given, blamed = variable, environ[variable], variable
        else:
            sources[name] = "default"
            continue
        values[name] = _checked(each.metadata["check"], blamed, given)
    settings = Settings(**values)
    _check_together(settings)
    return Sourced(settings, sources)


def reconfigured(sourced: Sourced, arguments: Mapping[str, Any]) -> Sourced:
    """The settings with some of those of working replaced by arguments.

    Raises ``InvalidOption`` also for a setting of sending: handles and tasks that exist already go by it.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in sorted(_OF_SENDING & given.keys()):
        raise InvalidOption(name, given[name], "to be given to TaskRunner(...), or in the environment")
    kept = {name: getattr(sourced.settings, name) for name, source in sourced.sources.items() if source != "default"}
    settings = resolve(kept | given, {}).settings
    return Sourced(settings, {**sourced.sources, **dict.fromkeys(given, "argument")})


_OF_SENDING = {
    *Access.__struct_fields__,
    "signing_keys",
    "encryption_keys",
    "prefix",
    "queue_shards",
    "dispatch_deadline",
    "min_delay",
    "min_replicas",
    "max_payload",
    "max_length",
    "remember_ids",
}


def chosen_url(url: str | None, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Where the server's URL comes from, and the URL; None: the embedded server."""
    if url is not None:
        return "argument", url
    for variable in ("FIRETIME_URL", "REDIS_URL"):
        if environ.get(variable):
            return variable, environ[variable]
    return "embedded", None


def _checked(check: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    try:
        return check(name, value)
    except InvalidOption:
        raise
    except (TypeError, ValueError):
        raise InvalidOption(name, value, "a number") from None


def _check_together(settings: Settings) -> None:
    if settings.heartbeat_s > settings.lease / 2:
        expected = f"at most half of the lease ({settings.lease} s), or one late renewal loses it"
        raise InvalidOption("heartbeat", settings.heartbeat_s, expected)
