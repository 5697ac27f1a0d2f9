"""Calls from a thread of its own: the renewal of leases, which must go on while the event loop is blocked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.connect import packed
from firetime.store.keys import QueueKeys
from firetime.store.replies import NoScript, refused, unreachable
from firetime.store.scripts import Argument, script
from firetime.store.wire import BlockingConnection


class BlockingServer:
    """One connection, one call at a time, for one thread."""

    def __init__(self, address: Address, shift: Shift) -> None:
        self.address = address
        self.shift = shift
        self._connection: BlockingConnection | None = None

    def run(self, name: str, keys: QueueKeys, arguments: Mapping[str, Argument], rest: Sequence[Argument] = ()) -> Any:
        """One script call. Raises ``QueueError`` kinds."""
        called = script(name)
        if "shift_us" in called.argument_names:
            arguments = {"shift_us": self.shift.us, **arguments}
        words = called.request(keys, arguments, rest)
        try:
            return self.ask(*words)
        except NoScript:
            self.ask("SCRIPT", "LOAD", called.source)
            return self.ask(*words)

    def ask(self, *words: Argument) -> Any:
        """One command."""
        from redis.exceptions import RedisError, ResponseError

        connection = self._connection
        try:
            if connection is None:
                options = self.address.blocking_options()
                connection = cast(BlockingConnection, options.pop("connection_class")(**options))
                self._connection = connection
                connection.connect()
            connection.send_packed_command([packed(words)], check_health=False)
            return connection.read_response(disable_decoding=True)
        except ResponseError as error:
            raise refused(str(error)) from None
        except (RedisError, OSError) as error:
            self.close()
            raise unreachable(str(self.address), error, sent=True) from None

    def close(self) -> None:
        """Drops the connection."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None
