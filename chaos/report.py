"""An outcome becomes a page for people and a file for machines."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

import msgspec

from chaos.loss import Loss
from chaos.run import Outcome
from firetime.values.version import __version__


def text(outcome: Outcome | Loss) -> str:
    """The figures, for a terminal."""
    lines = [f"{name:<56}{value:>16}" for name, value in _rows(outcome)]
    if isinstance(outcome, Outcome):
        lines.append("faults: " + ", ".join(f"{kind} {times}" for kind, times in outcome.figures.faults.items()))
    if outcome.held:
        lines.append("every promise held")
    lines += [f"BROKEN: {each.promise}: {each.times}; {'; '.join(each.examples)}" for each in outcome.broken]
    return "\n".join(lines)


def page(outcome: Outcome | Loss, command: str) -> str:
    """The report as Markdown."""
    verdict = "Every promise held." if outcome.held else "**Not every promise held.**"
    return "\n".join(
        [
            f"# Chaos: {_title(outcome)}",
            "",
            f"`{command}`: {_sentence(outcome)} {verdict}",
            "",
            *table("", "", _rows(outcome)),
            *(table("fault", "times", outcome.figures.faults.items()) if isinstance(outcome, Outcome) else []),
            *(f"- broken: {each.promise}: {each.times} ({'; '.join(each.examples)})" for each in outcome.broken),
            *([""] if outcome.broken else []),
            *table("setting", "", [*msgspec.to_builtins(outcome.plan).items(), *surroundings(outcome.server)]),
            "How it is done, what is proved, and what a seed reproduces: [README.md](README.md).",
            "",
        ]
    )


def write(outcome: Outcome | Loss, folder: Path, name: str, command: str) -> None:
    """Writes both."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(page(outcome, command), encoding="utf-8")
    told = msgspec.json.format(msgspec.json.encode(outcome), indent=1)
    (folder / f"{name}.json").write_bytes(told + b"\n")


def _title(outcome: Outcome | Loss) -> str:
    if isinstance(outcome, Outcome):
        return "what came of the worst day"
    return {"flush": "FLUSHALL in mid-run", "failover": "failover to a replica that lagged behind"}[outcome.scenario]


def _sentence(outcome: Outcome | Loss) -> str:
    if isinstance(outcome, Loss):
        return (
            f"{outcome.lost:,} of {outcome.before:,} tasks were lost with the server's data; all {outcome.after:,} that were"
            f" dispatched after it was back are done, the first after {outcome.recovered_s:g} s; {outcome.early} early."
        )
    figures = outcome.figures
    faults = sum(figures.faults.values())
    return f"{figures.dispatched:,} tasks dispatched, {faults:,} faults, {figures.lost} lost, {figures.early} early."


def table(left: str, right: str, rows: Iterable[tuple[str, object]]) -> list[str]:
    """A table of two columns in Markdown."""
    return [f"| {left} | {right} |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows), ""]


def surroundings(server: str) -> list[tuple[str, str]]:
    """Where it was done."""
    return [
        ("firetime", __version__),
        ("server", server),
        ("Python", platform.python_version()),
        ("machine", f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}"),
    ]


def _rows(outcome: Outcome | Loss) -> list[tuple[str, str]]:
    if isinstance(outcome, Loss):
        return _rows_of_loss(outcome)
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
        ("delayed tasks and retries late, rescues included, ms", _pairs(figures.late_ms)),
        ("stalls that nobody ordered", f"{figures.stalls_of_machine:,}"),
        ("took, s", f"{outcome.took_s:,g}"),
    ]


def _pairs(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,g}" for name, value in figures.items()) or "none"


def _rows_of_loss(loss: Loss) -> list[tuple[str, str]]:
    return [
        ("acknowledged before", f"{loss.before:,}"),
        ("of those, lost with the server's data", f"{loss.lost:,}"),
        ("of those, run again: their end was lost", f"{loss.run_again:,}"),
        ("acknowledged after the server was back", f"{loss.after:,}"),
        ("early", f"{loss.early:,}"),
        ("until one of those had ended, s", f"{loss.recovered_s:g}"),
        ("of that, waiting for a processor, s", f"{loss.stood_still_s:g}"),
        ("took, s", f"{loss.took_s:,g}"),
    ]
