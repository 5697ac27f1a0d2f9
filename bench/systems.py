"""What is compared: each system with its environment, its settings as they stand in the table, and its size."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

COROUTINES = 100
"""Coroutine tasks at once, in every system that has coroutines."""
THREADS = 16
"""Threads, in every system that runs ``def`` tasks in threads."""
READ = 200
"""Entries that the floor reads at a time."""

ROOT = Path(__file__).resolve().parent.parent
OWN = ""
"""The environment of firetime itself, which also runs the floor."""

RUN_BY = {"coroutine", "thread", "process", "main"}


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One column of the table."""

    name: str
    package: str
    environment: str
    module: str
    """Its adapter, below ``bench.peers``."""
    variant: str = ""
    imports: str
    """What a process that dispatches imports."""
    settings: str
    """As they stand in the table, beside those that all share (see ``SHARED``)."""
    runs_in: str = "coroutine"
    at_once: int = COROUTINES
    """Tasks at once in one worker."""
    pace: int
    """No-op tasks a second, roughly: how many are sent in the first round; later rounds know better."""
    blocks_too: bool = False
    """Whether it also has calls for code without an event loop."""
    needs_redis: tuple[int, ...] = ()
    """The oldest Redis that it runs on, when it does not run on Valkey."""
    lacks: dict[str, str] = field(default_factory=dict)
    """Measures that it has no part in, and why."""

    def __post_init__(self) -> None:
        if self.runs_in not in RUN_BY:
            raise ValueError(f"{self.name}: runs_in={self.runs_in!r}, expected one of {sorted(RUN_BY)}")

    @property
    def splits(self) -> bool:
        """Whether ``def`` tasks run otherwise than its coroutines, so that they are measured by themselves."""
        return self.runs_in == "coroutine" and "threads" not in self.lacks


SHARED = "no results kept, no logs, uvloop for every event loop, one worker process unless said otherwise"

_NO_QUEUE = "the floor does nothing that a queue must do"
_NO_THREADS = "no threads of its own"

