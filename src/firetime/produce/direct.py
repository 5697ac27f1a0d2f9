"""Messages go out from code without an event loop, in the thread that dispatches them, each call over a connection of its own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from firetime.produce.send import Answers, Tries, dispatch_words, read_refusals
from firetime.store.address import Address
from firetime.store.blocking import BlockingServer
from firetime.store.clock import Shift
from firetime.store.connect import CALL_S
from firetime.store.keys import QueueKeys
from firetime.values.errors import BrokerUnavailable, QueueFull
from firetime.values.ids import new_token
from firetime.values.message import Parcel


class _Sender:
    """One connection with its numbers, for one call at a time."""

    def __init__(self, server: BlockingServer) -> None:
        self.server = server
        self.client = new_token()
        self.number = 0


class Direct:
    """The senders of one process: as many as threads have dispatched at the same time, taken in turn by all of them.

    Handing a call over to an event loop in another thread, and its answer back, takes three times as long.
    """

    def __init__(
        self,
        address: Address,
        shift: Shift,
        keys: Callable[[str], QueueKeys],
        *,
        deadline_s: float,
        max_length: Callable[[str], int],
    ) -> None:
        self._address = address
        self._shift = shift
        self._new_keys = keys
        self._deadline_s = deadline_s
        self._max_length = max_length
        self._idle: deque[_Sender] = deque()
        self._keys: dict[str, QueueKeys] = {}

    def send(self, queue: str, parcels: Sequence[Parcel]) -> Answers:
        """Sends at most ``MOST_MESSAGES`` together. Raises ``BrokerUnavailable``, ``QueueFull``, ``BrokerRefused``."""
        keys = self._keys.get(queue) or self._keys.setdefault(queue, self._new_keys(queue))
        try:
            sender = self._idle.pop()
        except IndexError:
            sender = _Sender(BlockingServer(self._address, self._shift))
        try:
            return self._send(sender, keys, parcels)
        finally:
            self._idle.append(sender)

    def begin_anew(self) -> None:
        """In a forked child: neither connections nor numbers are shared with the parent."""
        for sender in self._idle:
            sender.server.sever()
        self._idle = deque()

    def close(self) -> None:
        """Drops the connections that are idle; whose call is in flight goes on."""
        # taken out first, so that no thread takes one that is being closed
        with suppress(IndexError):
            while True:
                self._idle.pop().server.close()

    def _send(self, sender: _Sender, keys: QueueKeys, parcels: Sequence[Parcel]) -> Answers:
        arguments, rest, ended_keys = dispatch_words(keys, parcels, self._max_length(keys.queue))
        sender.number += 1
        arguments["number"] = sender.number
        tries = Tries(time.monotonic, time.monotonic() + self._deadline_s)
        while (left_s := tries.left_s) > 0:
            try:
                flat = sender.server.run(
                    "dispatch",
                    keys,
                    arguments,
                    rest,
                    more_keys=ended_keys,
                    deadline_s=min(left_s, CALL_S),
                    call=keys.call(sender.client),
                )
                return read_refusals(flat)
            except BrokerUnavailable as error:
                pause_s = tries.pause_s(error)
            except QueueFull as error:
                raise QueueFull(keys.logical, error.reason) from None
            time.sleep(pause_s)
        raise tries.over()
