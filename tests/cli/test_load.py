"""A runner is found by its name, or the error says what to mend."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import pytest

from firetime.faces.cli.load import load
from firetime.values.errors import FiretimeError

ONE = "from firetime import TaskRunner; runner = same = TaskRunner()"
TWO = "from firetime import TaskRunner; a, b = TaskRunner(), TaskRunner()"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of the current folder that is still to be written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"app_{uuid4().hex}"


def write(module: str, text: str) -> None:
    Path(f"{module}.py").write_text(text)


@pytest.mark.parametrize("attribute", ["", ":runner", ":holder.runner"])
def test_a_runner_of_the_current_folder_is_found(module: str, attribute: str) -> None:
    write(module, f"{ONE}\nclass holder: runner = runner")
    assert load(f"{module}{attribute}") is sys.modules[module].runner


@pytest.mark.parametrize(
    ("attribute", "text", "complaint"),
    [
        (".deep:runner", ONE, "there is no module '{module}.deep' in "),
        (".py:runner", ONE, "expected the name of a module, and of the runner in it, such as app:runner (without .py)"),
        (":runer", ONE, "has no attribute 'runer'; there is {module}:runner, {module}:same"),
        (":runner", "runner = 3", "'runner' is of type int, not a TaskRunner"),
        ("", "runner = 3", "the module holds no TaskRunner"),
        ("", TWO, "more than one TaskRunner; choose one of {module}:a, {module}:b"),
        ("", "from firetime import TaskRunner; TaskRunner(lease=-1)", "{module}.py:1: lease=-1: expected seconds"),
        ("", "1 / 0", "{module}.py:1: ZeroDivisionError: division by zero"),
        ("", "1 +", "SyntaxError: invalid syntax"),
    ],
)
def test_what_is_wrong_is_told(module: str, attribute: str, text: str, complaint: str) -> None:
    write(module, text)
    with pytest.raises(FiretimeError) as caught:
        load(f"{module}{attribute}")
    assert complaint.format(module=module) in str(caught.value)


@pytest.mark.parametrize("name", ["", ":runner", "apps/app", "app;runner", ".app:runner", "app..b:runner"])
def test_what_names_no_module_is_refused(module: str, name: str) -> None:
    with pytest.raises(FiretimeError, match="expected the name of a module"):
        load(name)
