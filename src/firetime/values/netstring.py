"""A foreign stream entry's fields as one record: netstrings (D. J. Bernstein, 1997), which hold any bytes."""

from __future__ import annotations

_MOST_DIGITS = 18
"""More than any length has; Python refuses to read thousands of them."""


def read_netstrings(raw: bytes) -> list[bytes]:
    """The strings out of ``<length>:<bytes>,...``; what is left over when somebody cut it comes as the last one."""
    found: list[bytes] = []
    at = 0
    while at < len(raw):
        colon = raw.find(b":", at)
        digits = raw[at:colon]
        if colon < 0 or not digits.isdigit() or len(digits) > _MOST_DIGITS:
            found.append(raw[at:])
            break
        start = colon + 1
        end = start + int(digits)
        found.append(raw[start:end])
        at = end + 1
    return found
