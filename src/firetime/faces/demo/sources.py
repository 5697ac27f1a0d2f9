"""Python source files go in; how many functions, classes and lines they have comes out."""

from __future__ import annotations

import ast
import asyncio
import gc
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import PIPE

import msgspec

_NOT_THE_LIBRARY = {"site-packages", "dist-packages"}
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Counts(msgspec.Struct, frozen=True):
    """What was counted in one file or in many."""

    files: int = 0
    functions: int = 0
    classes: int = 0
    lines: int = 0
    unparsable: int = 0
    """Files that are no Python of this version: the library keeps a few to test its parser with."""

    def __add__(self, other: Counts) -> Counts:
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Counts(*(left + right for left, right in zip(mine, others, strict=True)))


class DirectCount(msgspec.Struct, frozen=True):
    """The count of one process, without any queue."""

    counts: Counts
    cpu_s: float
    """Processor time: the workers work beside it."""


def source_files() -> list[Path]:
    """Every Python source file of the standard library of this Python."""
    library = Path(sysconfig.get_path("stdlib"))
    found = (path for path in library.rglob("*.py") if not _NOT_THE_LIBRARY & set(path.parts))
    return sorted(path for path in found if path.is_file())


def measure(path: Path) -> Counts:
    """The counts of one file."""
    source = path.read_bytes()
    lines = len(source.splitlines())
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return Counts(files=1, lines=lines, unparsable=1)
    functions = classes = 0
    for statement in _statements(tree):
        functions += isinstance(statement, _FUNCTIONS)
        classes += isinstance(statement, ast.ClassDef)
    return Counts(files=1, functions=functions, classes=classes, lines=lines)


def count_directly(paths: Iterable[Path]) -> DirectCount:
    """The counts of many files, one after the other."""
    started = time.process_time()
    counts = sum((measure(path) for path in paths), Counts())
    return DirectCount(counts, time.process_time() - started)


async def count_in_one_process(paths: Iterable[Path]) -> DirectCount:
    """``count_directly``, in a process of its own."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__), stdin=PIPE, stdout=PIPE, start_new_session=True
    )
    try:
        told, _ = await child.communicate(msgspec.json.encode([str(path) for path in paths]))
        return msgspec.json.decode(told, type=DirectCount)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def prepare_to_measure() -> None:
    """Sets this process up for nothing but parsing."""
    # what Python thinks of old sources is not asked here, and a warning made an error would be a wrong count
    warnings.simplefilter("ignore")
    # trees hold no cycles: looking for some costs a quarter of the time
    gc.disable()


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements, at any depth. Functions and classes are statements: expressions need no look."""
    todo = [tree]
    while todo:
        parent = todo.pop()
        for block in _BLOCKS:
            held = getattr(parent, block, ())
            if isinstance(held, list):  # the body of a lambda is an expression
                todo += held
                yield from held


def main() -> None:
    """A process of its own counts the files whose names it reads, and writes what it found."""
    prepare_to_measure()
    paths = msgspec.json.decode(sys.stdin.buffer.read(), type=list[str])
    sys.stdout.buffer.write(msgspec.json.encode(count_directly(map(Path, paths))))


if __name__ == "__main__":
    main()
