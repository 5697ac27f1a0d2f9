"""Calls go out and replies come back in the thread that asks, and waits; no event loop takes part."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.connect import CALL_S
from firetime.store.keys import QueueKeys
from firetime.store.replies import NoScript, read_failure
from firetime.store.request import check_version, words_of
from firetime.store.scripts import Argument
from firetime.store.wire import has_ended_blocking, packed, sever_blocking
from firetime.values.errors import BrokerUnavailable
from firetime.values.forks import in_a_child


class BlockingServer:
    """One server, over one connection, made when first needed and kept. Not for two threads at once."""

    def __init__(self, address: Address, shift: Shift) -> None:
        self.address = address
        self.shift = shift
        self._connection: Any = None
        self._verified = False
        in_a_child(self, BlockingServer.sever)

    def run(
        self,
        name: str,
        keys: QueueKeys,
        arguments: Mapping[str, Argument],
        rest: Sequence[Argument] = (),
        *,
        more_keys: Sequence[str] = (),
        deadline_s: float = CALL_S,
        **named_keys: str,
    ) -> Any:
        """One script call. Raises ``QueueError`` kinds, as ``Server.run`` does."""
        called, words = words_of(self.shift, name, keys, arguments, rest, more_keys=more_keys, named_keys=named_keys)
        try:
            return self.ask(*words, deadline_s=deadline_s)
        except NoScript:
            self.ask("SCRIPT", "LOAD", called.source, deadline_s=deadline_s)
        try:
            return self.ask(*words, deadline_s=deadline_s)
        except NoScript as error:
            raise BrokerUnavailable(f"the script is gone again: {error}") from None

    def ask(self, *words: Argument, deadline_s: float = CALL_S) -> Any:
        """One command; past the deadline the connection is dropped as dead."""
        from redis.exceptions import RedisError

        sent = False
        try:
            connection = self._connected(deadline_s)
            sent = True
            return self._exchange(connection, words, deadline_s)
        except (RedisError, OSError) as error:
            failure, of_no_use = read_failure(str(self.address), error, sent=sent)
            if of_no_use:
                self.close()
            raise failure from None

    def close(self) -> None:
        """Drops the connection; the next call makes a new one. Any thread may do it: a call in flight fails."""
        if self._connection is not None:
            self._connection.disconnect()

    def sever(self) -> None:
        """In a forked child: drops the connection, which is the parent's, without a word to the server."""
        if self._connection is not None:
            sever_blocking(self._connection)
            self._connection = None

    def _connected(self, deadline_s: float) -> Any:
        if self._connection is None:
            options = self.address.connection_options(blocking=True)
            self._connection = options.pop("connection_class")(**options)
        connection = self._connection
        if has_ended_blocking(connection):
            connection.disconnect()
        if connection._sock is None:  # noqa: SLF001 - the client has no public word for it
            began = time.monotonic()
            # a server may take the connection and say nothing: its replies to TLS, AUTH and SELECT are waited for as well
            connection.socket_connect_timeout = connection.socket_timeout = deadline_s
            try:
                connection.connect()
                if not self._verified:
                    told = self._exchange(connection, ("INFO", "server"), deadline_s - (time.monotonic() - began))
                    check_version(told.decode("utf-8", "replace"))
                    self._verified = True
            except BaseException:
                # the next call would take a connection that stands for one that was verified
                connection.disconnect()
                raise
        return connection

    def _exchange(self, connection: Any, words: Sequence[Argument], deadline_s: float) -> Any:
        connection._sock.settimeout(max(0.001, deadline_s))  # noqa: SLF001 - as above
        connection.send_packed_command([packed(words)], check_health=False)
        return connection.read_response(disable_decoding=True)
