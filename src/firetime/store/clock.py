"""The server's time, as nearly as a process can tell it: what scripts report, carried on by the local steady clock."""

from __future__ import annotations

import time

_DRIFT = 0.0005
"""By how much two steady clocks may part in a second, in seconds: NTP slews a clock by at most so much."""


_SLOTS = 4096
"""Places within a millisecond, as in ``lua/parts/delayed.lua``."""


def fire_ms(score: bytes) -> int:
    """The fire-time, in ms since 1970, that the score of a delayed message holds."""
    return int(float(score) // _SLOTS)


class Shift:
    """How far scripts see the server's clock moved, in microseconds: 0 but in tests that travel in time."""

    def __init__(self) -> None:
        self.us = 0
        self.stopped_us: int | None = None
        """Where the clock stands still, if it does."""

    @property
    def word(self) -> str | int:
        """What scripts are told."""
        return self.us if self.stopped_us is None else f"={self.stopped_us}"

    def seen_us(self, server_us: int) -> int:
        """What scripts see when the server's own clock shows ``server_us``."""
        return server_us + self.us if self.stopped_us is None else self.stopped_us


class ServerClock:
    """No decision rests on it but how long to sleep; scripts look at the real one.

    Each answer bounds the difference of the clocks: the server read its own between the sending and the receiving. What
    several answers agree on is kept, so that one that came late, because this process was busy, does not spoil what was
    known better before.
    """

    def __init__(self) -> None:
        # before the first answer only; a wrong clock of this machine is never asked again
        guess_us = (time.time() - time.monotonic()) * 1e6
        self._low_us, self._high_us = guess_us, guess_us
        self._observed = float("-inf")

    def observe(self, server_us: int, *, sent: float, received: float) -> None:
        """The server said ``server_us`` in a reply to a call between two readings of ``time.monotonic()``."""
        low_us, high_us = server_us - received * 1e6, server_us - sent * 1e6
        drift_us = _DRIFT * 1e6 * (received - self._observed)
        known_low_us, known_high_us = self._low_us - drift_us, self._high_us + drift_us
        self._observed = received
        if low_us > known_high_us or high_us < known_low_us:
            # the server's clock has been set, or another server answers
            self._low_us, self._high_us = low_us, high_us
        else:
            self._low_us, self._high_us = max(low_us, known_low_us), min(high_us, known_high_us)

    def now_ms(self) -> int:
        """Milliseconds since 1970 on the server's clock."""
        return int((time.monotonic() * 1e6 + self._offset_us) / 1000)

    def seconds_until(self, at_ms: int) -> float:
        """How long until the server's clock shows ``at_ms``."""
        return (at_ms * 1000 - self._offset_us) / 1e6 - time.monotonic()

    @property
    def _offset_us(self) -> float:
        return (self._low_us + self._high_us) / 2
