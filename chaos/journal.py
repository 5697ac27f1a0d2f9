"""What a process does is told outside Redis: one file a process, one line for each thing that happened.

A line is handed to the kernel before the process goes on, so that SIGKILL loses none. The first letter says what it tells:

=====  ==========================================================================================================
``b``  a process began: slot, pid
``i``  a dispatch is about to be sent: id, order, task, queue, explicit, delay_us, unique key
``a``  it was answered: id, "yes" | "held" | "moved" | "exists" | "maybe" | "no", holder or error
``k``  a cancel is about to be asked for: id
``c``  it was answered: id, answer
``p``  a producer is done with a batch: number
``s``  a run started: id, order, task, queue, fence, failures, crashes, fire_ms, nominal_ms
``e``  a run ended: id, fence, "good" | "failed" | "stopped"
``t``  the server took a settlement, or refused it: id, fence, "Complete" | "RetryIn" | ... | "refused"
``d``  the failure handler was told: id, reason
``D``  a dead letter was taken away: id, reason, failures
``q``  this process stood still without knowing: from_us, to_us
=====  ==========================================================================================================

Each ends with the machine's time in microseconds, which is the server's as well: it runs on the same machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from chaos.clock import true_us


class Journal:
    """The journal of this process."""

    def __init__(self, folder: Path, slot: str) -> None:
        self.path = folder / f"{slot}.{os.getpid()}.tsv"
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.tell("b", slot, os.getpid())

    def tell(self, *words: object) -> None:
        """One line."""
        os.write(self._descriptor, _line(words))

    def tell_all(self, lines: Iterable[tuple[object, ...]]) -> None:
        """Many lines in one write: all of them are there, or the last is torn."""
        written = b"".join(map(_line, lines))
        while written:  # a disk that is full raises; a short write goes on
            written = written[os.write(self._descriptor, written) :]


def _line(words: tuple[object, ...]) -> bytes:
    return ("\t".join(map(str, (*words, true_us()))) + "\n").encode()


def told(path: Path) -> Iterable[list[str]]:
    """The lines of a journal, as words; without the last one where the process was killed while it wrote it."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1].decode().split("\t")
