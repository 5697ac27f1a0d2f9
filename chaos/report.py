"""An outcome becomes a page for people and a file for machines."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec

from chaos.run import Outcome
from firetime.values.version import __version__


def text(outcome: Outcome) -> str:
    """The figures, for a terminal."""
    figures = outcome.figures
    lines = [f"{name:<44}{value:>14}" for name, value in _rows(outcome)]
    lines.append("faults: " + ", ".join(f"{kind} {times}" for kind, times in figures.faults.items()))
    if outcome.held:
        lines.append("every promise held")
    lines += [f"BROKEN: {each.promise}: {each.times}; {'; '.join(each.examples)}" for each in outcome.broken]
    return "\n".join(lines)


def page(outcome: Outcome, command: str) -> str:
    """The report as Markdown."""
    plan, figures = outcome.plan, outcome.figures
    verdict = "Every promise held." if outcome.held else "**Not every promise held.**"
    faults = sum(figures.faults.values())
    told = f"{figures.dispatched:,} tasks dispatched, {faults:,} faults, {figures.lost} lost, {figures.early} early."
    return "\n".join(
        [
            "# Chaos: what came of the worst day",
            "",
            f"`{command}`: {told} {verdict}",
            "",
            "| | |",
            "|---|---:|",
            *(f"| {name} | {value} |" for name, value in _rows(outcome)),
            "",
            "| fault | times |",
            "|---|---:|",
            *(f"| {kind} | {times} |" for kind, times in figures.faults.items()),
            "",
            *(f"- broken: {each.promise}: {each.times} ({'; '.join(each.examples)})" for each in outcome.broken),
            *([""] if outcome.broken else []),
            "| setting | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in msgspec.to_builtins(plan).items()),
            f"| firetime | {__version__} |",
            f"| server | {outcome.server} |",
            f"| Python | {platform.python_version()} |",
            f"| machine | {os.cpu_count()} processors, {platform.system()} {platform.machine()} |",
            "",
            "How it is done, what is proved, and what a seed reproduces: [README.md](README.md).",
            "",
        ]
    )


def write(outcome: Outcome, folder: Path, name: str, command: str) -> None:
    """Writes both."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(page(outcome, command), encoding="utf-8")
    told = msgspec.json.format(msgspec.json.encode(outcome), indent=1)
    (folder / f"{name}.json").write_bytes(told + b"\n")


def _rows(outcome: Outcome) -> list[tuple[str, str]]:
    figures = outcome.figures
    repeats = ", ".join(f"{why} {times:,}" for why, times in figures.repeats.items()) or "0"
    return [
        ("dispatched and acknowledged", f"{figures.dispatched:,}"),
        ("not acknowledged, perhaps accepted", f"{figures.maybe:,}"),
        ("of those, run", f"{figures.maybe_run:,}"),
        ("refused (unique key held, memory full, outage)", f"{figures.refused:,}"),
        ("done", f"{figures.done:,}"),
        ("dead letters, as they should be", f"{figures.dead:,}"),
        ("cancelled", f"{figures.cancelled:,}"),
        ("runs", f"{figures.runs:,}"),
        ("delayed tasks", f"{figures.delayed:,}"),
        ("slots of the schedule that ran", f"{figures.slots_of_schedule:,}"),
        ("faults", f"{sum(figures.faults.values()):,}"),
        ("runs cut short and run again", f"{figures.rescued:,}"),
        ("runs repeated, by their excuse", repeats),
        ("tasks that ran to a good end twice", f"{figures.duplicates:,}"),
        ("settlements refused to a late worker", f"{figures.refused_settlements:,}"),
        ("lost", f"{figures.lost:,}"),
        ("early", f"{figures.early:,}"),
        ("longest stall, s", f"{figures.longest_stall_s:g}"),
        ("during", "; ".join(figures.stalled_by) or "nothing ordered"),
        ("after the server was back, s until a task ended", _pairs(figures.recovered_s)),
        ("delayed tasks late, ms", _pairs(figures.late_ms)),
        ("stalls that nobody ordered", f"{figures.stalls_of_machine:,}"),
        ("took, s", f"{outcome.took_s:,g}"),
    ]


def _pairs(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,g}" for name, value in figures.items()) or "none"
