"""Processes in their places: hired, killed, frozen, asked to stop; who ends is followed by another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from chaos import clock
from chaos.plan import Post
from tests.kit.child import Child
from tests.kit.processes import bare_environment

ROOT = Path(__file__).parents[1]
_LOOK_S = 0.05
_STOP_S = 30.0


class Place:
    """One place of the crew, and who fills it at the moment."""

    def __init__(self, post: Post, module: str, *, ends: bool) -> None:
        self.post = post
        self.over = False
        """Whether nobody follows any more: it was dismissed, or (``ends``) its work is done."""
        self.busy = asyncio.Lock()
        """Held while a fault strikes it: one at a time, or thawing would meet the killed."""
        self.link_busy = asyncio.Lock()
        """Held while a fault strikes its way to the server."""
        self.started = 0
        self._module = module
        self._ends = ends
        self._expected: tuple[int, ...] = ()
        self._child: Child | None = None
        folder = Path(post.folder)
        clock.make(folder / f"{post.slot}.clock")

    @property
    def slot(self) -> str:
        """Its name."""
        return self.post.slot

    @property
    def pid(self) -> int:
        """Of who fills it; 0 for nobody."""
        return self._child.pid if self._child is not None else 0

    @property
    def log(self) -> Path:
        """What all who were here have printed."""
        return Path(self.post.folder) / f"{self.slot}.log"

    def hire(self) -> None:
        """Somebody new fills it."""
        words = msgspec.json.encode(self.post).decode()
        paths = os.pathsep.join((str(ROOT), str(ROOT / "src")))
        environment = {**bare_environment(), "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
        self._expected = ()
        self._child = Child([sys.executable, "-P", "-m", self._module, words], output=self.log, env=environment)
        self.started += 1

    def kill(self) -> None:
        """SIGKILL."""
        self._expected = (-signal.SIGKILL,)
        if self._child is not None:
            self._child.kill()

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        # one that has only just been started has no ear for it yet
        self._expected = (0, -signal.SIGTERM)
        if self._child is not None:
            self._child.terminate()

    def freeze(self) -> None:
        """SIGSTOP, if it runs."""
        if self._child is not None:
            with contextlib.suppress(RuntimeError):  # it ended just now
                self._child.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        if self._child is not None:
            self._child.thaw()

    def ended(self) -> tuple[int, bool] | None:
        """How its process ended, and whether that was to be expected; None while it runs."""
        if self._child is None or (code := self._child.returncode) is None:
            return None
        return code, code in self._expected or (self._ends and code == 0)

    def follow(self) -> None:
        """After an end: lets go of the process, and hires another unless the work of this place is done."""
        code = self._child.returncode if self._child is not None else None
        self.close()
        if self._ends and code == 0:
            self.over = True
        if not self.over:
            self.hire()

    async def dismiss(self) -> int:
        """Asks it to stop for good; its exit code. Raises ``TimeoutError`` when it does not."""
        self.over = True
        self.ask_to_stop()
        return 0 if self._child is None else await asyncio.to_thread(self._child.wait, _STOP_S)

    def close(self) -> None:
        """Ends its process, whatever it does."""
        if self._child is not None:
            self._child.close()
            self._child = None


class Crew:
    """All places of a run."""

    def __init__(self, places: list[Place], on_vanished: Callable[[Place, int], None]) -> None:
        self.places = {place.slot: place for place in places}
        self._on_vanished = on_vanished

    def hire(self) -> None:
        """Fills every place."""
        for place in self.places.values():
            place.hire()

    async def watch(self) -> None:
        """For ever: who ends is followed by another; of an end that nobody ordered ``on_vanished`` is told."""
        while True:
            for place in self.places.values():
                ended = None if place.over else place.ended()
                if ended is not None:
                    code, expected = ended
                    if not expected:
                        self._on_vanished(place, code)
                    place.follow()
            await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        """No process is left behind."""
        for place in self.places.values():
            place.over = True
            place.close()
