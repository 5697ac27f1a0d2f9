"""When something is due next, out of answers and of news, which overtake each other on their way through two sockets."""

from __future__ import annotations

import time

from firetime.store.clock import ServerClock

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.1


class NextDue:
    """What one instance knows of the next fire-time, or of the next slot, of one queue.

    An answer tells all that was true when the script ran. News that was heard since the call went out may be newer than
    that: an answer never replaces it, and the id from which on the stream is read never steps over what was not heard.
    """

    def __init__(self, clock: ServerClock) -> None:
        self.at_ms: int | None = None
        self.last_id = "0-0"
        """Everything up to this entry of the stream of news is known."""
        self._clock = clock
        self._overtaking_ms: int | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._not_before = 0.0

    def due_in(self, grace_s: float) -> float | None:
        """Seconds until this instance may act: ``grace_s`` after the time itself. None: never."""
        if self.at_ms is None:
            return None
        return max(self._clock.seconds_until(self.at_ms) + grace_s, self._not_before - time.monotonic())

    def is_due(self, grace_s: float) -> bool:
        """Whether it may act now."""
        due_in_s = self.due_in(grace_s)
        return due_in_s is not None and due_in_s <= 0

    def heard(self, at_ms: int, entry: str) -> None:
        """Something is due at a time that may be earlier than what is known."""
        self.at_ms = _earlier(self.at_ms, at_ms)
        self._overtaking_ms = _earlier(self._overtaking_ms, at_ms)
        self.last_id = entry

    def asking(self) -> None:
        """A call goes out: what is heard from now on may be newer than its answer."""
        self._overtaking_ms = None

    def answered(self, at_ms: int | None, newest_id: str | None = None) -> None:
        """Its answer has come. Without an id it says nothing of the news."""
        self.at_ms = _earlier(at_ms, self._overtaking_ms)
        if newest_id is not None and (self._overtaking_ms is None or _position(newest_id) > _position(self.last_id)):
            # a lower one, without news: the stream has been deleted and its numbers began anew
            self.last_id = newest_id

    def acted(self, *, in_vain: bool) -> None:
        """Whether there was anything to do. Where there was not, the clocks disagree: it is not asked without a pause."""
        if in_vain:
            self._not_before = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        else:
            self._pause_s = _FIRST_PAUSE_S


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((each for each in (one_ms, other_ms) if each is not None), default=None)


def _position(entry: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence)
