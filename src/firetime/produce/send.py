"""Messages go out: what is dispatched while a call is in flight travels together in the next one, and each goes once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.store.scripts import Argument
from firetime.values.errors import BrokerUnavailable, NotReplicated, QueueError, QueueFull
from firetime.values.ids import new_token
from firetime.values.message import Parcel

MOST_MESSAGES = 500
MOST_BYTES = 1024 * 1024
"""A call holds the server for a few milliseconds at most (design, fact 2)."""

_MANY_CALLERS = 16
_SAME_TIME = 0.1
"""Messages travel together whose deadlines are not further apart than this part of one."""

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


class Refusal(msgspec.Struct, frozen=True):
    """What became of a message that was not plainly accepted: exists, held, moved or full."""

    what: str
    holder: str


Answers = dict[int, Refusal]
"""Position in the batch -> refusal; what is not there was accepted."""


class Tries:
    """The tries of one numbered call, until it is answered or its time is over; whoever makes them sleeps in between."""

    def __init__(self, clock: Callable[[], float], expires: float) -> None:
        self._clock = clock
        self._expires = expires
        self._pause_s = _FIRST_PAUSE_S
        self._maybe_accepted = False
        self._last = BrokerUnavailable("no time was left to ask")

    @property
    def left_s(self) -> float:
        """How long the next try may take; not above 0 when time is over."""
        return self._expires - self._clock()

    def pause_s(self, error: BrokerUnavailable) -> float:
        """How long to wait after a try that failed."""
        self._maybe_accepted |= error.maybe_accepted
        if isinstance(error, NotReplicated) or not isinstance(self._last, NotReplicated):
            self._last = error
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return min(pause_s, max(0.0, self.left_s))

    def over(self) -> BrokerUnavailable:
        """The error when time is over: ``maybe_accepted`` if any try went out unanswered."""
        if isinstance(self._last, NotReplicated):
            return self._last
        return BrokerUnavailable(self._last.reason, maybe_accepted=self._maybe_accepted)


class NumberedCalls:
    """A sender's calls to one queue, one at a time, each repeated until it is answered or its time is over.

    The script keeps the last number and its reply: a repeat of a call that had been executed is answered from memory.
    """

    def __init__(self, server: Server, keys: QueueKeys, *, min_replicas: int) -> None:
        self._server = server
        self._keys = keys
        self._min_replicas = min_replicas
        self._client = new_token()
        self._number = 0
        self._in_flight = asyncio.Lock()

    async def call(
        self,
        script: str,
        arguments: dict[str, Argument],
        rest: Sequence[Argument],
        *,
        expires: float,
        more_keys: Sequence[str] = (),
        **named_keys: str,
    ) -> Any:
        """One numbered call; ``expires`` is on the event loop's clock.

        Raises ``BrokerUnavailable`` when time is over, with ``maybe_accepted`` if any try went out unanswered, and
        ``NotReplicated`` if one was accepted, but did not reach ``min_replicas``.
        """
        async with self._in_flight:
            self._number += 1
            arguments = {"number": self._number, **arguments}
            return await self._repeat(script, arguments, rest, expires=expires, more_keys=more_keys, **named_keys)

    async def _repeat(
        self,
        script: str,
        arguments: dict[str, Argument],
        rest: Sequence[Argument],
        *,
        expires: float,
        more_keys: Sequence[str],
        **named_keys: str,
    ) -> Any:
        tries = Tries(asyncio.get_running_loop().time, expires)
        while (left_s := tries.left_s) > 0:
            try:
                return await self._server.run(
                    script,
                    self._keys,
                    arguments,
                    rest,
                    more_keys=more_keys,
                    deadline_s=min(left_s, self._server.try_s),
                    replicas=self._min_replicas,
                    call=self._keys.call(self._client),
                    **named_keys,
                )
            except BrokerUnavailable as error:
                pause_s = tries.pause_s(error)
            await asyncio.sleep(pause_s)
        raise tries.over()


class _Consignment:
    """Messages of one caller, who waits for their answers."""

    __slots__ = ("answers", "expires", "parcels", "size")

    def __init__(self, parcels: Sequence[Parcel], expires: float, answers: asyncio.Future[Answers]) -> None:
        self.parcels = parcels
        self.expires = expires
        self.answers = answers
        self.size = sum(len(parcel.record) for parcel in parcels)


class Outbox:
    """What one event loop sends to one queue: one call in flight, the rest coalesces."""

    def __init__(
        self, server: Server, keys: QueueKeys, *, deadline_s: float, max_length: int, min_replicas: int
    ) -> None:
        self._keys = keys
        self._deadline_s = deadline_s
        self._max_length = max_length
        self._calls = NumberedCalls(server, keys, min_replicas=min_replicas)
        self._waiting: deque[_Consignment] = deque()
        self._flight: asyncio.Task[None] | None = None

    async def send(self, parcels: Sequence[Parcel]) -> Answers:
        """Sends at most ``MOST_MESSAGES`` together. Raises ``BrokerUnavailable``, ``QueueFull``, ``BrokerRefused``."""
        loop = asyncio.get_running_loop()
        consignment = _Consignment(parcels, loop.time() + self._deadline_s, loop.create_future())
        self._waiting.append(consignment)
        if self._flight is None:
            self._take_off()
        return await consignment.answers

    def _take_off(self) -> None:
        self._flight = asyncio.get_running_loop().create_task(self._fly())
        self._flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        """A flight that somebody cancels, who cancels whatever runs in the loop, leaves others waiting."""
        if self._flight is flight:
            # before its first step, so that it did not say so itself
            self._flight = None
        if self._flight is None and self._waiting:
            self._waiting = deque(each for each in self._waiting if not each.answers.done())
            if self._waiting:
                self._take_off()

    async def _fly(self) -> None:
        first = self._next_batch(at_most=_half_of_many(len(self._waiting)))
        try:
            await self._send_together(first)
            while self._waiting:
                await self._send_together(self._next_batch())
        finally:
            self._flight = None

    def _next_batch(self, at_most: int = MOST_MESSAGES) -> list[_Consignment]:
        batch = [self._waiting.popleft()]
        count, size = len(batch[0].parcels), batch[0].size
        while self._waiting and len(batch) < at_most:
            candidate = self._waiting[0]
            count += len(candidate.parcels)
            size += candidate.size
            # who came later may try for longer: together they would all give up with the first
            late = candidate.expires - batch[0].expires > self._deadline_s * _SAME_TIME
            if late or count > MOST_MESSAGES or size > MOST_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send_together(self, batch: list[_Consignment]) -> None:
        parcels = [parcel for consignment in batch for parcel in consignment.parcels]
        arguments, rest, ended_keys = dispatch_words(self._keys, parcels, self._max_length)
        expires = min(consignment.expires for consignment in batch)
        try:
            flat = await self._calls.call("dispatch", arguments, rest, expires=expires, more_keys=ended_keys)
        except QueueFull as error:
            _fail(batch, QueueFull(self._keys.logical, error.reason))
        except QueueError as error:
            _fail(batch, error)
        except BaseException:
            _fail(batch, BrokerUnavailable("the event loop is closing", maybe_accepted=True))
            raise
        else:
            _answer(batch, read_refusals(flat))


def _half_of_many(callers: int) -> int:
    """How many of the callers who wait are served first.

    Callers who send one message after another all wait, and are all answered, at the same time: the server would be idle
    while they run, and they while it works. From the first batch on one half of them is always on its way.
    """
    return callers if callers < _MANY_CALLERS else (callers + 1) // 2


def read_refusals(flat: Sequence[Any]) -> Answers:
    """A numbered script's flat answer: position, what, holder."""
    return {int(flat[at]): Refusal(flat[at + 1].decode(), flat[at + 2].decode()) for at in range(0, len(flat), 3)}


