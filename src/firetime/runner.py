"""TaskRunner registers tasks, wires the rooms together, opens and closes them. It decides nothing."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from firetime.produce.desk import Desk
from firetime.produce.draft import House
from firetime.produce.producer import Producer
from firetime.produce.spread import Spread
from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.connect import Server, read_clock
from firetime.store.places import Home, connect
from firetime.values.access import Access
from firetime.values.codec import Codec, Guarded
from firetime.values.durations import Duration, seconds
from firetime.values.errors import InvalidOption, RunnerAlreadyStarted
from firetime.values.events import Events
from firetime.values.ids import new_token
from firetime.values.seal import chosen_codec
from firetime.values.settings import Settings, chosen_url, reconfigured, resolve
from firetime.work.whereabouts import refuse_in_child, whereabouts
from firetime.worker.hooks import Hooks, log_event, troubles, wants_every_task

if TYPE_CHECKING:
    from firetime.worker.worker import Worker
    from firetime.worker.workshop import FailureHandler

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

EMBEDDED_FOLDER = ".firetime"
"""Where the embedded server lives, below the working folder, when no URL is given."""


class TaskRunner(Producer):
    """Tasks, and the server they travel over.

    ``url``: ``redis://``, ``rediss://`` (TLS), ``valkey://``, ``unix://``, ``redis+sentinel://`` or ``redis+cluster://``;
    without one ``$FIRETIME_URL``, else ``$REDIS_URL``, else an embedded Valkey of this machine's own, in ``./.firetime``.
    ``codec``: what writes the messages, ``Signed(...)`` for example (default: JSON). The other settings are those of
    ``firetime.Settings``, each also settable as ``FIRETIME_<NAME>``; ``firetime check`` prints those in force.
    Nothing is connected before it is needed. Raises ``InvalidOption`` for a URL or setting that cannot be meant.
    """

    def __init__(self, url: str | None = None, *, codec: Codec | None = None, **settings: Any) -> None:
        self.sourced = resolve(settings, os.environ)
        self.settings: Settings = self.sourced.settings
        self.url_source, given = chosen_url(url, os.environ)
        self.events = Events()
        self.events.subscribe(log_event, every_task=False)
        self.clock_shift = Shift()
        """Moved by ``firetime.testing`` only."""
        self._address = self._checked_address(given)
        self._home = Home(Path(EMBEDDED_FOLDER))
        self._hooks = Hooks()
        self._failure_handlers: list[FailureHandler] = []
        self._worker: Worker | None = None
        self._worker_server: Server | None = None
        self.target = ""
        """What the command line was given to find this runner by: processes of tasks import the same."""
        self._starting: asyncio.Future[None] | None = None
        """Done when the start under way has ended, well or not."""
        house = House(
            codec=Guarded(chosen_codec(codec, self.settings), self.settings.prefix),
            max_payload=self.settings.max_payload,
            remember_s=self.settings.remember_ids,
            min_delay_s=self.settings.min_delay,
            spread=Spread(self.settings.queue_shards) if self.settings.queue_shards.counts else None,
        )
        super().__init__(
            Desk(
                self._connect,
                self.settings.prefix,
                house,
                deadline_s=self.settings.dispatch_deadline,
                max_length=self.settings.max_length,
                address=self._address,
                shift=self.clock_shift,
                shards=self.settings.queue_shards,
                min_replicas=self.settings.min_replicas,
            ),
            gone_s=3 * self.settings.lease,
        )

    # --- registering

    def on_failed(self, handler: F) -> F:
        """Registers a function of (dead letter, error), told of each message out of attempts, before it is put away.

        If it raises, it is told again one lease later, and the message is not lost; the task itself is not run again.
        """
        self._failure_handlers.append(handler)
        return handler

    def on_error(self, hook: F) -> F:
        """Registers a function of (error), told of infrastructure errors; ``error.kind`` tells which part met it."""
        self._hooks.on_error.append(hook)
        return hook

    def on_long_queue(self, hook: F) -> F:
        """Registers a function of (queue, waiting), called by the leader only, while ``long_queue_threshold`` is passed."""
        self._hooks.on_long_queue.append(hook)
        return hook

    def on_promoted(self, hook: F) -> F:
        """Registers a function of (queue), called when this instance becomes the queue's leader."""
        self._hooks.on_promoted.append(hook)
        return hook

    def on_demoted(self, hook: F) -> F:
        """Registers a function of (queue), called when this instance is no longer the queue's leader."""
        self._hooks.on_demoted.append(hook)
        return hook

    def errors(self) -> AsyncIterator[BaseException]:
        """Infrastructure errors from now on. Nothing waits for whoever iterates: the oldest are dropped beyond 1000."""
        return troubles(self.events)

    # --- working

    @property
    def worker(self) -> Worker | None:
        """The worker that runs here, if any."""
        return self._worker

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues its worker serves: the ``queues`` setting, else those of the registered tasks."""
        named = {definition.options.queue for definition in self.tasks.values()}
        return self.settings.queues or tuple(sorted(named)) or ("default",)

    def configure(self, **settings: Any) -> None:
        """Replaces settings before ``start()``: those of working only, for what was sent already went by the others.

        Raises ``InvalidOption``, and ``RunnerAlreadyStarted``.
        """
        if self._starting is not None or self._worker is not None:
            raise RunnerAlreadyStarted
        self.sourced = reconfigured(self.sourced, settings)
        self.settings = self.sourced.settings
        self.look_with(gone_s=3 * self.settings.lease)

    async def start(self, *, workers: bool = True, scheduler: bool = True) -> None:
        """Starts working here and returns at once; ``stop()`` ends it.

        ``workers``: claim and run tasks. ``scheduler``: promote delayed ones and stand for election.
        Raises ``RunnerAlreadyStarted`` (also for two calls at once), ``QueueError`` kinds when the server cannot be
        had within the dispatch deadline, and ``InvalidOption`` for a ``run_in="process"`` that no process could run.
        """
        from firetime.worker.worker import Worker
        from firetime.worker.workshop import Workshop

        refuse_in_child()
        self._forget_orphan()
        if self._starting is not None or self._worker is not None:
            raise RunnerAlreadyStarted
        self._starting = starting = asyncio.get_running_loop().create_future()
        try:
            if workers:
                whereabouts(self, self.tasks, self.target)
            server = self._worker_server = await self._connect()
            clock = await read_clock(server, deadline_s=self.settings.dispatch_deadline)
            self.events.every_task |= wants_every_task()
            if scheduler:
                await self.write_schedules()
            shop = Workshop(
                token=new_token(),
                settings=self.settings,
                server=server,
                queues=await self.desk.served(self.queues),
                tasks=self.tasks,
                codec=self.desk.house.codec,
                events=self.events,
                failure_handlers=self._failure_handlers,
                hooks=self._hooks,
                restore_schedules=self.restore_schedules,
                whereabouts=lambda: whereabouts(self, self.tasks, self.target),
                clock=clock,
            )
            worker = Worker(shop, works=workers, schedules=scheduler)
            worker.warm_up()
            self._worker = worker
            worker.start()
        finally:
            self._starting = None
            starting.set_result(None)
            if self._worker is None:
                await self.stop()

    async def run(self, *, workers: bool = True, scheduler: bool = True, until_idle: bool = False) -> None:
        """Starts, works until SIGTERM or SIGINT, then stops and closes; a second signal cancels at once what still runs.

        While the server is away it says so in the log and waits for it: processes are started in any order.
        ``until_idle``: it also ends when nothing is ready and nothing runs here; what is delayed, or paused, does not
        count. Raises ``BrokerRefused`` for what waiting does not mend, ``RunnerAlreadyStarted``, and, when it has stopped
        for ``max_tasks`` or ``max_leaked_threads``, ``RestartNeeded``.
        """
        from firetime.worker.signals import run_until_asked

        # what is loaded by now stays: the garbage collector need not walk it again and again
        gc.freeze()
        await run_until_asked(self, workers=workers, scheduler=scheduler, until_idle=until_idle)

    async def stop(self, within: Duration | None = None) -> None:
        """Stops working here; it costs no task an attempt.

        No more claims; what has not started is given back; what runs may finish ``within`` seconds (default: the
        ``shutdown`` setting) and is then cancelled and given back. A start under way ends first.
        """
        if self._starting is not None:
            await asyncio.wait([self._starting])
        self._forget_orphan()
        worker, server = self._worker, self._worker_server
        if worker is not None:
            await worker.stop(None if within is None else seconds("within", within))
        # whoever else waited for the same end may have started anew meanwhile
        if worker is self._worker:
            self._worker = None
        if server is not None and server is self._worker_server:
            self._worker_server = None
            await server.aclose()

    def _forget_orphan(self) -> None:
        """An event loop that ended without ``stop()`` took its worker with it; the runner works on in another one."""
        if self._worker is not None and self._worker.orphaned:
            self._worker.forget()
            self._worker = None
            if self._worker_server is not None:
                self._worker_server.sever()
                self._worker_server = None

    async def aclose(self) -> None:
        """Stops, drops the running loop's connections, and lets go of the embedded server."""
        await self.stop()
        await self.desk.aclose()
        self._home.leave()

    def close(self) -> None:
        """The same from code without an event loop: ends the loop that the ``_sync`` calls use."""
        self.desk.portal.close(self.desk.aclose)
        if self.desk.direct is not None:
            # there was no such loop where nothing but dispatches went out
            self.desk.direct.close()
        self._home.leave()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- connecting

    @property
    def address(self) -> str:
        """Where the server is, without its password."""
        return str(self._address) if self._address is not None else f"embedded, in {self._home.folder}"

    def _checked_address(self, url: str | None) -> Address | None:
        if url is not None:
            return Address(url, self.settings.access)
        for name in Access.__struct_fields__:
            if (value := getattr(self.settings, name)) is not None:
                raise InvalidOption(name, value, "a url with it: the embedded server lets in its own user only")
        return None

    async def _connect(self) -> Server:
        if self._address is None:
            return await self._home.connect(self.clock_shift)
        return connect(self._address, self.clock_shift)
