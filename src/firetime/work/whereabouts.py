"""Where a runner stands in a program becomes words that another process can follow to the same tasks."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from firetime.values.definition import Definition
from firetime.values.errors import InvalidOption, WrongContext

SCRIPT = "__firetime_main__"
"""What a script is called in a child process, so that its ``if __name__ == "__main__":`` is not entered."""

_child = False


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """The way to the tasks of a runner."""

    path: list[str]
    """Where modules are looked for."""
    argv: list[str]
    """What the program was started with, which its modules may read."""
    script: str
    """The file of a program that was started by its file's name and has to do with the tasks; else empty."""
    modules: list[str]
    """To be imported, in this order: they hold the runner and register its tasks."""
    module: str
    attribute: str
    """``module:attribute`` is the runner."""
    log_level: int | None
    """That of the root logger, where it has a handler."""

    @property
    def home(self) -> str:
        """What to tell people of it."""
        return self.script or f"{self.module}:{self.attribute}"


def whereabouts(runner: object, tasks: Mapping[str, Definition], target: str = "") -> Whereabouts | None:
    """The way to a runner and its tasks of ``run_in="process"``; None when there are none.

    ``target`` is what the worker was started with (``app:runner``), if known. Raises ``InvalidOption`` where another
    process could not get there.
    """
    wanting = [each for each in tasks.values() if each.options.run_in == "process"]
    return _way_to(runner, wanting, target) if wanting else None


def _way_to(runner: object, tasks: Sequence[Definition], target: str) -> Whereabouts:
    if os.name != "posix":
        raise _impossible(tasks, "Linux or macOS")
    module, _, attribute = target.partition(":")
    modules = [module] if module else []
    modules += [each.function.__module__ for each in tasks]
    if not attribute:
        module, attribute = _home_of(runner, modules) or ("", "")
    if not attribute:
        raise _impossible(
            tasks, "a runner that is a variable of a module: the process finds it there by importing that"
        )
    wanted = [*modules, module]
    script = _script(tasks) if "__main__" in wanted else ""
    main = "__main__" if script else _name_of_main()
    named = [main if each == "__main__" else each for each in wanted]
    return Whereabouts(
        path=list(sys.path),
        argv=list(sys.argv),
        script=script,
        modules=list(dict.fromkeys(each for each in named if each != "__main__")),
        module=main if module == "__main__" else module,
        attribute=attribute,
        log_level=logging.getLogger().level if logging.getLogger().handlers else None,
    )


def arrive(where: Whereabouts) -> Mapping[str, Definition]:
    """In the other process: imports what has to be imported. Returns the runner's tasks; raises what importing raises."""
    sys.argv[:] = where.argv
    if where.log_level is not None:
        form = "%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"
        logging.basicConfig(level=where.log_level, format=form)
    main = _run_script(where.script) if where.script else None
    for module in where.modules:
        importlib.import_module(module)
    found: Any = main if where.module == "__main__" else sys.modules[where.module]
    for part in where.attribute.split("."):
        found = getattr(found, part)
    tasks: Mapping[str, Definition] = found.tasks
    return tasks


def become_child() -> None:
    """From here on this process only runs single tasks for a worker."""
    global _child  # noqa: PLW0603 - it is a fact about the process
    _child = True


def refuse_in_child() -> None:
    """Raises ``WrongContext`` in a process that runs single tasks for a worker: it must not become one itself."""
    if _child:
        raise WrongContext(
            "this process runs tasks for a worker (run_in='process') and imports the program for them: what starts the "
            'program must stand under if __name__ == "__main__":'
        )


def _home_of(runner: object, modules: Sequence[str]) -> tuple[str, str] | None:
    """The module and variable that hold the runner: those that have to do with its tasks are looked at first."""
    for name in dict.fromkeys([*modules, *sys.modules]):
        module = sys.modules.get(name)
        if not isinstance(module, ModuleType) or name.startswith("firetime."):
            continue
        for attribute, value in tuple(vars(module).items()):
            if value is runner:
                return name, attribute
    return None


def _name_of_main() -> str:
    """What ``python -m`` was given; empty for a script."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec is not None else ""


def _impossible(tasks: Sequence[Definition], expected: str) -> InvalidOption:
    return InvalidOption(f"task {tasks[0].name!r}, run_in", "process", expected)


def _script(tasks: Sequence[Definition]) -> str:
    """The file of the program, where it was started by its name."""
    if _name_of_main():
        return ""
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None or not Path(file).is_file():
        raise _impossible(tasks, "a program in a file: no process can import an interactive session, or python -c")
    return str(Path(file).resolve())


def _run_script(path: str) -> ModuleType:
    loader = SourceFileLoader(SCRIPT, path)
    spec = importlib.util.spec_from_loader(SCRIPT, loader)
    if spec is None:  # only for a loader without is_package
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[SCRIPT] = module
    loader.exec_module(module)
    return module
