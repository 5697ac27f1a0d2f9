"""Calls go out as EVALSHA with their keys and arguments by name; the names are those in the script's first lines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import cast

from firetime.store.keys import QueueKeys

Argument = str | bytes | int
_SIGNATURE = re.compile(r"^local (?P<names>[\w, ]+) =(?P<values>(?: (?:KEYS|ARGV)\[\d+\],?)+)$", re.MULTILINE)
_INCLUDE = re.compile(r"^--#include (?P<parts>[\w ]+)$", re.MULTILINE)


class Script:
    """One Lua script: an edge, or a question."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.key_names, self.argument_names = _signature(source)
        self._key_positions = {name: number for number, name in enumerate(self.key_names)}
        self.source = _INCLUDE.sub(lambda found: _parts(found["parts"]), source)
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def request(
        self,
        keys: QueueKeys,
        arguments: Mapping[str, Argument],
        rest: Sequence[Argument] = (),
        *,
        more_keys: Sequence[str] = (),
        **named_keys: str,
    ) -> list[Argument]:
        """The words of one call. ``rest`` follows the named arguments, ``more_keys`` the named keys.

        Keys are the queue's, by their name in the script, unless given here. A wrong or missing name is a ``TypeError``.
        """
        named = [*keys.words(self.name, self.key_names)]
        for name, key in named_keys.items():
            if name not in self._key_positions:
                raise TypeError(f"script {self.name!r} has no key {name!r}")
            named[self._key_positions[name]] = key
        if None in named:
            raise TypeError(f"script {self.name!r}: key {self.key_names[named.index(None)]!r} was not given")
        if len(arguments) != len(self.argument_names) or not all(map(arguments.__contains__, self.argument_names)):
            raise TypeError(f"script {self.name!r} takes {self.argument_names}, not {sorted(arguments)}")
        words: list[Argument] = ["EVALSHA", self.sha, len(named) + len(more_keys), *cast(list[str], named), *more_keys]
        words += map(arguments.__getitem__, self.argument_names)
        words += rest
        return words


@cache
def script(name: str) -> Script:
    """The script in ``lua/<name>.lua``."""
    return Script(name, _text(name))


def all_scripts() -> list[Script]:
    """Every script there is, by name."""
    names = sorted(entry.name[:-4] for entry in _folder().iterdir() if entry.name.endswith(".lua"))
    return [script(name) for name in names]


def _signature(source: str) -> tuple[list[str], list[str]]:
    found: dict[str, list[str]] = {"KEYS": [], "ARGV": []}
    for line in _SIGNATURE.finditer(source):
        for name, value in zip(line["names"].split(","), line["values"].split(","), strict=False):
            table, position = value.strip().rstrip("]").split("[")
            found[table].append(name.strip())
            if len(found[table]) != int(position):
                raise SyntaxError(f"{name.strip()} = {value.strip()}: expected {table}[{len(found[table])}]")
    return found["KEYS"], found["ARGV"]


def _parts(names: str) -> str:
    return "\n".join(_text(f"parts/{name}") for name in names.split())


def _folder() -> Traversable:
    return files("firetime.store") / "lua"


def _text(name: str) -> str:
    return (_folder() / f"{name}.lua").read_text("utf-8")
