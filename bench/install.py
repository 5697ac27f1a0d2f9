"""The peers are installed from PyPI, each redis-py in an environment of its own: ``python -m bench.install FOLDER``.

One that does not install is said so and left out; the run reports it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.systems import ROOT

ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    # pip takes one version of redis-py for each environment; these need different ones
    "celery": ("celery[redis]", "hiredis"),
    "redis5": ("arq", "uvloop"),
    "redis6": ("chasquimq", "redis[hiredis]", "uvloop"),
    "redis7": (
        "repid[redis]",
        "saq[redis,hiredis]",
        "redis[hiredis]",
        "typing-extensions",  # both import it without saying so
        "uvloop",
    ),
    "redis8": (
        "redis[hiredis]",
        "setuptools",
        "wheel",
        "uvloop",
        "bullmq",
        "dramatiq[redis]",
        "huey",
        "pydocket",
        "rq",
        "streaq",
        "taskiq-redis",
    ),
}

FIRST_THERE = ("redis[hiredis]", "setuptools", "wheel")
"""Installed before the rest: bullmq's setup.py imports redis, so it is built without isolation."""


def main() -> None:
    """Makes every environment anew."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    for name, packages in ENVIRONMENTS.items():
        try:
            install(folder / name, ROOT / "bench" / "constraints" / f"{name}.txt", packages)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(folder / name)
            sys.stdout.write(f"{name}: not installed (pip ended with {error.returncode}): {', '.join(packages)}\n")


def install(environment: Path, constraints: Path, packages: tuple[str, ...]) -> None:
    """One environment, with the versions of its constraints file."""
    sys.stdout.write(f"{environment}: {', '.join(packages)}\n")
    sys.stdout.flush()
    venv.create(environment, clear=True, with_pip=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    pip += ["--constraint", str(constraints)]
    first = [package for package in packages if package in FIRST_THERE]
    if set(FIRST_THERE) <= set(packages):
        subprocess.run([*pip, *first], check=True)
        subprocess.run([*pip, "--no-build-isolation", *packages], check=True)
    else:
        subprocess.run([*pip, *packages], check=True)


if __name__ == "__main__":
    main()
