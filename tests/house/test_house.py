"""The rules that every file keeps, checked by a machine."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
LONGEST_FUNCTION, LONGEST_FILE = 50, 320

# Where somebody's checkout lies; not the end of a longer path, such as firetime's own room of that name.
_ABSOLUTE_HOME = re.compile(r"(?<![\w.~)}*-])/(?:work|root|home/[\w.-]+|Users/[\w.-]+)/")
_FAKE_SERVER = re.compile(r"^\s*(?:import|from) fakeredis", re.MULTILINE)


def files_of_the_project() -> list[Path]:
    """What git would commit; without git all but hidden folders."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        found = (ROOT / name for name in names if name)
    else:
        visible = (path for path in ROOT.iterdir() if path.name == ".ci" or not path.name.startswith("."))
        found = (file for path in visible for file in ([path] if path.is_file() else path.rglob("*")))
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def sources(pattern: str) -> list[Path]:
    return sorted(SRC.rglob(pattern))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def test_no_file_names_a_folder_of_one_machine() -> None:
    told = [
        f"{name(path)}:{number}"
        for path in files_of_the_project()
        for number, line in enumerate(text(path).splitlines(), 1)
        if _ABSOLUTE_HOME.search(line)
    ]
    assert told == []


def test_every_test_talks_to_a_real_server() -> None:
    assert [name(path) for path in files_of_the_project() if _FAKE_SERVER.search(text(path))] == []


def test_every_python_file_opens_with_what_passes_through_it() -> None:
    assert [name(path) for path in sources("*.py") if ast.get_docstring(ast.parse(text(path))) is None] == []


def test_every_lua_file_opens_with_a_comment() -> None:
    assert [name(path) for path in sources("*.lua") if not text(path).startswith("-- ")] == []


def test_no_file_is_long() -> None:
    lengths = {name(path): len(text(path).splitlines()) for kind in ("*.py", "*.lua") for path in sources(kind)}
    assert {file: lines for file, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_function_is_long() -> None:
    lengths = {
        f"{name(path)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in sources("*.py")
        for node in ast.walk(ast.parse(text(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {function: lines for function, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        ("cd /" + "root/project", True),
        ("file:///" + "home/ada/project", True),
        ('"/' + 'work/main"', True),
        ("src/firetime/work/claim.py", False),
        ("~/work/x and ${HOME}/work/x", False),
        ("the root/branch", False),
    ],
)
def test_a_folder_of_one_machine_is_recognised(line: str, tells: bool) -> None:
    assert bool(_ABSOLUTE_HOME.search(line)) is tells
