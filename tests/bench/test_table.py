"""A summary becomes a table, a page and a picture; aims are compared with the right figure."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench.chart import svg
from bench.measures import MEASURES, Aim, Measure
from bench.systems import ROOT
from bench.table import best_peer, brief, met, page, rows, text

RATE = Measure(key="drain", title="drain", unit="/s", more_is_better=True)
COST = Measure(key="latency_p99", title="latency", unit="ms", more_is_better=False)


def system(name: str, **figures: float) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1",
        "clients": {"redis": "8"},
        "settings": "some",
        "figures": figures,
        "reasons": {},
        "notes": [],
    }


@pytest.fixture
def summary() -> dict[str, Any]:
    return {
        "made": "today",
        "took_s": 61,
        "rounds": 3,
        "server": "Valkey",
        "shared_settings": "none",
        "machine": {
            "processor": "p",
            "cores": 2,
            "memory_gib": 1,
            "system": "s",
            "python": "3",
            "load_before": 0.1,
            "real_time": False,
        },
        "systems": [
            system("firetime", drain=8_000, latency_p99=2.0),
            system("floor", drain=10_000, latency_p99=1.0),
            system("quick", drain=2_000, latency_p99=4.0),
            system("slow", drain=1_000, latency_p99=1.9),
            {**system("broken"), "reasons": {"all": "it ended"}},
        ],
    }


def test_the_best_peer_is_neither_firetime_nor_the_floor(summary: dict[str, Any]) -> None:
    assert best_peer(summary, RATE) == ("quick", 2_000)
    assert best_peer(summary, COST) == ("slow", 1.9)


@pytest.mark.parametrize(
    ("measure", "aim", "reached"),
    [
        (RATE, Aim(beside="peer", least=4), True),
        (RATE, Aim(beside="peer", least=4.1), False),
        (RATE, Aim(beside="floor", least=0.8), True),
        (RATE, Aim(beside="floor", least=0.81), False),
        (COST, Aim(beside="peer", most=1), False),
        (COST, Aim(beside="peer", most=1.1), True),
        (COST, Aim(beside="alone", most=2), True),
        (COST, Aim(beside="alone", most=1.9), False),
    ],
)
def test_an_aim_is_compared_with_what_it_names(
    summary: dict[str, Any], measure: Measure, aim: Aim, reached: bool
) -> None:
    assert met(summary, measure, aim) is reached


def test_an_aim_without_anything_to_compare_is_open(summary: dict[str, Any]) -> None:
    assert met(summary, MEASURES[0], Aim(beside="peer", least=1)) is None


def test_every_measure_has_a_row_of_every_system(summary: dict[str, Any]) -> None:
    heading, *body = rows(summary)
    assert len(body) == len(MEASURES)
    assert {len(row) for row in body} == {len(heading)}
    assert "8,000" in text([heading, *body])


def test_the_page_tells_why_a_figure_is_missing(summary: dict[str, Any]) -> None:
    written = page(summary, None, command="make bench", chart="results.svg")
    assert "- broken: it ended (everything)" in written
    assert "1 min 1 s" in written


def test_the_picture_has_a_bar_for_every_figure(summary: dict[str, Any]) -> None:
    drawn = ET.fromstring(svg(summary))  # noqa: S314 - our own
    bars = [each for each in drawn.iter("{http://www.w3.org/2000/svg}rect") if each.get("rx")]
    assert len(bars) == 8


def test_an_aim_that_was_missed_says_by_how_much_and_why(summary: dict[str, Any]) -> None:
    told = page(summary, None, command="make bench", chart="x.svg")
    assert (
        "**idle: dispatch to start, p99**: 1.05 x slow instead of \u2264 1 x peer. A message takes two round trips"
        in told
    )
    summary["systems"][0]["figures"] |= {"latency_p99": 1.8}
    assert "This run met all its aims." in page(summary, None, command="make bench", chart="x.svg")


def test_the_readme_quotes_the_last_full_run() -> None:
    told = json.loads((ROOT / "docs/benchmarks/results.json").read_text("utf-8"))
    assert brief(told) in (ROOT / "README.md").read_text("utf-8")
    assert (ROOT / "docs/benchmarks/results.md").read_text("utf-8") == page(
        told, told["growth"], command="make bench", chart="results.svg"
    )
