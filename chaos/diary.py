"""What was done to the run, and what else was seen to go wrong: the conductor's own journal."""

from __future__ import annotations

import msgspec

from chaos.clock import true_us
from chaos.crew import Place

ALL = "all"
"""Struck is the server, or everybody's way to it."""


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """One fault as it happened."""

    kind: str
    struck: str
    """A slot, or ``all``."""
    began_us: int
    ended_us: int
    amount: float = 0.0
    ordered: bool = True
    """Whether the schedule said so; else it was found: a server that did not answer, though nobody had done anything."""


class Diary:
    """Everything that happened, in the order of its end."""

    def __init__(self) -> None:
        self.happened: list[Happened] = []
        self.not_possible: list[str] = []
        """Faults of the schedule that found nothing to strike."""
        self.broken: list[str] = []
        """Processes that ended by themselves: a defect, whatever else the journals prove."""

    def write(self, kind: str, struck: str, began_us: int, *, amount: float = 0.0, ordered: bool = True) -> None:
        """A fault is over."""
        self.happened.append(
            Happened(kind=kind, struck=struck, began_us=began_us, ended_us=true_us(), amount=amount, ordered=ordered)
        )

    def vanished(self, place: Place, code: int) -> None:
        """A process ended, and not because the schedule said so."""
        if code == -9 and place.slot.startswith("worker"):
            self.write("worker killed by its task", place.slot, true_us())
        else:
            self.broken.append(f"{place.slot} ended with exit code {code}; see {place.log.name}")