SYSTEMS = (
    System(
        name="firetime",
        package="firetime",
        environment=OWN,
        module="firetime",
        imports="import firetime",
        settings=f"concurrency={COROUTINES}, threads={THREADS}; retry after 0 s",
        blocks_too=True,
        pace=12_000,
    ),
    System(
        name="floor",
        package="redis",
        environment=OWN,
        module="floor",
        imports="import redis.asyncio, uvloop",
        settings=f"XREADGROUP COUNT {READ}, an asyncio task for each, XACK and XDEL in one pipeline; XADD in pipelines of 500",
        at_once=READ,
        blocks_too=True,
        pace=25_000,
        lacks=dict.fromkeys(("threads", "retry", "promote", "delayed_bytes"), _NO_QUEUE),
    ),
    System(
        name="celery-threads",
        package="celery",
        environment="celery",
        module="celery",
        variant="threads",
        imports="from celery import Celery; Celery('x', broker='redis://127.0.0.1').pool",
        settings=f"-P threads -c {THREADS}, prefetch multiplier 16, no gossip, mingle, heartbeat, events or remote control",
        runs_in="thread",
        at_once=THREADS,
        pace=700,
    ),
    System(
        name="celery-prefork",
        package="celery",
        environment="celery",
        module="celery",
        variant="prefork",
        imports="from celery import Celery; Celery('x', broker='redis://127.0.0.1').pool",
        settings="-P prefork -c 2 (two child processes), prefetch multiplier 100, otherwise the same",
        runs_in="process",
        at_once=2,
        pace=700,
    ),
    System(
        name="rq",
        package="rq",
        environment="redis8",
        module="rq",
        imports="import rq, redis",
        settings="SimpleWorker (no fork a job), with_scheduler=True, result_ttl=0, JSON serializer",
        runs_in="main",
        at_once=1,
        pace=300,
        lacks={"threads": _NO_THREADS},
    ),
    System(
        name="dramatiq",
        package="dramatiq",
        environment="redis8",
        module="dramatiq",
        imports="import dramatiq; from dramatiq.brokers.redis import RedisBroker",
        settings=f"--processes 1 --threads {THREADS}, only the Retries middleware (min_backoff=1 ms), prefetch 200",
        runs_in="thread",
        at_once=THREADS,
        pace=1500,
    ),
    System(
        name="huey",
        package="huey",
        environment="redis8",
        module="huey",
        imports="from huey import RedisHuey",
        settings=f"RedisHuey (blocking), {THREADS} worker threads, no periodic tasks, scheduler every 1 s",
        runs_in="thread",
        at_once=THREADS,
        pace=1300,
    ),
    System(
        name="arq",
        package="arq",
        environment="redis5",
        module="arq",
        imports="import arq",
        settings=f"max_jobs={COROUTINES}, poll_delay=10 ms, keep_result=0",
        pace=600,
        lacks={"threads": _NO_THREADS},
    ),
    System(
        name="saq",
        package="saq",
        environment="redis7",
        module="saq",
        imports="import saq; from saq.queue.redis import RedisQueue",
        settings=f"concurrency={COROUTINES}, ttl=-1, timeout=0, scheduler every 1 s",
        pace=600,
    ),
    System(
        name="taskiq-stream",
        package="taskiq-redis",
        environment="redis8",
        module="taskiq",
        variant="stream",
        imports="import taskiq_redis",
        settings=f"CLI --workers 1 --max-async-tasks {COROUTINES} --max-prefetch 100 --max-threadpool-threads {THREADS}, xread_count=200",
        pace=900,
        lacks=dict.fromkeys(
            ("promote", "delayed_bytes"), "its broker has no delays: a scheduler process of its own polls"
        ),
    ),
    System(
        name="taskiq-list",
        package="taskiq-redis",
        environment="redis8",
        module="taskiq",
        variant="list",
        imports="import taskiq_redis",
        settings="the same, ListQueueBroker (a task is lost when its worker dies)",
        pace=900,
        lacks=dict.fromkeys(
            ("promote", "delayed_bytes"), "its broker has no delays: a scheduler process of its own polls"
        ),
    ),
    System(
        name="streaq",
        package="streaq",
        environment="redis8",
        module="streaq",
        imports="import streaq",
        settings=f"concurrency={COROUTINES}, sync_concurrency={THREADS}, prefetch=100, ttl=0, silent, JSON",
        pace=900,
    ),
    System(
        name="docket",
        package="pydocket",
        environment="redis8",
        module="docket",
        imports="import docket",
        settings=f"concurrency={COROUTINES}, execution_ttl as it is (with 0 it loses tasks)",
        pace=400,
        lacks={"threads": _NO_THREADS},
    ),
    System(
        name="bullmq",
        package="bullmq",
        environment="redis8",
        module="bullmq",
        imports="import bullmq",
        settings=f"concurrency={COROUTINES}, removeOnComplete and removeOnFail",
        pace=1000,
        lacks={"threads": _NO_THREADS},
    ),
    System(
        name="chasquimq",
        package="chasquimq",
        environment="redis6",
        module="chasquimq",
        imports="import chasquimq",
        settings=f"concurrency={COROUTINES}, events off, store_results=False",
        needs_redis=(8, 6),
        pace=5000,
        lacks={"threads": _NO_THREADS},
    ),
    System(
        name="repid",
        package="repid",
        environment="redis7",
        module="repid",
        imports="import repid; from repid import RedisServer",
        settings=f"tasks_limit={COROUTINES}, batch_size=100; retry by on_error='reject'",
        pace=2500,
        lacks=dict.fromkeys(("promote", "delayed_bytes"), "its Redis server has no delays"),
    ),
)

BY_NAME = {system.name: system for system in SYSTEMS}

CONTENDERS = ("firetime", "floor", "dramatiq", "huey", "bullmq", "repid")
"""Who runs in ``make bench-quick``: whoever was best at anything in the last full run; the others would not fit."""
