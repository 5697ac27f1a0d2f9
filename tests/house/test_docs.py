"""The pages are true where a machine can tell: every Python block runs, every command, option and setting exists.

A comment before a block says what it is: `file: NAME` is a file of its own, `session` begins a session of
`python -m asyncio`, and `continues` goes on with the one before. In a session, `print(...)  # text` prints that text, and
` | ` stands between the lines of one that prints several times.
"""

from __future__ import annotations

import ast
import codeop
import dataclasses
import inspect
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from firetime import Settings, TaskRunner
from firetime.faces.cli.command import make
from firetime.store.keys import QueueKeys
from firetime.store.scripts import all_scripts
from tests.kit.waiting import until

if TYPE_CHECKING:
    from tests.conftest import StartWorker
    from tests.kit.servers import ServerProcess

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^>]+) -->\n)?^```python\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL)
_PRINTS = re.compile(r"^\s*print\(.*\)  # (?P<text>.*)$", re.MULTILINE)

RUN_SESSION = """
    import ast, asyncio, inspect, sys

    sys.stdout = open(sys.argv[2], "w")  # apart from what is logged

    async def session():
        source = open(sys.argv[1]).read()
        names = {"__name__": "__main__"}
        last = eval(compile(source, sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.iscoroutine(last):
            await last
        await names["runner"].aclose()

    asyncio.run(session())
"""
RUN_IN_FOLDER = """
    import asyncio, os, runpy, sys
    os.chdir(sys.argv[1])
    sys.path.insert(0, sys.argv[1])
"""
WORK = "    from firetime.faces.cli import main\n    sys.argv = ['firetime', 'worker', 'app:runner']\n    main()\n"

# The frameworks are no dependencies, and what is tested here is firetime: these have what the blocks use of them.
STAND_INS = {
    "django/__init__.py": "def setup():\n    from django.apps import apps\n    apps.apps_ready = True\n",
    "django/apps.py": "class apps:\n    apps_ready = False\n",
    "django/db.py": "class transaction:\n    on_commit = staticmethod(lambda function: function())\n",
    "django/http.py": "class HttpRequest: ...\nclass JsonResponse(dict): ...\n",
    "fastapi.py": """
        class FastAPI:
            def __init__(self, *, lifespan):
                self.lifespan = lifespan
            def post(self, path):
                return lambda function: function
    """,
}


@dataclasses.dataclass(frozen=True)
class Block:
    page: str
    mark: str
    source: str


def blocks() -> list[Block]:
    return [
        Block(page.relative_to(ROOT).as_posix(), found["mark"] or "", found["source"])
        for page in PAGES
        for found in _BLOCK.finditer(page.read_text("utf-8"))
    ]


def sessions() -> dict[str, str]:
    """Where each session begins -> the whole of it."""
    found: dict[str, str] = {}
    for block in blocks():
        if block.mark == "session":
            found[f"{block.page} {len(found) + 1}"] = block.source
        elif block.mark == "continues":
            found[list(found)[-1]] += "\n" + block.source
    return found


def files(folder: Path) -> None:
    """Writes the files of the pages into a folder, and beside them stand-ins for the frameworks."""
    written = {block.mark.removeprefix("file: "): block.source for block in blocks() if block.mark.startswith("file: ")}
    for name, source in {**STAND_INS, **written}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(source))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "app"
    made.mkdir()
    files(made)
    return made


def test_every_python_block_is_run() -> None:
    assert [block for block in blocks() if not re.fullmatch(r"session|continues|file: [\w/.]+", block.mark)] == []
    assert len(blocks()) > 10


@pytest.mark.parametrize("name", sessions())
async def test_a_session_prints_what_it_says(
    valkey: ServerProcess, start_worker: StartWorker, tmp_path: Path, name: str
) -> None:
    source = sessions()[name]
    told, printed = tmp_path / "session.py", tmp_path / "printed.txt"
    told.write_text(source)
    session = start_worker(RUN_SESSION, str(told), str(printed), env={"FIRETIME_URL": valkey.url})
    assert session.wait(60) == 0
    expected = [line for found in _PRINTS.finditer(source) for line in found["text"].split(" | ")]
    assert printed.read_text().splitlines() == expected


@pytest.mark.parametrize("name", sessions())
def test_a_session_can_be_pasted_line_by_line(name: str) -> None:
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    typed: list[str] = []
    for line in [*sessions()[name].splitlines(), ""]:
        typed.append(line)
        if compiler("\n".join(typed)) is not None:  # a whole statement; SyntaxError is what is feared here
            typed = []
    assert typed == []


@pytest.mark.parametrize("with_url", [True, False], ids=["with a URL", "embedded"])
async def test_the_first_code_works_as_pasted(
    valkey: ServerProcess, start_worker: StartWorker, folder: Path, with_url: bool
) -> None:
    env = {"FIRETIME_URL": valkey.url} if with_url else {}
    worker = start_worker(RUN_IN_FOLDER + WORK, str(folder), env=env)
    sender = start_worker(RUN_IN_FOLDER + "    runpy.run_path('send.py')\n", str(folder), env=env)
    assert sender.wait(60) == 0
    assert sender.printed.splitlines()[-1] == "hello Ada"
    worker.terminate()
    assert worker.wait(60) == 0
    assert (folder / ".firetime").exists() is not with_url
    if not with_url:
        await until(lambda: not _named_by_a_process(folder), what="the embedded server ends with its last user")


async def test_the_django_block_dispatches(valkey: ServerProcess, start_worker: StartWorker, folder: Path) -> None:
    script = """
    from shop.views import pay
    from shop.tasks import runner
    print(pay(None, 7), asyncio.run(runner.stats()).ready)
    runner.close()
    """
    view = start_worker(RUN_IN_FOLDER + script, str(folder), env={"FIRETIME_URL": valkey.url})
    assert view.wait(60) == 0
    assert view.printed == "{'order': 7} 1\n"


async def test_the_fastapi_block_dispatches(valkey: ServerProcess, start_worker: StartWorker, folder: Path) -> None:
    script = """
    from api import app, pay, runner
    async def ask():
        async with app.lifespan(app):
            print((await pay(7))["status"], (await runner.stats()).ready)
    asyncio.run(ask())
    """
    api = start_worker(RUN_IN_FOLDER + script, str(folder), env={"FIRETIME_URL": valkey.url})
    assert api.wait(60) == 0
    assert api.printed == "accepted 1\n"


async def test_the_test_block_passes(valkey: ServerProcess, start_worker: StartWorker, folder: Path) -> None:
    script = "    from test_reminders import test_reminders\n    asyncio.run(test_reminders())\n"
    test = start_worker(RUN_IN_FOLDER + script, str(folder), env={"FIRETIME_URL": valkey.url})
    assert test.wait(60) == 0, test.printed


def _named_by_a_process(folder: Path) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder / ".firetime") in (process / "cmdline").read_text(errors="replace"):
                return True
        except OSError:  # it has just ended
            continue
    return False


def _table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    text = (ROOT / page).read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip().strip("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split(" | ")] for row in rows[2:]]


def _words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_the_options_are_those_of_a_task() -> None:
    told = [name for row in _table("README.md", "Options of a task") for name in _words(row[0])]
    overload = next(
        node
        for node in ast.walk(ast.parse((ROOT / "src/firetime/produce/registry.py").read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "task" and node.args.kwonlyargs
    )
    assert sorted(told) == sorted(argument.arg for argument in overload.args.kwonlyargs)


def test_the_options_of_one_dispatch_are_those_of_the_method() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    told = _words(re.search(r"`task\.options\(\.\.\.\)` takes (.*?) for one dispatch", text, re.DOTALL)[1])  # type: ignore[index]
    signature = inspect.signature(TaskRunner("redis://localhost").task(_nothing).options)
    assert sorted(told) == sorted(signature.parameters)


def _nothing() -> None: ...


@pytest.mark.parametrize(("page", "all_of_them"), [("README.md", False), ("docs/operations.md", True)])
def test_the_settings_exist_with_their_defaults(page: str, all_of_them: bool) -> None:
    told = {_words(row[0])[0]: row[1] for row in _table(page, "Settings")}
    real = {each.name: _default(each.default) for each in dataclasses.fields(Settings)}
    assert {name: default for name, default in told.items() if real.get(name) != default} == {}
    assert told.keys() == real.keys() or not all_of_them


def _default(value: object) -> str:
    match value:
        case None | ():
            return ""
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _commands() -> list[list[str]]:
    """Every command that a page names, without its arguments."""
    found: list[list[str]] = []
    for page in PAGES:
        for line in page.read_text("utf-8").splitlines():
            named = [*_words(line), line[2:]] if line.startswith("$ ") else _words(line)
            found += [span.split() for span in named if span.startswith("firetime ")]
    return [[word for word in words[1:3] if re.fullmatch(r"[a-z]+", word)] for words in found]


@pytest.mark.parametrize("command", sorted({tuple(words) for words in _commands()}), ids=" ".join)
def test_the_command_exists(command: tuple[str, ...]) -> None:
    asked = CliRunner().invoke(make(), [*command, "--help"])
    assert asked.exit_code == 0, asked.output


def test_no_command_is_left_out() -> None:
    known = {command.name or (command.callback or _nothing).__name__ for command in make().registered_commands}
    known |= {group.name for group in make().registered_groups if isinstance(group.name, str)}
    readme = {words[0] for row in _table("README.md", "Command line") for words in _span_commands(row[0])}
    assert known - readme == set()


def _span_commands(cell: str) -> list[list[str]]:
    return [span.split()[1:] for span in _words(cell) if span.startswith("firetime ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_design_names_every_script_and_no_other() -> None:
    told = {
        name
        for row in _table("docs/design.md", "6. The scripts: each takes a batch, each is bounded, each is one edge")
        for name in _words(row[0])
    }
    assert told == {script.name for script in all_scripts()}


def test_the_design_names_every_key_and_no_other() -> None:
    keys, stem = QueueKeys("firetime", "q"), "firetime:{q}:"
    real = {value.removeprefix(stem) for value in vars(keys).values() if str(value).startswith(stem)} - {""}
    real = {re.sub(r"^lane:.$", "lane:<h,n,l>", name) for name in real}
    real |= {
        keys.call("<client>").removeprefix(stem),
        keys.ended("<id>").removeprefix(stem),
        keys.result("<id>").removeprefix(stem),
        keys.group("<id>").removeprefix(stem),
    }
    rows = _table(
        "docs/design.md",
        "4. Keys (`<prefix>` defaults to `firetime`; queue names and prefix match `[A-Za-z0-9_.:-]{1,100}`)",
    )
    told = {word.rpartition("{q}:")[2].lstrip(":") for row in rows for word in _words(row[0])}
    channels = {"ended", "control"}
    assert told | channels == real | channels


def test_the_design_names_every_room() -> None:
    tree = (ROOT / "docs/design.md").read_text("utf-8")
    rooms = [path for path in (ROOT / "src/firetime").rglob("*.py") if path.stem not in ("__init__", "__main__")]
    named = set(re.findall(r"[a-z_]+", tree))
    assert [path.relative_to(ROOT).as_posix() for path in rooms if path.stem not in named] == []
