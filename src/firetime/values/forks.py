"""In a forked child what belongs to the parent is let go of, before anything else runs there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_to_do: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def in_a_child(owner: T, do: Callable[[T], None]) -> None:
    """In each child that is forked from now on, ``do(owner)``, as long as anybody else holds the owner."""
    _to_do[owner] = do


def _begin_anew() -> None:
    for owner, do in tuple(_to_do.items()):
        do(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
