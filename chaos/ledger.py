"""The journals of all processes become one SQLite database, which the proof asks."""

from __future__ import annotations

import itertools
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from chaos.diary import Happened
from chaos.journal import told

_SCHEMA = """
CREATE TABLE process (name TEXT, slot TEXT, began_us INTEGER);
CREATE TABLE sent (id TEXT, number INTEGER, task TEXT, queue TEXT, explicit INTEGER, delay_us INTEGER, key TEXT,
                   at_us INTEGER);
CREATE TABLE answer (id TEXT, what TEXT, other TEXT, at_us INTEGER);
CREATE TABLE cancel_asked (id TEXT, at_us INTEGER);
CREATE TABLE cancel_answer (id TEXT, what TEXT, at_us INTEGER);
CREATE TABLE start (id TEXT, number INTEGER, task TEXT, queue TEXT, fence INTEGER, failures INTEGER, crashes INTEGER,
                    fire_ms INTEGER, nominal_ms INTEGER, at_us INTEGER, process TEXT);
CREATE TABLE finish (id TEXT, fence INTEGER, how TEXT, at_us INTEGER, process TEXT);
CREATE TABLE settlement (id TEXT, fence INTEGER, what TEXT, at_us INTEGER, process TEXT);
CREATE TABLE told (id TEXT, reason TEXT, at_us INTEGER);
CREATE TABLE stall (slot TEXT, began_us INTEGER, ended_us INTEGER);
CREATE TABLE fault (kind TEXT, struck TEXT, began_us INTEGER, ended_us INTEGER, amount REAL, ordered INTEGER);
CREATE TABLE dead (id TEXT, reason TEXT, failures INTEGER);
CREATE TABLE cancelled (id TEXT);
CREATE TABLE history (id TEXT);
"""

_INDEXES = """
CREATE INDEX sent_id ON sent (id);
CREATE INDEX answer_id ON answer (id, what);
CREATE INDEX start_id ON start (id, fence);
CREATE INDEX finish_id ON finish (id, fence, process);
CREATE INDEX settlement_id ON settlement (id);
CREATE INDEX dead_id ON dead (id);
CREATE INDEX cancelled_id ON cancelled (id);
CREATE INDEX told_id ON told (id);
CREATE INDEX history_id ON history (id);
CREATE INDEX cancel_answer_id ON cancel_answer (id);
ANALYZE;
"""

_TABLES = {
    "i": ("sent", ""),
    "a": ("answer", ""),
    "k": ("cancel_asked", ""),
    "c": ("cancel_answer", ""),
    "s": ("start", "process"),
    "e": ("finish", "process"),
    "t": ("settlement", "process"),
    "d": ("told", ""),
    "D": ("dead", "until"),
    "q": ("stall", "slot"),
}
"""First letter of a line -> the table it goes into, and what of the journal goes with it, or is left out."""

_TOGETHER = 50_000


def _row(name: str, words: list[str], slot: str, process: str) -> list[str]:
    match name:
        case "process":
            return [*words, process]
        case "slot":
            return [slot, *words[:-1]]
        case "until":
            return words[:-1]
        case _:
            return words


class Ledger:
    """Everything that is known of a run."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path)
        # it is made anew from the journals, whatever becomes of it
        self.db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -200000;")
        self.db.executescript(_SCHEMA)

    def read(self, folder: Path) -> None:
        """Merges the journals."""
        for path in sorted(folder.glob("*.tsv")):
            lines = iter(told(path))
            while page := list(itertools.islice(lines, _TOGETHER)):
                self._take(page, path)

    def _take(self, page: Iterable[list[str]], path: Path) -> None:
        slot = path.name.split(".")[0]
        sorted_out: defaultdict[str, list[list[str]]] = defaultdict(list)
        for letter, *words in page:
            if letter in _TABLES:
                table, name = _TABLES[letter]
                sorted_out[table].append(_row(name, words, slot, path.stem))
            elif letter == "b":
                sorted_out["process"].append([path.stem, slot, words[-1]])
        for table, rows in sorted_out.items():
            self.put(table, rows)

    def put(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Adds rows as they stand in the table."""
        listed = list(rows)
        if listed:
            marks = ", ".join("?" * len(listed[0]))
            self.db.executemany(f"INSERT INTO {table} VALUES ({marks})", listed)  # noqa: S608 - tables are named here

    def take_happened(self, happened: Iterable[Happened]) -> None:
        """Adds what was done to the run."""
        self.put("fault", ((h.kind, h.struck, h.began_us, h.ended_us, h.amount, int(h.ordered)) for h in happened))

    def close_the_books(self) -> None:
        """Nothing is added from now on: it can be asked."""
        self.db.executescript(_INDEXES)
        self.db.commit()

    def rows(self, question: str, *values: object) -> Iterator[tuple[object, ...]]:
        """The answer to a question in SQL."""
        yield from self.db.execute(question, values)

    def number(self, question: str, *values: object) -> int:
        """An answer that is one number."""
        (answer,) = self.db.execute(question, values).fetchone()
        return int(answer or 0)

    def close(self) -> None:
        """Lets go of the file."""
        self.db.close()
