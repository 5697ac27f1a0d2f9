"""What counts as a function, a class and a line; each case is a file as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from firetime.faces.demo.sources import Counts, count_directly, count_in_one_process, measure, source_files

NESTED = """
class A:
    def one(self):
        if self:
            def two(): pass
        else:
            async def three(): pass
        try: pass
        except ValueError:
            class B: pass
        finally:
            f = lambda: (lambda: 0)
        match self:
            case 1:
                def four(): pass
"""


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        (b"", Counts(files=1)),
        (b"x = 1", Counts(files=1, lines=1)),
        (b"x = 1\r\ny = 2\r\n", Counts(files=1, lines=2)),
        (NESTED.encode(), Counts(files=1, functions=4, classes=2, lines=15)),
        ("# -*- coding: latin-1 -*-\nn = 'ü'\n".encode("latin-1"), Counts(files=1, lines=2)),
        (b"print 'old'\n", Counts(files=1, lines=1, unparsable=1)),
        (b"x = 1\n\0", Counts(files=1, lines=2, unparsable=1)),
        (b"n = '\xfc'\n", Counts(files=1, lines=1, unparsable=1)),
    ],
)
def test_one_file(tmp_path: Path, source: bytes, counts: Counts) -> None:
    file = tmp_path / "file.py"
    file.write_bytes(source)
    assert measure(file) == counts


async def test_another_process_counts_the_same() -> None:
    few = [path for path in source_files() if path.parent.name == "json"]
    assert len(few) >= 5
    assert (await count_in_one_process(few)).counts == count_directly(few).counts
