"""Where the server is: a URL, checked before anything connects, and never shown with its password."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from firetime.store.tls import CLIENT_WORDS, TLS_WORDS, said_of_tls, tls_options
from firetime.values.access import OPEN, Access, Secret
from firetime.values.errors import InvalidOption
from firetime.values.ids import is_utf8

Node = tuple[str, int]
"""Host and port."""

_SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
_EXPECTED = (
    "redis://[[user]:password@]host[:port][/db], rediss://... (TLS), valkey://..., unix:///path/to.sock[?db=0], "
    "redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/service[/db]"
)
_OWN_WORDS = ("db", "username", "password", "client_name", "sentinel_username", "sentinel_password")
_CLIENT_LIMITS = (
    "health_check_interval",
    "protocol",
    "retry_on_timeout",
    "socket_connect_timeout",
    "socket_keepalive",
    "socket_timeout",
)
"""Words of redis-py URLs whose values firetime sets itself: they are taken and not followed."""

_SECRET_WORDS = ("password", "sentinel_password", "ssl_password")
_UNMEANT = "where a user or password has one of @ : / ? # % in it, write it percent-encoded (@ is %40)"
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
    """One server, a cluster, or what sentinels watch over. ``str()`` of it is safe to log.

    What the URL does not say itself about user, password and TLS, ``access`` says.
    """

    def __init__(self, url: str, access: Access = OPEN) -> None:
        parts = _taken_apart(url)
        self.url = url
        self.kind: Literal["single", "cluster", "sentinel"] = parts.kind
        self.nodes: list[Node] = [] if parts.scheme == "unix" else _nodes(url, parts)
        """Where to begin: the server, some of the cluster's nodes, or the sentinels."""
        self.service = parts.path.split("/")[1] if self.kind == "sentinel" else ""
        """The name under which the sentinels know the server."""
        self._parts = parts
        self._access = access
        self._query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.shown = _shown(parts, self._query, sure_of_user=access.password is not None)
        _check_words(self.shown, self._query)
        _check_database(self.shown, self._client_url(), cluster=self.kind == "cluster")
        self._tls = self._checked_tls()

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    def connection_options(self, node: Node | None = None, *, blocking: bool = False) -> dict[str, Any]:
        """What the client's connection classes take, under ``connection_class`` the class itself; of one node, if given.

        ``blocking``: for the client's connections that need no event loop.

        Every limit is set here: client defaults have changed before, and a socket timeout cuts blocking reads.
        """
        client: Any = import_module("redis.connection" if blocking else "redis.asyncio.connection")
        try:
            options = _parsed(client, self._client_url())
        except ValueError:
            raise InvalidOption("url", self.shown, _EXPECTED) from None
        options.setdefault("connection_class", client.Connection)
        if node is not None:
            options |= {"host": node[0], "port": node[1]}
        user, password = self._credentials()
        return (
            options
            | self._tls
            | _unnamed(client)
            | {
                "username": user,
                "password": password,
                "protocol": 2,
                "socket_timeout": None,
                "socket_connect_timeout": _CONNECT_S,
                "health_check_interval": 0,
                "decode_responses": False,
            }
        )

    def sentinel_options(self, node: Node) -> dict[str, Any]:
        """The same for one of the sentinels, whose user and password are those of the query, if any."""
        options = self.connection_options(node)
        options.pop("db", None)
        options["username"] = self._query.get("sentinel_username")
        options["password"] = self._query.get("sentinel_password")
        return options

    def _credentials(self) -> tuple[str | None, str | None]:
        user, _, password = self._parts.credentials.partition(":")
        kept = self._access.password
        return (
            unquote(user) or self._query.get("username") or self._access.username,
            unquote(password) or self._query.get("password") or (kept.word if kept is not None else None),
        )

    def _checked_tls(self) -> dict[str, Any]:
        if self._parts.scheme in ("rediss", "valkeys"):
            return tls_options(self._query, self._access)
        # unencrypted where encryption was asked for is not what anybody means
        for word, value in said_of_tls(self._query, self._access).items():
            raise InvalidOption(word, value, f"a rediss:// URL with it, for {self.shown} is not encrypted")
        return {}

    def _client_url(self) -> str:
        """The URL of the first node, as the client reads it; what firetime says itself is left out."""
        parts = self._parts
        scheme = parts.scheme.replace("valkey", "redis")
        kept = {word: value for word, value in self._query.items() if word in ("db", "client_name")}
        query = f"?{urlencode(kept)}" if kept else ""
        if scheme == "unix":
            return f"unix://{parts.path}{query}"
        path = "/" + "/".join(parts.path.split("/")[2:]) if self.kind == "sentinel" else parts.path
        host = parts.hosts.split(",", maxsplit=1)[0]
        return f"{scheme}://{host}{path}{query}"


