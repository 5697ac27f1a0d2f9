"""``module:runner`` becomes the runner of that name; what is wrong with it is told so that one can mend it."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from firetime.runner import TaskRunner
from firetime.values.errors import FiretimeError


class AppNotFound(FiretimeError):
    """There is no runner under the name given."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name


class AppBroken(FiretimeError):
    """The module that should hold the runner raised an error while it was imported."""

    def __init__(self, name: str, error: BaseException) -> None:
        own = _frames_of_the_app(error.__traceback__)
        where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
        kind = "" if isinstance(error, FiretimeError) else f"{type(error).__name__}: "
        super().__init__(f"{name} cannot be imported: {where}{kind}{error}")
        self.name = name
        self.error = error

    def show_traceback(self) -> None:
        """Prints the app's part of it; firetime's own errors say what is wrong by themselves."""
        if not isinstance(self.error, FiretimeError):
            lines = traceback.format_list(_frames_of_the_app(self.error.__traceback__))
            sys.stderr.write("".join(["Traceback (most recent call last):\n", *lines]))


def load(name: str) -> TaskRunner:
    """The runner ``module:attribute``, or the only one of ``module``; modules of the current folder are found too.

    Raises ``AppNotFound``, and ``AppBroken`` when importing the module fails.
    """
    module_name, _, attribute = name.partition(":")
    module = _import(name, module_name)
    if not attribute:
        return _only_runner(name, module)
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AppNotFound(name, f"module {module_name!r} has no attribute {attribute!r}{_offer(module)}")
        found = getattr(found, part)
    if not isinstance(found, TaskRunner):
        raise AppNotFound(name, f"{attribute!r} is of type {type(found).__name__}, not a TaskRunner{_offer(module)}")
    return found


def _import(name: str, module_name: str) -> ModuleType:
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        expected = "expected the name of a module, and of the runner in it, such as app:runner"
        raise AppNotFound(name, f"{expected}{' (without .py)' if '.py' in module_name else ''}")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            reason = f"there is no module {error.name!r} in {folder} or on the Python path"
            raise AppNotFound(name, reason) from None
        raise AppBroken(name, error) from error
    except Exception as error:
        raise AppBroken(name, error) from error


def _only_runner(name: str, module: ModuleType) -> TaskRunner:
    runners = _runners(module)
    if len(set(map(id, runners.values()))) == 1:
        return next(iter(runners.values()))
    if not runners:
        raise AppNotFound(name, "the module holds no TaskRunner")
    offers = ", ".join(f"{name}:{attribute}" for attribute in runners)
    raise AppNotFound(name, f"the module holds more than one TaskRunner; choose one of {offers}")


def _runners(module: ModuleType) -> dict[str, TaskRunner]:
    return {name: value for name, value in vars(module).items() if isinstance(value, TaskRunner)}


def _offer(module: ModuleType) -> str:
    runners = ", ".join(f"{module.__name__}:{name}" for name in _runners(module))
    return f"; there is {runners}" if runners else ""


def _frames_of_the_app(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Without the import system's frames, and firetime's."""
    ours = str(Path(__file__).parents[2])
    return [
        frame
        for frame in traceback.extract_tb(trace)
        if not frame.filename.startswith(("<frozen importlib", ours)) and frame.filename != importlib.__file__
    ]
