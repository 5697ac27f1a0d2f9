"""Where the server is: a URL, checked before anything connects, and never shown with its password."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from firetime.values.errors import InvalidOption

Node = tuple[str, int]
"""Host and port."""

_SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
_EXPECTED = (
    "redis://[[user]:password@]host[:port][/db], rediss://... (TLS), valkey://..., unix:///path/to.sock[?db=0], "
    "redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/service[/db]"
)
_CONNECT_S = 5.0
_PORTS = {"single": 6379, "cluster": 6379, "sentinel": 26379}


class _Parts(msgspec.Struct, frozen=True):
    """A URL taken apart."""

    scheme: str
    kind: Literal["single", "cluster", "sentinel"]
    credentials: str
    hosts: str
    path: str
    query: str


class Address:
    """One server, a cluster, or what sentinels watch over. ``str()`` of it is safe to log."""

    def __init__(self, url: str) -> None:
        parts = _taken_apart(url)
        self.url = url
        self.kind: Literal["single", "cluster", "sentinel"] = parts.kind
        self.nodes: list[Node] = [] if parts.scheme == "unix" else _nodes(url, parts)
        """Where to begin: the server, some of the cluster's nodes, or the sentinels."""
        self.service = parts.path.split("/")[1] if self.kind == "sentinel" else ""
        """The name under which the sentinels know the server."""
        self._parts = parts
        _, _, secret = parts.credentials.rpartition(":")
        shown = url.replace(f":{secret}@", ":***@", 1) if secret else url
        self.shown = re.sub(r"(password=)[^&]*", r"\1***", shown)
        _check_database(self.shown, self._client_url())

    def __str__(self) -> str:
        return self.shown

    def connection_options(self, node: Node | None = None, *, blocking: bool = False) -> dict[str, Any]:
        """What the client's connection classes take, under ``connection_class`` the class itself; of one node, if given.

        ``blocking``: for the client's connections that need no event loop.

        Every limit is set here: client defaults have changed before, and a socket timeout cuts blocking reads.
        """
        client: Any = import_module("redis.connection" if blocking else "redis.asyncio.connection")
        try:
            options = _parsed(client, self._client_url())
        except ValueError as error:
            raise InvalidOption("url", self.shown, f"{_EXPECTED} ({error})") from None
        options.setdefault("connection_class", client.Connection)
        if node is not None:
            options |= {"host": node[0], "port": node[1]}
        return options | {
            "protocol": 2,
            "socket_timeout": None,
            "socket_connect_timeout": _CONNECT_S,
            "health_check_interval": 0,
            "decode_responses": False,
        }

    def sentinel_options(self, node: Node) -> dict[str, Any]:
        """The same for one of the sentinels, whose user and password are those of the query, if any."""
        own = dict(parse_qsl(self._parts.query))
        options = self.connection_options(node)
        options.pop("db", None)
        options["username"] = own.get("sentinel_username")
        options["password"] = own.get("sentinel_password")
        return options

    def _client_url(self) -> str:
        """The URL of the first node, as the client reads it; it does not know firetime's own words."""
        parts = self._parts
        scheme = parts.scheme.replace("valkey", "redis")
        query = "&".join(word for word in parts.query.split("&") if word and not word.startswith("sentinel_"))
        query = f"?{query}" if query else ""
        if scheme == "unix":
            return f"unix://{parts.credentials}{'@' if parts.credentials else ''}{parts.path}{query}"
        path = "/" + "/".join(parts.path.split("/")[2:]) if self.kind == "sentinel" else parts.path
        host = parts.hosts.split(",", maxsplit=1)[0]
        return f"{scheme}://{parts.credentials}{'@' if parts.credentials else ''}{host}{path}{query}"


def _parsed(client: Any, url: str) -> dict[str, Any]:
    return dict(client.parse_url(url))


def _taken_apart(url: str) -> _Parts:
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption("url", url, _EXPECTED)
    try:
        split: SplitResult = urlsplit(url)
    except ValueError as error:
        raise InvalidOption("url", _hidden(url), f"{_EXPECTED} ({error})") from None
    scheme, _, kind = split.scheme.partition("+")
    credentials, _, hosts = split.netloc.rpartition("@")
    if scheme not in _SCHEMES or kind not in ("", "cluster", "sentinel") or (scheme == "unix" and kind):
        raise InvalidOption("url", _hidden(url), _EXPECTED)
    if (scheme == "unix" and not split.path) or (kind == "sentinel" and not split.path.strip("/")):
        raise InvalidOption("url", _hidden(url), _EXPECTED)
    found: Literal["single", "cluster", "sentinel"] = "single"
    if kind == "cluster":
        found = "cluster"
    elif kind == "sentinel":
        found = "sentinel"
    return _Parts(scheme, found, credentials, hosts, split.path, split.query)


def _nodes(url: str, parts: _Parts) -> list[Node]:
    found: list[Node] = []
    for host in parts.hosts.split(","):
        try:
            split = urlsplit(f"//{host}")
            name, port = split.hostname, split.port
        except ValueError as error:
            raise InvalidOption("url", _hidden(url), f"{_EXPECTED} ({error})") from None
        if not name or port == 0:
            raise InvalidOption("url", _hidden(url), _EXPECTED)
        found.append((name, port or _PORTS[parts.kind]))
    if len(found) > 1 and parts.kind == "single":
        raise InvalidOption("url", _hidden(url), f"one host, or redis+cluster://, or redis+sentinel://; {_EXPECTED}")
    return found


def _check_database(shown: str, url: str) -> None:
    split = urlsplit(url)
    database = split.path.lstrip("/") if split.scheme != "unix" else dict(parse_qsl(split.query)).get("db", "")
    if database and not database.isdigit():
        raise InvalidOption("url", shown, f"a database number, not {database!r}")


def _hidden(url: str) -> str:
    """A URL that cannot be understood may hold a password anywhere: it is not shown where it may."""
    return f"{url.partition('://')[0]}://..." if "@" in url else url
