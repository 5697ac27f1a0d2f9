"""The server's time, as nearly as a process can tell it: what scripts report, carried on by the local steady clock."""

from __future__ import annotations

import time


class Shift:
    """How far scripts see the server's clock moved, in microseconds: 0 but in tests that travel in time."""

    def __init__(self) -> None:
        self.us = 0


class ServerClock:
    """No decision rests on it but how long to sleep; scripts look at the real one."""

    def __init__(self) -> None:
        self._offset_us = time.time() * 1e6 - time.monotonic() * 1e6

    def observe(self, server_us: int, *, sent: float, received: float) -> None:
        """The server said ``server_us`` in a reply to a call between two readings of ``time.monotonic()``."""
        self._offset_us = server_us - (sent + received) / 2 * 1e6

    def now_ms(self) -> int:
        """Milliseconds since 1970 on the server's clock."""
        return int((time.monotonic() * 1e6 + self._offset_us) / 1000)

    def seconds_until(self, at_ms: int) -> float:
        """How long until the server's clock shows ``at_ms``."""
        return (at_ms * 1000 - self._offset_us) / 1e6 - time.monotonic()
