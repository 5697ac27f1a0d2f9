"""The demo is played by a process of its own: on everything, on a wrong count, and with Ctrl-C in the middle."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.conftest import StartWorker
    from tests.kit.processes import WorkerProcess

pytestmark = pytest.mark.timeout(300)  # it takes 15 s where nothing else runs, and tests run beside others
_PATIENCE_S = 240

PLAY = """
    import os, sys
    os.chdir(sys.argv[1])
    sys.argv = ["firetime", "demo"]
    from firetime.faces.cli import main
    {changes}
    main()
"""
FEW_FILES = """
    from firetime.faces.demo import sources
    every_file = sources.source_files()
    sources.source_files = lambda: sorted(every_file, key=lambda path: path.stat().st_size)[-120:]
"""
COUNTED_WRONG = """
    import msgspec
    from firetime.faces.demo import story
    counted = story.count_in_one_process
    async def one_function_more(paths):
        direct = await counted(paths)
        wrong = msgspec.structs.replace(direct.counts, functions=direct.counts.functions + 1)
        return msgspec.structs.replace(direct, counts=wrong)
    story.count_in_one_process = one_function_more
"""


class Stage:
    """Where a demo is played: the folder it was started in, and the one for its temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temporary = folder / "here", folder / "tmp"
        self.folder.mkdir()
        self.temporary.mkdir()

    def play(self, start_worker: StartWorker, changes: str = "") -> WorkerProcess:
        script = PLAY.replace("    {changes}\n", changes.removeprefix("\n"))
        return start_worker(script, str(self.folder), env={"TMPDIR": str(self.temporary)})

    def left_behind(self) -> list[str]:
        """Files, and processes: those of the demo name its temporary folder on their command line."""
        files = [str(path) for folder in (self.folder, self.temporary) for path in folder.iterdir()]
        processes = [
            command.decode(errors="replace")
            for process in Path("/proc").glob("[0-9]*")
            if str(self.temporary).encode() in (command := _command_of(process))
        ]
        return files + processes


def _command_of(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def row(printed: str, what: str) -> list[str]:
    """The cells of a table's row."""
    found = next(line for line in printed.splitlines() if line.startswith(f"│ {what}"))
    return [cell.strip() for cell in found.strip("│").split("│")]


async def test_everything_is_as_promised(stage: Stage, start_worker: StartWorker) -> None:
    demo = stage.play(start_worker)
    assert demo.wait(_PATIENCE_S) == 0
    told = demo.printed
    assert int(row(told, "source files counted")[1].replace(",", "")) > 500
    for what in ("source files counted", "functions", "classes", "lines", "files that do not parse", "tasks run"):
        _, promised, found, verdict = row(told, what)
        assert (found, verdict) == (promised, "ok")
    assert row(told, "lost")[2:] == ["0", "ok"]
    assert row(told, "delayed tasks run")[2:] == ["200", "ok"]
    assert row(told, "started before their time")[2:] == ["0", "ok"]
    assert row(told, "fails twice, then works")[3] == "ok"
    assert row(told, "dead, then replayed")[2:] == ["exhausted, 1 end", "ok"]
    assert row(told, "unique, dispatched 5 times")[3] == "ok"
    assert int(row(told, "rescued after the kill")[2]) >= 1
    assert re.fullmatch(r"\d+ / \d+ / \d+ ms", row(told, "late by p50 / p99 / max")[2])
    assert re.search(r"worker \d+ is killed \(SIGKILL\) in the middle of a task", told)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", told), "control characters, though it is no terminal"
    assert max(map(len, told.splitlines())) <= 100
    assert stage.left_behind() == []


async def test_a_wrong_count_is_told_by_the_exit_code(stage: Stage, start_worker: StartWorker) -> None:
    demo = stage.play(start_worker, FEW_FILES + COUNTED_WRONG)
    assert demo.wait(_PATIENCE_S) == 1
    assert "Not as promised: functions." in demo.printed
    _, promised, found, verdict = row(demo.printed, "functions")
    assert int(promised.replace(",", "")) == int(found.replace(",", "")) + 1
    assert verdict == "WRONG"


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
async def test_interrupted_it_leaves_nothing_behind(
    stage: Stage, start_worker: StartWorker, sign: signal.Signals
) -> None:
    demo = stage.play(start_worker)
    await until(lambda: "are dispatched" in demo.printed, timeout=60)
    assert len(stage.left_behind()) >= 4  # its folder, its server and two workers
    os.kill(demo.pid, sign)
    assert demo.wait(30) == 130
    assert demo.printed.endswith("interrupted; nothing is left behind\n")
    assert stage.left_behind() == []


async def test_killed_it_leaves_no_process_behind(stage: Stage, start_worker: StartWorker) -> None:
    demo = stage.play(start_worker)
    await until(lambda: "are dispatched" in demo.printed, timeout=60)
    demo.kill()
    await until(lambda: len(stage.left_behind()) == 1, timeout=30, what="nothing but its temporary folder is left")
