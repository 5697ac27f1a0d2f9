"""What may be done next, drawn by weight.

Hypothesis' own choice among rules leaves out most of them in most runs; here it takes many kinds of calls, one after the
other, before anything of interest can go wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import strategies as st

F = TypeVar("F", bound=Callable[..., None])
_MARK = "_action"


@dataclass(frozen=True, slots=True)
class Action:
    """A method of the machine."""

    name: str
    weight: int
    when: Callable[[Any], object]
    arguments: st.SearchStrategy[dict[str, Any]]


def action(
    weight: int = 1, when: Callable[[Any], object] = lambda _: True, **arguments: st.SearchStrategy[Any]
) -> Callable[[F], F]:
    """The method may be drawn, `weight` times as likely as another, while `when` holds; its arguments are drawn too."""

    def mark(method: F) -> F:
        setattr(method, _MARK, Action(method.__name__, weight, when, st.fixed_dictionaries(arguments)))
        return method

    return mark


def actions_of(machine: type) -> tuple[Action, ...]:
    """In the order in which they are written."""
    found = (getattr(member, _MARK, None) for member in vars(machine).values())
    return tuple(one for one in found if isinstance(one, Action))


def possible(actions: tuple[Action, ...], machine: object) -> list[Action]:
    """Those that may be taken now, each as often as its weight."""
    return [one for one in actions if one.when(machine) for _ in range(one.weight)]
