"""However an attempt ended, and whatever came before, there is a verdict, and the counters of it add up."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from firetime.values.backoff import Backoff, Exponential, Fixed, Linear, Reclaim, as_backoff
from firetime.values.durations import LONGEST_S
from firetime.values.errors import FailedElsewhere, Told
from firetime.values.message import Delivery, Fence, Message, Note, State
from firetime.values.options import TaskOptions
from firetime.values.state import FRESH, KEPT_NOTES
from firetime.values.verdict import (
    Bury,
    Cancel,
    Complete,
    Forget,
    Outcome,
    Reject,
    Release,
    Retry,
    RetryIn,
    Rules,
    Verdict,
    decide,
    handler_failed,
    handler_interrupted,
    tell,
)

COUNTS = st.integers(0, 2**40)
ENDINGS = ["returned", "raised", "interrupted", "cancelled", "lost", "unknown", "crashed", "vanished", "unreadable"]
ENDINGS += ["failing"]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def raising(failures: int, error: BaseException) -> float:
    raise LookupError


errors = st.one_of(
    st.builds(ValueError, st.text()),
    st.builds(KeyError, st.text(st.characters(exclude_categories=[]))),
    st.builds(OSError),
    st.builds(Unprintable),
    st.builds(Reject, st.text(st.characters(exclude_categories=[]))),
    st.builds(Retry, st.none() | st.floats(0, 1e6)),
    st.builds(SystemExit),
)
backoffs: st.SearchStrategy[Backoff] = st.one_of(
    st.builds(Fixed, st.floats(0, 1e6)),
    st.builds(Linear, st.floats(0, 1e6), cap=st.floats(0, 1e6)),
    st.builds(Exponential, st.floats(0, LONGEST_S), cap=st.floats(0, LONGEST_S), jitter=st.booleans()),
    st.builds(Reclaim),
    st.floats().map(lambda pause: as_backoff(lambda *_: pause)),
    st.just(as_backoff(raising)),
)
notes = st.builds(Note, st.text(), st.text(), st.text(), COUNTS)
states = st.builds(
    State,
    crashes=COUNTS,
    deliveries=COUNTS,
    failures=COUNTS,
    first=st.lists(notes, max_size=KEPT_NOTES).map(tuple),
    last=st.lists(notes, max_size=KEPT_NOTES).map(tuple),
    phase=st.sampled_from(["", "failing"]),
    reason=st.sampled_from(["", "exhausted", "crashed", "rejected"]),
    first_seen_ms=COUNTS,
    puzzled=COUNTS,
)
messages = st.builds(
    Message,
    task=st.just("work"),
    args=st.just(msgspec.Raw(b"[[],{}]")),
    max_retry=st.none() | st.integers(0, 50),
)
options = st.builds(
    TaskOptions,
    max_retry=st.integers(0, 50),
    backoff=backoffs,
    retry_on=st.sampled_from([(Exception,), (BaseException,), (OSError,), ()]),
    no_retry_on=st.sampled_from([(), (KeyError,)]),
    max_crashes=st.integers(0, 5),
)
rules = st.builds(
    Rules, lease_s=st.floats(0.2, 1e6), unknown_s=st.floats(0, 1e6), now_ms=COUNTS.map(lambda ms: lambda: ms)
)


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    message = draw(st.none() | messages)
    return Delivery(
        task_id="id",
        fence=Fence("default", "n", "1-1", "me", draw(st.integers(1, 1000))),
        message=message,
        raw=b"" if message else b"raw",
        problem="" if message else draw(st.sampled_from(["malformed", "record lost"])),
        state=draw(states),
        fire_ms=0,
        claimed_ms=0,
    )


outcomes = st.builds(Outcome, st.sampled_from(ENDINGS), st.none() | st.binary(), st.none() | errors)


@given(deliveries(), outcomes, options, rules)
@example(
    Delivery(
        task_id="id",
        fence=Fence("default", "n", "1-1", "me", 1),
        message=None,
        state=State(puzzled=2000),
        fire_ms=0,
        claimed_ms=0,
    ),
    Outcome("unknown"),
    TaskOptions(),
    Rules(lease_s=15, unknown_s=1e9, now_ms=lambda: 0),
)
def test_there_is_a_verdict_on_everything(
    delivery: Delivery, outcome: Outcome, options: TaskOptions, rules: Rules
) -> None:
    verdict = decide(delivery, outcome, options, rules)
    assert isinstance(verdict, Verdict)
    if isinstance(verdict, RetryIn):
        assert 0 <= verdict.delay_s <= LONGEST_S
    if isinstance(verdict, Bury):
        assert verdict.reason or outcome.ending in {"unreadable", "failing"}  # then it is the delivery's
        for later in (handler_failed(verdict, ValueError(), rules), handler_interrupted(verdict)):
            assert (later.state.phase, later.state.reason) == ("failing", verdict.reason)
            assert later.state.failures == verdict.state.failures


@given(deliveries(), outcomes, options, rules)
def test_the_ending_alone_tells_what_kind_of_verdict_there_can_be(
    delivery: Delivery, outcome: Outcome, options: TaskOptions, rules: Rules
) -> None:
    kinds: dict[str, tuple[type[Any], ...]] = {
        "returned": (Complete,),
        "cancelled": (Cancel,),
        "lost": (Forget,),
        "interrupted": (Release, Bury) if options.max_crashes == 0 else (Release,),
        "raised": (RetryIn, Bury),
        "unknown": (RetryIn, Bury),
        "crashed": (Bury,),
        "vanished": (RetryIn, Bury),
        "unreadable": (Bury,),
        "failing": (Bury,),
    }
    assert isinstance(decide(delivery, outcome, options, rules), kinds[outcome.ending])


@given(deliveries(), outcomes, options, rules)
def test_a_failure_counts_one_failure_and_no_crash_and_nothing_else_counts_a_failure(
    delivery: Delivery, outcome: Outcome, options: TaskOptions, rules: Rules
) -> None:
    verdict = decide(delivery, outcome, options, rules)
    if isinstance(verdict, RetryIn | Bury):
        assert verdict.state.failures == delivery.state.failures + (outcome.ending == "raised")
        assert verdict.state.crashes == delivery.crashes + (outcome.ending == "vanished")
        assert verdict.state.deliveries == delivery.number
        assert len(verdict.state.first) <= KEPT_NOTES
        assert len(verdict.state.last) <= KEPT_NOTES


@given(deliveries(), errors, options, rules)
def test_what_a_child_process_tells_of_an_error_leads_to_the_verdict_that_the_error_itself_would(
    delivery: Delivery, error: BaseException, options: TaskOptions, rules: Rules
) -> None:
    told = tell(error, options, failures=delivery.state.failures + 1, lease_s=rules.lease_s)
    elsewhere = FailedElsewhere("work", msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=Told))
    here = decide(delivery, Outcome("raised", error=error), options, rules)
    there = decide(delivery, Outcome("raised", error=elsewhere), options, rules)
    assert type(there) is type(here)
    if isinstance(here, Bury) and isinstance(there, Bury):
        assert (there.reason, there.state.failures) == (here.reason, here.state.failures)
        # of what was noted, all but the time and the way through the verdict's own frames
        assert [(note.type, note.text) for note in there.state.first] == [
            (note.type, note.text) for note in here.state.first
        ]
    if isinstance(here, RetryIn) and isinstance(there, RetryIn) and not _rolls_dice(options.backoff):
        assert there.delay_s == here.delay_s


def _rolls_dice(backoff: Backoff) -> bool:
    """Also a policy of users that failed: then the default one is asked, which does."""
    return not isinstance(backoff, Fixed | Linear | Reclaim)


@given(options, rules, st.lists(errors, min_size=60, max_size=60), st.none() | st.integers(0, 50), st.randoms())
def test_there_are_never_more_retries_than_max_retry_allows_however_many_crashes_come_between(
    options: TaskOptions, rules: Rules, raised: list[BaseException], own: int | None, dice: Any
) -> None:
    message = Message(task="work", args=msgspec.Raw(b"[[],{}]"), max_retry=own)
    state, runs, crashes = FRESH, 0, 0
    verdict: Verdict = Forget()
    for error in raised:
        lost = dice.randrange(3)
        crashes += lost
        fence = Fence("default", "n", f"{runs}-1", "me", 1 + lost)
        delivery = Delivery(task_id="id", fence=fence, message=message, state=state, fire_ms=0, claimed_ms=0)
        runs += 1
        verdict = decide(delivery, Outcome("raised", error=error), options, rules)
        assert isinstance(verdict, RetryIn | Bury)
        state = verdict.state
        assert (state.failures, state.crashes, state.deliveries) == (runs, crashes, runs + crashes)
        if isinstance(verdict, Bury):
            break
    allowed = options.max_retry if own is None else own
    assert runs <= allowed + 1
    if isinstance(verdict, Bury) and verdict.reason == "exhausted":
        assert runs == allowed + 1


@given(backoffs, st.integers(1, 10**9), st.floats(0.2, 1e6))
def test_a_policy_stays_within_its_bounds(backoff: Backoff, failures: int, lease_s: float) -> None:
    if not isinstance(backoff, Fixed | Linear | Exponential | Reclaim):
        return
    pause = backoff.delay_s(failures=failures, error=ValueError(), lease_s=lease_s)
    assert math.isfinite(pause)
    match backoff:
        case Fixed(delay):
            assert pause == delay
        case Linear(step):
            assert 0 <= pause <= backoff.cap  # type: ignore[operator]
            assert pause == backoff.cap or pause == step * failures
        case Exponential(base):
            assert 0 <= pause <= backoff.cap  # type: ignore[operator]
            if not backoff.jitter and failures <= 31:
                assert pause == min(backoff.cap, base * 2 ** (failures - 1))
        case Reclaim():
            assert pause == lease_s


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6))
def test_an_exponential_pause_without_jitter_never_shrinks(base: float, cap: float) -> None:
    policy = Exponential(base, cap=cap, jitter=False)
    pauses = [policy.delay_s(failures=n, error=ValueError(), lease_s=1) for n in range(1, 60)]
    assert pauses == sorted(pauses)
    assert pauses[-1] <= cap
