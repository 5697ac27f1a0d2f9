"""Coverage-guided fuzzing of everything that reads bytes from elsewhere, for an hour or a night.

``pip install atheris``, then ``python -m tests.security.fuzz_decoders CORPUS_FOLDER -max_total_time=3600``. What is found
becomes a case of test_garbage.py, which the test suite runs; atheris is no dependency of it.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import Any

import msgspec

from firetime import Encrypted, InvalidOption, InvalidTaskPayload, JsonCodec, Signed
from firetime.store.address import Address
from firetime.values.codec import Guarded
from firetime.values.dead_letter import dead_letter
from firetime.values.definition import Definition
from firetime.values.message import State
from firetime.values.netstring import read_netstrings
from firetime.values.options import TaskOptions
from firetime.values.schedule import read_kept
from firetime.values.state import read_state

KEYS = {"k": b"k" * 32}
CODECS = [Guarded(codec, "firetime") for codec in (JsonCodec(), Signed(KEYS), Encrypted(KEYS))]


def _note(number: int, words: list[str], *, by_name: dict[str, float] | None = None) -> None: ...


NOTE = Definition(_note, "note", TaskOptions())


def read(data: bytes) -> None:
    """Everything that reads it either does, or raises the one error that it should."""
    for number, codec in enumerate(CODECS):
        with suppress(InvalidTaskPayload):
            message = codec.decode(data, "q", "a")
            assert number == 0, "nobody signed this"
            dead_letter(task_id="a", queue="q", message=message, raw=data, state=State())
            NOTE.decode(message.args)
    read_state(data)
    read_netstrings(data)
    with suppress(InvalidTaskPayload):
        NOTE.decode(msgspec.Raw(data))
    with suppress(InvalidOption):
        read_kept("often", data)
    with suppress(InvalidOption):
        Address(data.decode("utf-8", "surrogateescape"))


def main() -> None:
    atheris: Any = importlib.import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
