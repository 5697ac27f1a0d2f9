"""Calls whose time is over lose their connection: one timer for all of them, since hardly one ever needs it."""

from __future__ import annotations

import asyncio

from firetime.store.wire import AsyncConnection, abort


class Deadlines:
    """The calls in flight of one event loop. A timer for each costs a tenth of a call that is answered at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until: dict[AsyncConnection, float] = {}
        self._struck: set[AsyncConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._strikes_at = 0.0

    def begin(self, connection: AsyncConnection, deadline_s: float) -> None:
        """A call goes out over a connection; when it is not over in ``deadline_s``, the connection is dropped."""
        until = self._until[connection] = self._loop.time() + deadline_s
        if self._timer is None or until < self._strikes_at:
            self._arm(until)

    def over(self, connection: AsyncConnection) -> bool:
        """The call is over; whether that is because the connection was dropped."""
        del self._until[connection]
        if connection in self._struck:
            self._struck.remove(connection)
            return True
        return False

    def close(self) -> None:
        """Nothing is dropped any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        self.close()
        self._strikes_at = at
        self._timer = self._loop.call_at(at, self._strike)

    def _strike(self) -> None:
        self._timer = None
        now = self._loop.time()
        for connection, until in self._until.items():
            if until <= now and connection not in self._struck:
                self._struck.add(connection)
                abort(connection)
        if later := [until for connection, until in self._until.items() if connection not in self._struck]:
            self._arm(min(later))
