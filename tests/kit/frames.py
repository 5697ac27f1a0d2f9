"""Bytes of the Redis protocol come in as they arrive and go out as whole requests or replies."""

from __future__ import annotations

_BULK = b"$!="  # a length, then that many bytes
_LIST = b"*~>"  # a count, then that many elements
_PAIRS = b"%|"  # a count, then twice that many
_ATTRIBUTE = ord("|")  # stands before an element and is none itself


class Frames:
    """One direction of one connection (RESP2 and RESP3)."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._at = 0  # up to here the frame that is arriving is understood,
        self._missing = 1  # and so many elements of it are still to come

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes."""
        self._bytes += data
        complete = []
        while self._understand_element():
            if self._missing == 0:
                complete.append(bytes(self._bytes[: self._at]))
                del self._bytes[: self._at]
                self._at, self._missing = 0, 1
        return complete

    def _understand_element(self) -> bool:
        end = self._bytes.find(b"\r\n", self._at)
        if end < 0:
            return False
        kind, after = self._bytes[self._at], end + 2
        if kind in _BULK:
            length = int(self._bytes[self._at + 1 : end])
            after += length + 2 if length >= 0 else 0
            if len(self._bytes) < after:
                return False
        elif kind in _LIST:
            self._missing += max(int(self._bytes[self._at + 1 : end]), 0)
        elif kind in _PAIRS:
            self._missing += 2 * int(self._bytes[self._at + 1 : end]) + (kind == _ATTRIBUTE)
        self._at = after
        self._missing -= 1
        return True


def command(request: bytes) -> str:
    """The name of the command that a request calls, in capitals."""
    words = request.split(b"\r\n", 3) if request.startswith(b"*") else [b"", b"", request.split()[0]]
    return words[2].decode(errors="replace").upper()


def is_push(reply: bytes) -> bool:
    """Something that the server says unasked (RESP3)."""
    return reply.startswith(b">")
