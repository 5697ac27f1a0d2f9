"""How a process tells the server's time, and what is due next, from answers that come late and news that overtakes them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firetime.store.clock import ServerClock
from firetime.upkeep.news import NextDue

HOUR_US = 3_600_000_000


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    made = Steady()
    monkeypatch.setattr(time, "monotonic", made)
    return made


class Steady:
    """A steady clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def answer(clock: ServerClock, steady: Steady, server_us: int, *, out: float, back: float) -> None:
    """One call: so long on its way out, so long on its way back; the server's clock runs beside the steady one."""
    sent = steady.seconds
    steady.seconds += out
    told = server_us + round(steady.seconds * 1e6)
    steady.seconds += back
    clock.observe(told, sent=sent, received=steady.seconds)


def error_ms(clock: ServerClock, steady: Steady, server_us: int) -> float:
    """By how much it thinks that a time is further away than it is."""
    at_ms = (server_us + round(steady.seconds * 1e6)) // 1000 + 1000
    true_s = (at_ms * 1000 - server_us) / 1e6 - steady.seconds
    return (clock.seconds_until(at_ms) - true_s) * 1000


def test_an_answer_tells_the_time_within_half_its_journey(steady: Steady) -> None:
    clock = ServerClock()
    answer(clock, steady, 5 * HOUR_US, out=0.0002, back=0.0002)
    assert error_ms(clock, steady, 5 * HOUR_US) == pytest.approx(0, abs=0.01)
    assert clock.now_ms() == pytest.approx((5 * HOUR_US + steady.seconds * 1e6) / 1000, abs=1)


def test_an_answer_that_a_busy_process_took_late_does_not_spoil_what_was_known(steady: Steady) -> None:
    clock = ServerClock()
    answer(clock, steady, 0, out=0.0002, back=0.0002)
    steady.seconds += 1
    answer(clock, steady, 0, out=0.0002, back=0.2)
    assert abs(error_ms(clock, steady, 0)) < 0.6


@pytest.mark.parametrize("step_us", [-HOUR_US, -50_000, 50_000, HOUR_US])
def test_a_server_whose_clock_was_set_is_believed_at_once(steady: Steady, step_us: int) -> None:
    clock = ServerClock()
    answer(clock, steady, 0, out=0.0002, back=0.0002)
    steady.seconds += 1
    answer(clock, steady, step_us, out=0.0002, back=0.0002)
    assert error_ms(clock, steady, step_us) == pytest.approx(0, abs=0.01)


def test_this_machines_own_wrong_clock_counts_for_nothing(steady: Steady, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong_s in (-600, 600):
        true_s = time.time()
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda wrong=true_s + wrong_s: wrong)
            clock = ServerClock()
        answer(clock, steady, 0, out=0.0001, back=0.0001)
        assert error_ms(clock, steady, 0) == pytest.approx(0, abs=0.01)


journeys = st.tuples(st.floats(0, 2), st.floats(0.00005, 0.3), st.floats(0.00005, 0.3))


@given(st.lists(journeys, min_size=1, max_size=20))
def test_the_error_is_never_more_than_half_of_the_last_journey(drawn: list[tuple[float, float, float]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        steady = Steady()
        patch.setattr(time, "monotonic", steady)
        clock = ServerClock()
        for pause, out, back in drawn:
            steady.seconds += pause
            answer(clock, steady, HOUR_US, out=out, back=back)
            assert abs(error_ms(clock, steady, HOUR_US)) <= (out + back) * 500 + 0.01


# -------------------------------------------------------------------------------------------------------- what is due


@pytest.fixture
def due(steady: Steady) -> NextDue:
    clock = ServerClock()
    answer(clock, steady, 0, out=0, back=0)
    return NextDue(clock)


def test_an_answer_is_what_is_known(due: NextDue) -> None:
    assert (due.at_ms, due.due_in(0), due.is_due(0)) == (None, None, False)
    due.asking()
    due.answered(1_005_000, "7-0")
    assert (due.at_ms, due.last_id) == (1_005_000, "7-0")
    assert due.due_in(0) == pytest.approx(5)
    assert due.due_in(1) == pytest.approx(6)
    due.asking()
    due.answered(None, "7-0")
    assert due.at_ms is None


def test_news_brings_the_time_forward_and_never_back(due: NextDue) -> None:
    due.asking()
    due.answered(1_005_000, "7-0")
    due.heard(1_003_000, "8-0")
    assert (due.at_ms, due.last_id) == (1_003_000, "8-0")
    due.heard(1_009_000, "9-0")
    assert (due.at_ms, due.last_id) == (1_003_000, "9-0")


def test_an_answer_that_news_has_overtaken_does_not_replace_it(due: NextDue) -> None:
    due.asking()
    due.heard(1_003_000, "8-0")
    due.answered(1_005_000, "7-0")
    assert (due.at_ms, due.last_id) == (1_003_000, "8-0")
    due.asking()
    due.answered(1_005_000, "8-0")
    assert due.at_ms == 1_005_000


def test_an_answer_that_is_newer_than_the_news_is_read_on_from(due: NextDue) -> None:
    due.asking()
    due.heard(1_003_000, "8-0")
    due.answered(1_002_000, "8-1")
    assert (due.at_ms, due.last_id) == (1_002_000, "8-1")
    due.asking()
    due.heard(1_001_000, "10-0")
    due.answered(1_001_000, "9-9")
    assert due.last_id == "10-0"


def test_a_stream_that_was_deleted_is_read_from_its_new_beginning(due: NextDue) -> None:
    due.asking()
    due.answered(None, "500-0")
    due.asking()
    due.answered(None, "0-0")
    assert due.last_id == "0-0"


def test_what_was_asked_in_vain_is_asked_again_after_ever_longer_pauses(due: NextDue, steady: Steady) -> None:
    due.asking()
    due.answered(0, "0-0")
    pauses = []
    for _ in range(12):
        assert due.is_due(0)
        due.acted(in_vain=True)
        pauses.append(due.due_in(0) or 0)
        steady.seconds += pauses[-1] + 0.000001
    assert pauses[0] == pytest.approx(0.001, rel=0.01)
    assert pauses[-1] == pytest.approx(0.1, rel=0.01)
    due.acted(in_vain=False)
    due.acted(in_vain=True)
    assert due.due_in(0) == pytest.approx(0.001, rel=0.01)
