"""Keys have ids: one of them seals, each of them opens, so that a key can be changed while messages are on their way."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping

from firetime.values.access import Secret
from firetime.values.errors import InvalidOption

KEY_BYTES = 32
"""What HMAC-SHA256 can use at its full strength (RFC 2104, section 3: not less than the hash's length), and AES-256 takes."""

_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class Keyring:
    """Keys by their ids. ``repr`` tells the ids only."""

    def __init__(self, keys: Mapping[str, bytes], use: str | None = None, *, exact: bool = False) -> None:
        if not isinstance(keys, Mapping) or not keys:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("keys", Secret(""), 'keys by their ids: {"2026-11": key}')
        for id, key in keys.items():
            _check(id, key, exact=exact)
        if use is None and len(keys) > 1:
            raise InvalidOption("use", use, f"the id of the key that seals, one of {', '.join(keys)}")
        self.use = next(iter(keys)) if use is None else use
        if self.use not in keys:
            raise InvalidOption("use", self.use, f"the id of one of the keys: {', '.join(keys)}")
        self._keys = {id.encode(): bytes(key) for id, key in keys.items()}

    def __repr__(self) -> str:
        return f"Keyring({', '.join(map(bytes.decode, self._keys))}; use={self.use!r})"

    def get(self, id: bytes) -> bytes | None:
        """The key of an id."""
        return self._keys.get(id)


def read_keys(name: str, text: str) -> tuple[dict[str, bytes], str]:
    """Keys out of one variable, ``<id>:<base64>`` with commas between them, and the id of the first, which seals."""
    keys: dict[str, bytes] = {}
    for word in text.split(","):
        id, colon, encoded = word.strip().partition(":")
        try:
            key = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not colon or not key:
            raise InvalidOption(name, Secret(""), "<id>:<key in base64>, with commas between several; the first seals")
        keys[id] = key
    return keys, next(iter(keys))


def _check(id: object, key: object, *, exact: bool) -> None:
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        raise InvalidOption("keys", id if isinstance(id, str) else type(id).__name__, "ids of A-Z a-z 0-9 _ . -")
    most = f"{KEY_BYTES} bytes" if exact else f"at least {KEY_BYTES} bytes"
    expected = f"{most}, as secrets.token_bytes({KEY_BYTES}) gives"
    if not isinstance(key, (bytes, bytearray)):
        raise InvalidOption(f"keys[{id!r}]", type(key), expected)
    if len(key) < KEY_BYTES or (exact and len(key) != KEY_BYTES):
        raise InvalidOption(f"keys[{id!r}]", f"<{len(key)} bytes>", expected)