def dispatch_words(
    keys: QueueKeys, parcels: Sequence[Parcel], max_length: int
) -> tuple[dict[str, Argument], list[Argument], list[str]]:
    """What the script takes: arguments by name, the messages' words, and the keys of explicit ids."""
    rest: list[Argument] = []
    for parcel in parcels:
        rest += _words(parcel)
    ended_keys = [keys.ended(parcel.task_id) for parcel in parcels if parcel.explicit_id]
    plain = not max_length and len(rest) == 3 * len(parcels)
    return {"max_length": max_length, "plain": "1" if plain else ""}, rest, ended_keys


def _words(parcel: Parcel) -> tuple[Argument, ...]:
    message = parcel.message
    timed = parcel.delay_us > 0 or parcel.at_ms is not None
    if not timed and message.unique_key is None and not parcel.explicit_id:
        return parcel.task_id, parcel.record, message.lane
    kind = "" if not timed else "in" if parcel.at_ms is None else "at"
    time = parcel.delay_us if parcel.at_ms is None else parcel.at_ms
    explicit = "1" if parcel.explicit_id else ""
    unique = message.unique_key or "", message.unique_ms, parcel.on_conflict
    return parcel.task_id, parcel.record, message.lane + "+", kind, time, *unique, explicit


def _answer(batch: list[_Consignment], answers: Answers) -> None:
    start = 0
    for consignment in batch:
        end = start + len(consignment.parcels)
        mine = {at - start: refusal for at, refusal in answers.items() if start <= at < end} if answers else {}
        if not consignment.answers.done():
            consignment.answers.set_result(mine)
        start = end


def _fail(batch: list[_Consignment], error: QueueError) -> None:
    for consignment in batch:
        if not consignment.answers.done():
            consignment.answers.set_exception(error)
