"""A run's summary becomes a table: for the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.measures import MEASURES, Aim, Measure
from bench.reasons import REASONS

Summary = dict[str, Any]
OURS, FLOOR = "firetime", "floor"
_ABSENT = "-"


def best_peer(summary: Summary, measure: Measure) -> tuple[str, float] | None:
    """Which peer was best at something, and its figure."""
    figures = {
        system["name"]: system["figures"][measure.key]
        for system in summary["systems"]
        if system["name"] not in {OURS, FLOOR} and measure.key in system["figures"]
    }
    if not figures:
        return None
    best = (max if measure.more_is_better else min)(figures, key=lambda name: figures[name])
    return best, figures[best]


def met(summary: Summary, measure: Measure, aim: Aim) -> bool | None:
    """Whether an aim is met; None when there is nothing to compare with."""
    ours = figure(summary, OURS, measure.key)
    peer = best_peer(summary, measure)
    others = {"peer": peer[1] if peer else None, "floor": figure(summary, FLOOR, measure.key), "alone": 1.0}
    other = others[aim.beside]
    if ours is None or other is None:
        return None
    return ours >= aim.least * other if aim.least is not None else ours <= (aim.most or 0) * other


def figure(summary: Summary, name: str, key: str) -> float | None:
    """A system's median."""
    found: dict[str, float] = next((each["figures"] for each in summary["systems"] if each["name"] == name), {})
    return found.get(key)


def rows(summary: Summary) -> Iterator[list[str]]:
    """The heading and a row for each measure."""
    peers = [system["name"] for system in summary["systems"] if system["name"] not in {OURS, FLOOR}]
    yield ["measure", "unit", OURS, "aim", "met", "best peer", "x peer", FLOOR, "x floor", *peers]
    for measure in MEASURES:
        ours, floor, best = figure(summary, OURS, measure.key), figure(summary, FLOOR, measure.key), None
        best = best_peer(summary, measure)
        yield [
            measure.title,
            measure.unit,
            number(ours, measure.digits),
            ", ".join(map(str, measure.aims)),
            _met(summary, measure),
            best[0] if best else _ABSENT,
            ratio(ours, best[1] if best else None),
            number(floor, measure.digits),
            ratio(ours, floor),
            *(number(figure(summary, peer, measure.key), measure.digits) for peer in peers),
        ]


def _met(summary: Summary, measure: Measure) -> str:
    said = {True: "yes", False: "NO", None: _ABSENT}
    return ", ".join(said[met(summary, measure, aim)] for aim in measure.aims)


def number(value: float | None, digits: int = 0) -> str:
    """With thousands set apart; a dash for nothing."""
    return _ABSENT if value is None else f"{value:,.{digits}f}"


def ratio(ours: float | None, other: float | None) -> str:
    """How many times the other."""
    return _ABSENT if ours is None or not other else f"{ours / other:.2f}"


def text(lines: list[list[str]]) -> str:
    """Columns for the terminal: the first to the left, numbers to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    done = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in {0, 3} else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        done.append("  ".join(cells).rstrip())
    return "\n".join(done)


def markdown_table(lines: list[list[str]]) -> str:
    """The same for a page."""
    heading, *body = lines
    rule = ["---" if column in {0, 3} else "--:" for column in range(len(heading))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heading, rule, *body])


def page(summary: Summary, growth: list[list[str]] | None, *, command: str, chart: str) -> str:
    """The whole Markdown page."""
    machine = summary["machine"]
    parts = [
        "# Benchmark",
        (
            f"Made by `{command}` on {summary['made']} in {summary['took_s'] // 60} min {summary['took_s'] % 60} s; this page, "
            f"`{chart}` and the JSON beside it are written by it. Each figure is the median of {summary['rounds']} rounds taken "
            f"in turn on one server: {summary['server']}, on loopback TCP, without persistence. Machine: {machine['processor']}, "
            f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}; load "
            f"average before: {machine['load_before']}{_PRIORITY[machine['real_time']]}."
        ),
        f"![{chart}]({chart})",
        markdown_table(list(rows(summary))),
        *_missed(summary),
        _HOW,
        "## Settings",
        f"All: {summary['shared_settings']}.",
        markdown_table(list(_settings(summary))),
        *_missing(summary),
    ]
    if growth:
        parts += ["## How cost grows", _GROWTH, markdown_table(growth)]
    return "\n\n".join(parts) + "\n"


_HOW = """\
`x` is firetime's figure divided by the other's. **The floor** is a bare loop over redis-py with hiredis and uvloop: it reads 200
entries, starts one asyncio task for each, acknowledges and deletes them in one call, and does nothing that a queue must do.

