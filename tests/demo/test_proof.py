"""What the demo's table says of facts that are not as they should be: each makes one line wrong, and no other."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from firetime.faces.demo.journal import Entry
from firetime.faces.demo.proof import Facts, Kind, Sent, lines, percentile
from firetime.faces.demo.sources import Counts, DirectCount

COUNTS = Counts(files=2, functions=5, classes=1, lines=90, unparsable=0)
KINDS: dict[str, Kind] = {
    "file-1": "file",
    "file-2": "file",
    "delayed": "delayed",
    "twice": "fails twice",
    "dead": "fails until mended",
    "unique": "unique",
}


def entry(what: Literal["began", "ended", "raised"], task_id: str, fence: int = 1, **more: Any) -> Entry:
    return Entry(what=what, pid=1, at=more.pop("at", 100.0), id=task_id, fence=fence, **more)


def run(task_id: str, fence: int = 1, *, well: bool = True, **more: Any) -> list[Entry]:
    return [entry("began", task_id, fence, **more), entry("ended" if well else "raised", task_id, fence, **more)]


ALL_WELL = [
    *run("file-1"),
    entry("began", "file-2"),  # its worker was killed
    *run("file-2", 2, crashes=1),
    *run("delayed", at=100.0, fire_ms=99_990),
    *run("twice", 1, well=False),
    *run("twice", 2, well=False),
    *run("twice", 3),
    *run("dead", 1, well=False),
    *run("dead", 2, well=False),
    *run("dead", 3),
    *run("unique"),
]


def facts(entries: list[Entry] = ALL_WELL, **more: Any) -> Facts:
    sent = [Sent(task_id, kind, 99.9 if kind == "delayed" else 0.0) for task_id, kind in KINDS.items()]
    told = {"told": COUNTS, "direct": DirectCount(COUNTS, 1.0), "buried": "exhausted", "unique_dispatches": 5}
    return Facts(**{"sent": sent, "entries": entries, "worked_s": 2.0, **told, **more})


def wrong(of: Facts) -> list[str]:
    return [line.what for line in lines(of) if not line.good]


def without(task_id: str, what: str) -> list[Entry]:
    return [each for each in ALL_WELL if (each.id, each.what) != (task_id, what)]


def test_all_well() -> None:
    assert wrong(facts()) == []
    assert facts().late_ms == [10.0]
    assert facts().rescued == ["file-2"]
    assert facts().run_again == 0


def test_a_task_that_never_ended_is_lost() -> None:
    assert wrong(facts(without("file-1", "ended"))) == ["tasks run to their end", "lost"]


@pytest.mark.parametrize("name", ["files", "functions", "classes", "lines", "unparsable"])
def test_each_count_is_compared(name: str) -> None:
    told = msgspec.structs.replace(COUNTS, **{name: getattr(COUNTS, name) + 1})
    assert len(wrong(facts(told=told))) == 1


def test_a_start_before_the_fire_time_is_early() -> None:
    entries = [*without("delayed", "began"), entry("began", "delayed", at=99.9899, fire_ms=99_990)]
    assert wrong(facts(entries)) == ["started before their time"]


def test_a_start_before_the_dispatcher_wanted_it_is_early_whatever_fire_time_was_stored() -> None:
    entries = [*without("delayed", "began"), entry("began", "delayed", at=99.8, fire_ms=99_700)]
    assert wrong(facts(entries)) == ["started before their time"]


def test_a_retry_before_its_time_is_early_too() -> None:
    assert wrong(facts([*ALL_WELL, entry("began", "file-1", 9, at=1.0, fire_ms=1001)])) == ["started before their time"]


def test_a_delayed_task_that_never_began_is_missed() -> None:
    assert "delayed tasks run" in wrong(facts([each for each in ALL_WELL if each.id != "delayed"]))


def test_a_failure_too_many_is_told() -> None:
    assert wrong(facts([*ALL_WELL, *run("twice", 4, well=False)])) == ["fails twice, then works"]


def test_a_failure_that_a_killed_worker_could_not_report_is_none_too_many() -> None:
    entries = [*ALL_WELL, entry("began", "twice", 4, crashes=1), entry("raised", "twice", 4)]
    assert wrong(facts(entries)) == []


def test_a_dead_letter_for_another_reason_is_told() -> None:
    assert wrong(facts(buried="crashed")) == ["dead, then replayed"]


def test_a_second_run_of_the_unique_task_is_told() -> None:
    assert wrong(facts([*ALL_WELL, *run("unique", 2)])) == ["unique, dispatched 5 times"]


def test_a_second_message_of_the_unique_task_is_told() -> None:
    sent = [*facts().sent, Sent("unique-2", "unique")]
    assert wrong(facts([*ALL_WELL, *run("unique-2")], sent=sent)) == ["unique, dispatched 5 times"]


def test_nothing_rescued_shows_nothing() -> None:
    assert wrong(facts([each for each in ALL_WELL if each.crashes == 0] + run("file-2", 2))) == [
        "rescued after the kill"
    ]


def test_a_second_end_is_allowed_and_counted() -> None:
    assert wrong(facts([*ALL_WELL, *run("file-1", 2, crashes=1)])) == []
    assert facts([*ALL_WELL, *run("file-1", 2, crashes=1)]).run_again == 1


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 3), (0.99, 4), (1.0, 4)])
def test_percentiles(share: float, expected: float) -> None:
    assert percentile([1, 2, 3, 4], share) == expected
    assert percentile([], share) == 0