def _parsed(client: Any, url: str) -> dict[str, Any]:
    return dict(client.parse_url(url))


def _unnamed(client: Any) -> dict[str, Any]:
    """The client does not tell its own name: CLIENT SETINFO takes two commands, and a right that nobody needs."""
    known = inspect.signature(client.AbstractConnection.__init__).parameters
    return {"driver_info": None} if "driver_info" in known else {"lib_name": None, "lib_version": None}


def _taken_apart(url: str) -> _Parts:
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption("url", url, _EXPECTED)
    if not is_utf8(url):
        raise InvalidOption("url", _hidden(url), f"{_EXPECTED}, in UTF-8")
    try:
        split: SplitResult = urlsplit(url)
    except ValueError:
        raise InvalidOption("url", _hidden(url), _EXPECTED) from None
    scheme, _, kind = split.scheme.partition("+")
    credentials, _, hosts = split.netloc.rpartition("@")
    if scheme not in _SCHEMES or kind not in ("", "cluster", "sentinel") or (scheme == "unix" and kind):
        raise InvalidOption("url", _hidden(url), _EXPECTED)
    if (scheme == "unix" and not split.path) or (kind == "sentinel" and not split.path.strip("/")):
        raise InvalidOption("url", _hidden(url), _EXPECTED)
    if split.fragment or (scheme != "unix" and "@" in split.path) or ("@" in split.query and not credentials):
        raise InvalidOption("url", _hidden(url), f"{_EXPECTED}; {_UNMEANT}")
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
        except ValueError:
            # what follows a colon may be a password, so that it is not told
            raise InvalidOption("url", _hidden(url), f"{_EXPECTED}; {_UNMEANT}") from None
        if not name or port == 0:
            raise InvalidOption("url", _hidden(url), _EXPECTED)
        found.append((name, port or _PORTS[parts.kind]))
    if len(found) > 1 and parts.kind == "single":
        raise InvalidOption("url", _hidden(url), f"one host, or redis+cluster://, or redis+sentinel://; {_EXPECTED}")
    return found


def _check_words(shown: str, query: dict[str, str]) -> None:
    known = (*_OWN_WORDS, *TLS_WORDS, *CLIENT_WORDS, *_CLIENT_LIMITS)
    for word in query:
        if word not in known:
            raise InvalidOption("url", shown, f"of the words {', '.join(sorted(known))}, not {word!r}, behind the ?")


def _check_database(shown: str, url: str, *, cluster: bool) -> None:
    split = urlsplit(url)
    database = split.path.lstrip("/") if split.scheme != "unix" else dict(parse_qsl(split.query)).get("db", "")
    if database and not database.isdigit():
        raise InvalidOption("url", shown, f"a database number, not {database!r}")
    if cluster and database.strip("0"):
        raise InvalidOption("url", shown, "no database but 0, the only one that a cluster has")


def _shown(parts: _Parts, query: dict[str, str], *, sure_of_user: bool) -> str:
    user, colon, password = parts.credentials.partition(":")
    if user and not colon and not sure_of_user:
        # a password that lacks its colon looks like a user
        user = repr(Secret(user))
    credentials = f"{user}{':***' if password else colon}@" if parts.credentials else ""
    words = "&".join(
        f"{quote(word)}={repr(Secret(value)) if word in _SECRET_WORDS else quote(value, safe='/:')}"
        for word, value in query.items()
    )
    scheme = parts.scheme if parts.kind == "single" else f"{parts.scheme}+{parts.kind}"
    return f"{scheme}://{credentials}{parts.hosts}{parts.path}{f'?{words}' if words else ''}"


def _hidden(url: str) -> str:
    """A URL that cannot be understood may hold a password anywhere: it is not shown where it may."""
    return f"{url.partition('://')[0]}://..." if "@" in url or "password" in url else url