- *Dispatch*: callers wait for each answer. Systems whose call is a coroutine are compared with each other, and so are those
  whose call blocks (firetime: `dispatch_sync`). 50 at once are 50 coroutines, or 50 threads where the call blocks.
  In bulk: the system's call for many messages, in portions of 1,000, else its quickest public way.
- *Drain*: the queue is filled while the workers are frozen (SIGSTOP), so nothing runs before the clock starts; the first tenth
  is not counted. Systems without coroutines run the same no-op as a `def` in a thread or process.
- *Fail once*: tasks a second whose first run raises and whose second, after no delay, returns; all first runs come first. *Delayed*: the same drain, of
  messages that were sent to run a second later and are all due.
- *Idle*: one message at a time, 10 to 20 ms apart, from before the dispatch call to the first line of the task.
- *Server CPU* is the processor time of the whole server process (`used_cpu_user + used_cpu_sys` of INFO) divided by the tasks, for
  commandstats count what a script calls twice. *Server memory* is `MEMORY USAGE` of all keys."""

_PRIORITY = {
    False: "",
    True: "; all of it ran at real-time priority (`chrt -r 5`), for others used the machine",
}

_GROWTH = """\
firetime alone, one worker process unless said otherwise; medians of 3 rounds, of one for a million.

Flat, by the processor time a task, with workers and queues (on two cores more workers than one wait for each other and for the
server). Not flat with what waits: the server's time doubles towards a million messages. `perf` there shows 16 % in
the hash of keys, since the server moves its big hashes to smaller or larger tables while they change, 28 % in the allocator
(this Valkey is built with libc's), and the rest in lookups that miss the processor's caches; the scripts make the same calls. Not
flat with payloads from 10 KiB on: then bytes are what costs, encoded and proved at the dispatch, copied through two sockets
each way, decoded by the worker."""


def _missed(summary: Summary) -> Iterator[str]:
    """A paragraph for each aim that was not met: by how much not, and why."""
    paragraphs = [
        f"**{measure.title}**: {_beside(summary, measure, aim)} instead of {aim}. {REASONS[measure.key]}"
        for measure in MEASURES
        for aim in measure.aims
        if met(summary, measure, aim) is False
    ]
    yield "## Aims that this run did not meet" if paragraphs else "This run met all its aims."
    yield from paragraphs


def _beside(summary: Summary, measure: Measure, aim: Aim) -> str:
    ours = figure(summary, OURS, measure.key)
    if aim.beside == "alone":
        return f"{number(ours, measure.digits)} {measure.unit}"
    best = best_peer(summary, measure)
    name, other = (FLOOR, figure(summary, FLOOR, measure.key)) if aim.beside == "floor" else best or ("", None)
    return f"{ratio(ours, other)} x {name}"


BRIEF = (
    "drain",
    "threads",
    "bulk",
    "fifty",
    "one",
    "one_sync",
    "retry",
    "promote",
    "latency_p99",
    "import_ms",
    "idle_rss",
)
"""What the README quotes."""


def brief(summary: Summary) -> str:
    """The few rows that the README quotes."""
    told = [["", OURS, "the best peer", "ratio", "ratio to the floor"]]
    for measure in MEASURES:
        if measure.key in BRIEF:
            ours, best = figure(summary, OURS, measure.key), best_peer(summary, measure)
            peer = _ABSENT if best is None else f"{number(best[1], measure.digits)} {measure.unit} ({best[0]})"
            floor = ratio(ours, figure(summary, FLOOR, measure.key))
            own = f"{number(ours, measure.digits)} {measure.unit}"
            told.append([measure.title, own, peer, ratio(ours, best[1] if best else None), floor])
    return markdown_table(told)


def _settings(summary: Summary) -> Iterator[list[str]]:
    yield ["system", "version", "clients", "settings"]
    for system in summary["systems"]:
        clients = ", ".join(f"{name} {version}" for name, version in system["clients"].items())
        yield [system["name"], system["version"], clients, system["settings"]]


def _missing(summary: Summary) -> Iterator[str]:
    """What is not in the table, and why; and what a reader should know."""
    titles = {measure.key: measure.title for measure in MEASURES}
    lines = []
    for system in summary["systems"]:
        by_reason: dict[str, list[str]] = {}
        for key, reason in system["reasons"].items():
            by_reason.setdefault(reason, []).append(titles.get(key, "everything"))
        lines += [f"- {system['name']}: {reason} ({', '.join(found)})" for reason, found in by_reason.items()]
        lines += [f"- {system['name']}: {note}" for note in system["notes"]]
    if lines:
        yield "## Not measured, and notes"
        yield "\n".join(lines)
