"""Where the server is: a URL, checked before anything connects, and never shown with its password."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from firetime.values.errors import InvalidOption

_SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
_EXPECTED = (
    "redis://[[user]:password@]host[:port][/db], rediss://... (TLS), valkey://... or unix:///path/to.sock[?db=0]"
)
_CONNECT_S = 5.0


class Address:
    """One server. ``str()`` of it is safe to log."""

    def __init__(self, url: str) -> None:
        parts = _checked(url)
        self.url = url
        self._client_url = url.replace("valkey", "redis", 1) if parts.scheme.startswith("valkey") else url
        secret = f":{parts.password}@" if parts.password else None
        self.shown = url.replace(secret, ":***@") if secret else url

    def __str__(self) -> str:
        return self.shown

    def connection_options(self) -> dict[str, Any]:
        """What the client's connection classes take, under ``connection_class`` the asynchronous class itself.

        Every limit is set here: client defaults have changed before, and a socket timeout cuts blocking reads.
        """
        from redis.asyncio import connection as client

        try:
            options = _parsed(client, self._client_url)
        except ValueError as error:
            raise InvalidOption("url", self.shown, f"{_EXPECTED} ({error})") from None
        options.setdefault("connection_class", client.Connection)
        return options | {
            "protocol": 2,
            "socket_timeout": None,
            "socket_connect_timeout": _CONNECT_S,
            "health_check_interval": 0,
            "decode_responses": False,
        }

    def blocking_options(self) -> dict[str, Any]:
        """The same for the client's blocking connections, whose class differs."""
        from redis import connection as client

        options = _parsed(client, self._client_url)
        options.setdefault("connection_class", client.Connection)
        return options | {
            "protocol": 2,
            "socket_timeout": _CONNECT_S,
            "socket_connect_timeout": _CONNECT_S,
            "health_check_interval": 0,
            "decode_responses": False,
        }


def _parsed(client: Any, url: str) -> dict[str, Any]:
    return dict(client.parse_url(url))


def _checked(url: str) -> SplitResult:
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption("url", url, _EXPECTED)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidOption("url", url, f"{_EXPECTED} ({error})") from None
    shown = f"{parts.scheme}://..."
    if parts.scheme not in _SCHEMES or (parts.scheme == "unix" and not parts.path):
        raise InvalidOption("url", shown if "@" in url else url, _EXPECTED)
    if parts.scheme != "unix" and (not parts.hostname or port == 0):
        raise InvalidOption("url", shown if "@" in url else url, _EXPECTED)
    database = parts.path.lstrip("/") if parts.scheme != "unix" else dict(parse_qsl(parts.query)).get("db", "")
    if database and not database.isdigit():
        raise InvalidOption("url", shown if "@" in url else url, f"a database number, not {database!r}")
    return parts
