"""A proxy stands between a client and a real server, and breaks the connection on demand."""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import urlsplit

from tests.kit.link import Faults, Hold, Link
from tests.kit.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
_CALL_S = 10.0
_TURNS = 3


class HeldRequest:
    """A request that is on its way and does not arrive before `release()`."""

    def __init__(self, hold: Hold, call: Callable[[Coroutine[None, None, bytes]], bytes]) -> None:
        self._hold = hold
        self._call = call

    @property
    def caught(self) -> bool:
        """A request has come and is held."""
        return self._hold.request is not None

    @property
    def request(self) -> bytes | None:
        """What was caught, as bytes of the protocol."""
        return self._hold.request

    def release(self) -> bytes:
        """Let it arrive, although its client may be gone; returns what the server replied, as bytes of the protocol."""
        return self._call(self._hold.release())


class FaultProxy:
    """Stands before `target_url` at `url`, in a thread and a loop of its own.

    Every control may be called from any thread and has taken effect when it returns. Without a fault all passes.
    """

    def __init__(self, target_url: str) -> None:
        target = urlsplit(target_url)
        self._target = _host_and_port(target_url)
        self._port = free_port()
        login, at, _ = target.netloc.rpartition("@")
        self.url = target._replace(netloc=f"{login}{at}127.0.0.1:{self._port}").geturl()
        self._faults = Faults()
        self._links: set[Link] = set()
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kit-proxy", daemon=True)
        self._thread.start()
        self.accept()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._call(self._count())

    @property
    def replies_to_swallow(self) -> int:
        """How many of the requests that `swallow_replies` waits for have not come yet."""
        return self._faults.swallow

    def cut(self) -> None:
        """All connections are dropped, now. A request that is held stays on its way."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Who connects from now on is refused; connections that stand go on."""
        self._call(self._refuse())

    def accept(self) -> None:
        """After `refuse`: the door is open again."""
        self._call(self._accept())

    def blackhole(self) -> None:
        """Connections stand and new ones are accepted, but nothing passes any more, either way, until `heal`."""
        self._call(self._set(blackhole=True))

    def point_at(self, target_url: str) -> None:
        """Connections made from now on go to another server; those that stand stay where they are."""
        self._target = _host_and_port(target_url)

    def delay(self, seconds: float) -> None:
        """Everything takes so much longer, each way; 0 ends it."""
        self._call(self._set(delay_s=seconds))

    def swallow_replies(self, n: int = 1, *, only: str | None = None) -> None:
        """The next `n` requests are executed by the server, their replies are lost and then their connection is cut.

        A pipeline counts as many requests as it holds; what stands in it behind the last of them does not arrive.
        With `only` (``"EVALSHA"``) other commands pass and do not count: a new connection begins with some of its own.
        """
        self._call(self._set(swallow=n, swallow_only=only))

    def hold_next_request(self, *, only: str | None = None) -> HeldRequest:
        """The next request (of the command `only`) does not arrive before it is released.

        Nor does what follows it on its connection; other connections pass it. Its client may go away meanwhile.
        """
        return HeldRequest(self._call(self._hold(only)), self._call)

    def heal(self) -> None:
        """Every fault ends. A connection that lost bytes in a blackhole is cut; what is held stays held."""
        self._call(self._heal())

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)

    async def _count(self) -> int:
        self._welcome()
        return sum(link.has_client for link in self._links)

    async def _cut(self) -> None:
        self._welcome()
        for link in tuple(self._links):
            link.cut()

    async def _refuse(self) -> None:
        if self._listener is not None:
            self._welcome()
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def _accept(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self._port), backlog=100)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._welcome)

    def _welcome(self) -> None:
        """Whoever has connected by now is a link from now on, and none is overlooked.

        Not asyncio's own server: it accepts a connection, makes it known two turns of the loop later, and forgets it without
        closing it when it is closed itself in between.
        """
        while self._listener is not None:
            try:
                accepted, _ = self._listener.accept()
            except OSError:  # nobody else, or it has gone away again
                return
            accepted.setblocking(False)
            link = Link(self._faults, accepted)
            self._links.add(link)
            link.start(*self._target).add_done_callback(partial(self._gone, link))

    def _gone(self, link: Link, _: object) -> None:
        self._links.discard(link)

    async def _set(self, **faults: float | str | None) -> None:
        for name, value in faults.items():
            setattr(self._faults, name, value)

    async def _hold(self, only: str | None) -> Hold:
        hold = Hold(only)
        self._faults.holds.append(hold)
        return hold

    async def _heal(self) -> None:
        for link in tuple(self._links):
            if link.lost_bytes:
                link.cut()
        self._faults.delay_s, self._faults.blackhole, self._faults.swallow = 0, False, 0
        self._faults.holds.clear()
        await self._accept()

    async def _close(self) -> None:
        await self._refuse()
        while self._links:
            for link in tuple(self._links):
                link.close()
            await asyncio.sleep(0)


def _host_and_port(url: str) -> tuple[str, int]:
    target = urlsplit(url)
    if target.hostname is None or target.port is None:
        raise ValueError(f"a proxy needs a target with a host and a port, not {url!r}")
    return target.hostname, target.port
