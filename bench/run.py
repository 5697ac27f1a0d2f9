"""Rounds are taken in turn, A B C A B C, so that whatever slows the machine for a while slows everyone."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.course import Course, Outcome, Plan
from bench.marks import Marks
from bench.measures import MEASURES
from bench.processes import Place
from bench.server import Server
from bench.systems import OWN, SHARED, System

Say = Callable[[str], None]
_VERSIONS = (
    "import json, importlib.metadata as m; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
)


def take_rounds(
    place: Place, server: Server, systems: Sequence[System], plan: Plan, rounds: int, say: Say
) -> dict[str, list[Outcome]]:
    """Every system's outcome of every round."""
    marks = Marks.make(place.marks)
    outcomes: dict[str, list[Outcome]] = {system.name: [] for system in systems}
    known: dict[str, dict[str, float]] = {system.name: {} for system in systems}
    for number in range(1, rounds + 1):
        for system in systems:
            began = time.monotonic()
            reason = cannot_run(system, server)
            if reason:
                outcome = Outcome(reasons={"all": reason})
            else:
                outcome = Course(place, server, marks, system, plan, known[system.name]).run()
            outcomes[system.name].append(outcome)
            known[system.name] |= outcome.figures
            took_s = time.monotonic() - began
            say(f"round {number}/{rounds}  {system.name:15} {took_s:5.1f} s  {_in_short(outcome)}")
    return outcomes


def cannot_run(system: System, server: Server) -> str:
    """Why a system cannot run on this server; empty when it can."""
    if system.needs_redis and not (server.is_redis and server.redis_version >= system.needs_redis):
        return f"needs Redis {'.'.join(map(str, system.needs_redis))}; the server is {server.name}"
    return ""


def _in_short(outcome: Outcome) -> str:
    if "all" in outcome.reasons:
        return outcome.reasons["all"]
    drained = outcome.figures.get("drain")
    return f"{drained:,.0f} no-op tasks/s" if drained else outcome.reasons.get("drain", "")


def summary(
    place: Place, server: Server, systems: Sequence[System], outcomes: dict[str, list[Outcome]], took_s: float
) -> dict[str, Any]:
    """The run as it is written to the JSON file: medians, every round, settings, versions, machine."""
    versions = {name: _versions(place, systems, name) for name in {system.environment for system in systems}}
    return {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "took_s": round(took_s),
        "rounds": max(len(each) for each in outcomes.values()),
        "server": server.name,
        "machine": machine(),
        "shared_settings": SHARED,
        "systems": [_system(system, versions[system.environment], outcomes[system.name]) for system in systems],
    }


def _system(system: System, versions: dict[str, str], outcomes: Iterable[Outcome]) -> dict[str, Any]:
    rounds = list(outcomes)
    all_figures = {
        measure.key: [outcome.figures[measure.key] for outcome in rounds if measure.key in outcome.figures]
        for measure in MEASURES
    }
    reasons: dict[str, str] = {}
    for outcome in rounds:
        reasons |= outcome.reasons
    clients = [name for name in ("redis", "coredis", "hiredis", "uvloop") if name in versions]
    return {
        "name": system.name,
        "version": versions.get(system.package, ""),
        "clients": {name: versions[name] for name in clients},
        "settings": system.settings,
        "runs_in": system.runs_in,
        "at_once": system.at_once,
        "figures": {key: median(figures) for key, figures in all_figures.items() if figures},
        "rounds": {key: [round(figure, 3) for figure in figures] for key, figures in all_figures.items() if figures},
        "reasons": reasons,
        "notes": sorted({note for outcome in rounds for note in outcome.notes}),
    }


def _versions(place: Place, systems: Iterable[System], environment: str) -> dict[str, str]:
    system = next(system for system in systems if system.environment == environment)
    python = place.python(system)
    if not python.exists():
        return {}
    ran = subprocess.run([python, "-c", _VERSIONS], capture_output=True, text=True, timeout=30, check=True)
    versions: dict[str, str] = json.loads(ran.stdout)
    if environment == OWN:
        from firetime import __version__

        versions["firetime"] = __version__
    return versions


def machine() -> dict[str, Any]:
    """What the figures were made on."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    memory = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory) / 1024**2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
        "real_time": os.sched_getscheduler(0) != os.SCHED_OTHER,
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
