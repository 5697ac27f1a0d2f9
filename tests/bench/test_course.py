"""A system runs the course against a real server, and one that breaks says why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bench.__main__ import running_server
from bench.course import Course, Plan
from bench.marks import Marks
from bench.processes import Place
from bench.run import cannot_run
from bench.server import Server
from bench.systems import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = Plan(
    dispatch_s=0.02,
    drain_s=0.01,
    latency_count=3,
    latency_s=1.0,
    imports=1,
    leaves_out=("promote", "delayed_bytes", "drain2"),
)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Server, Place]]:
    with running_server(None, tmp_path / "nothing-installed") as started:
        yield started


def test_firetime_runs_the_course(started: tuple[Server, Place]) -> None:
    server, place = started
    outcome = Course(place, server, Marks.make(place.marks), BY_NAME["firetime"], SMALL, {}).run()
    assert outcome.reasons == dict.fromkeys(SMALL.leaves_out, "only in `make bench`")
    assert not outcome.notes
    for key in ("one", "bulk", "drain", "threads", "retry", "latency_p99", "idle_rss", "import_ms", "drain_server"):
        assert outcome.figures[key] > 0


def test_a_system_that_is_not_installed_says_so(started: tuple[Server, Place]) -> None:
    server, place = started
    outcome = Course(place, server, Marks.make(place.marks), BY_NAME["huey"], SMALL, {}).run()
    assert not outcome.figures
    assert "not installed" in outcome.reasons["all"]


def test_a_system_that_breaks_says_how(started: tuple[Server, Place]) -> None:
    server, place = started
    broken = replace(BY_NAME["firetime"], module="no_such_adapter")
    outcome = Course(place, server, Marks.make(place.marks), broken, SMALL, {}).run()
    assert "no_such_adapter" in outcome.reasons["all"]


def test_a_system_that_needs_another_server_is_left_out(started: tuple[Server, Place]) -> None:
    assert "needs Redis 8.6; the server is Valkey" in cannot_run(BY_NAME["chasquimq"], started[0])
    assert not cannot_run(BY_NAME["firetime"], started[0])
