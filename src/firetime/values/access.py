"""Who asks the server, and how the server proves to be itself; what is secret in it is never shown."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from firetime.values.errors import InvalidOption

Verify = Literal["full", "ca", "none"]
"""What a server's certificate must prove: signed by a CA and for this host name (``full``), only signed, or nothing."""


class Secret:
    """A word that its ``repr`` and ``str`` hide; ``word`` tells it."""

    __slots__ = ("word",)

    def __init__(self, word: str) -> None:
        self.word = word

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.word == other.word

    def __hash__(self) -> int:
        return hash(self.word)


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say about getting in; the URL's own words go before them."""

    username: str | None = None
    password: Secret | None = None
    tls_ca: str | None = None
    """Files in PEM form; without a CA those of the system are trusted."""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_verify: Verify | None = None


OPEN = Access()
"""Nothing said: the server lets everybody in, or the URL says it all."""


def checked_secret(name: str, value: object) -> Secret:
    """A secret out of an argument or the environment; ``InvalidOption`` does not show what was given instead."""
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value:
        raise InvalidOption(name, Secret(""), "a text that is not empty")
    return Secret(value)


def checked_word(name: str, value: object) -> str:
    """A text that is not empty, a path among them."""
    text = str(value)
    if value is None or isinstance(value, (bytes, bool)) or not text or not text.isprintable():
        raise InvalidOption(name, value, "a text that is not empty")
    return text


def checked_verify(name: str, value: object) -> Verify:
    """How much of a certificate is verified."""
    for known in get_args(Verify):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise InvalidOption(name, value, "one of 'full', 'ca', 'none'")
