"""The soak's slopes are right, and what it weighs is there."""

from __future__ import annotations

import os

import pytest

from chaos.soak import Sample, _resident_kib, slopes


def test_what_grows_by_a_kib_a_second_has_a_slope_of_sixty() -> None:
    samples = [Sample(at_s, {"server": 1000 + at_s, "worker-0": 500.0}) for at_s in range(0, 100, 5)]
    assert [(each.who, each.kib_a_minute) for each in slopes(samples)] == [("server", 60.0), ("worker-0", 0.0)]


def test_the_warm_up_does_not_count() -> None:
    samples = [Sample(at_s, {"server": min(at_s, 20) * 100.0}) for at_s in range(0, 101, 5)]
    assert slopes(samples)[0].kib_a_minute == pytest.approx(0)


def test_samples_in_which_somebody_is_missing_are_left_out_for_him() -> None:
    samples = [Sample(at_s, {"server": at_s} if at_s % 2 else {}) for at_s in range(100)]
    assert slopes(samples)[0].kib_a_minute == pytest.approx(60)


def test_a_process_has_a_weight() -> None:
    assert _resident_kib(os.getpid()) > 1000
