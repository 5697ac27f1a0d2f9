"""One client's connection to the real server: requests one way, replies the other, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.kit.frames import Frames, command, is_push

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1 << 16
_MANY_REPLIES = {"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"}


@dataclass(slots=True)
class Faults:
    """What goes wrong at the moment; all connections of a proxy look at the same one."""

    delay_s: float = 0
    blackhole: bool = False
    swallow: int = 0
    swallow_only: str | None = None
    holds: list[Hold] = field(default_factory=list)

    def takes_reply_of(self, request: bytes) -> bool:
        if self.swallow == 0 or self.swallow_only not in {None, command(request)}:
            return False
        self.swallow -= 1
        return True

    def hold_for(self, request: bytes) -> Hold | None:
        hold = next((hold for hold in self.holds if hold.only in {None, command(request)}), None)
        if hold is not None:
            self.holds.remove(hold)
        return hold


@dataclass(slots=True, eq=False)
class Hold:
    """Waits for a request (of the command `only`), then holds it and what follows it on its connection."""

    only: str | None
    request: bytes | None = None
    link: Link | None = None
    reply: asyncio.Future[bytes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def release(self) -> bytes:
        if self.link is None:
            raise RuntimeError("no request was caught yet: wait for .caught")
        self.link.let_go(self)
        return await self.reply


@dataclass(frozen=True, slots=True)
class _Owed:
    """A request that the server has yet to answer, and what becomes of the answer."""

    swallow: bool
    hold: Hold | None


class Link:
    """Both directions of one connection. The way to the server stands as long as a held request needs it."""

    def __init__(self, faults: Faults, accepted: socket.socket) -> None:
        self.lost_bytes = False
        self._faults = faults
        self._accepted = accepted
        self._client: asyncio.StreamWriter | None = None
        self._server: asyncio.StreamWriter | None = None
        self._requests, self._replies = Frames(), Frames()
        self._owed: deque[_Owed] = deque()
        self._held: Hold | None = None
        self._behind: deque[bytes] = deque()
        self._doomed = False  # one of its replies was swallowed
        self._uncountable = False  # it has subscribed: one request, many replies
        self._task: asyncio.Task[None] | None = None

    def start(self, host: str, port: int) -> asyncio.Task[None]:
        """Carries until both sides are closed."""
        self._task = asyncio.get_running_loop().create_task(self._run(host, port))
        self._task.add_done_callback(self._ended)
        return self._task

    async def _run(self, host: str, port: int) -> None:
        requests, self._client = await asyncio.open_connection(sock=self._accepted, limit=CHUNK)
        replies = await self._connect(host, port)
        # made only now: a coroutine made before would never be awaited if the connecting were cancelled
        ways = [self._carry(requests, self._from_client)]
        if replies is not None:
            ways.append(self._carry(replies, self._from_server))
        await asyncio.gather(*ways)

    def _ended(self, _: asyncio.Task[None]) -> None:
        if self._client is None:  # cancelled before it had begun
            self._accepted.close()

    async def _connect(self, host: str, port: int) -> asyncio.StreamReader | None:
        """What the server will say; None where nothing passes, or where it is down."""
        if self._faults.blackhole:
            self.lost_bytes = True
            return None
        try:
            replies, self._server = await asyncio.open_connection(host, port, limit=CHUNK)
        except OSError:  # the server is down: the client learns it by losing its connection
            self._abort_client()
            return None
        return replies

    @property
    def has_client(self) -> bool:
        return self._client is None or not self._client.is_closing()

    def cut(self) -> None:
        if self._client is None:
            self.close()
        self._abort_client()
        if self._server is not None and not self._needs_server():
            self._server.transport.abort()

    def close(self) -> None:
        for side in (self._client, self._server):
            if side is not None:
                side.transport.abort()
        if self._task is not None:
            self._task.cancel()

    def _abort_client(self) -> None:
        if self._client is not None:
            self._client.transport.abort()

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()

    def let_go(self, hold: Hold) -> None:
        if self._server is None or self._server.is_closing():
            raise ConnectionResetError("the server has closed the connection of the held request")
        if self._held is not hold or hold.request is None:
            raise RuntimeError("the held request was released already")
        self._held = None
        self._forward(hold.request, hold)
        while self._behind and self._held is None:
            self._request(self._behind.popleft())

    async def _carry(self, reader: asyncio.StreamReader, arrive: Callable[[bytes], None]) -> None:
        """Bytes arrive in order, each after the delay that held when it was sent; last the empty ones of the end."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        async def send() -> None:
            data = b"more"
            while data:
                try:
                    data = await reader.read(CHUNK)
                except OSError:  # reset by its peer
                    data = b""
                on_the_way.put_nowait((loop.time() + self._faults.delay_s, data))

        async def receive() -> None:
            data = b"more"
            while data:
                due, data = await on_the_way.get()
                if (rest_s := due - loop.time()) > 0:
                    await asyncio.sleep(rest_s)
                arrive(data)

        await asyncio.gather(send(), receive())

    def _from_client(self, data: bytes) -> None:
        if not data:
            self._close_client()
            self._close_server_unless_needed()
        elif self._faults.blackhole:
            self.lost_bytes = True
        else:
            for request in self._requests.feed(data):
                self._request(request)

    def _request(self, request: bytes) -> None:
        if self._held is not None:
            self._behind.append(request)
        elif hold := self._faults.hold_for(request):
            hold.request, hold.link, self._held = request, self, hold
        else:
            self._forward(request, None)

    def _forward(self, request: bytes, hold: Hold | None) -> None:
        swallow = self._faults.takes_reply_of(request)
        if self._server is None or self._server.is_closing() or (self._doomed and not swallow):
            return  # the replies would not match their requests any more; it is cut soon
        self._doomed |= swallow
        self._uncountable |= command(request) in _MANY_REPLIES
        self._owed.append(_Owed(swallow, hold))
        self._server.write(request)

    def _from_server(self, data: bytes) -> None:
        if self._faults.blackhole:
            self.lost_bytes = True
        elif data:
            for reply in self._replies.feed(data):
                self._reply(reply)
        else:
            for owed in self._owed:
                if owed.hold is not None:
                    owed.hold.reply.set_exception(ConnectionResetError("the server went away before it replied"))
            self._close_client()
        if not data and self._server is not None:
            self._server.close()

    def _reply(self, reply: bytes) -> None:
        owed = None if is_push(reply) or self._uncountable or not self._owed else self._owed.popleft()
        if owed is not None and owed.hold is not None:
            owed.hold.reply.set_result(reply)
        if owed is None or not owed.swallow:
            if self._client is not None and self.has_client:
                self._client.write(reply)
        elif not any(other.swallow for other in self._owed):
            self.cut()
        if not self.has_client:
            self._close_server_unless_needed()

    def _close_server_unless_needed(self) -> None:
        if self._server is not None and not self._needs_server():
            self._server.close()

    def _needs_server(self) -> bool:
        return self._held is not None or any(owed.hold is not None for owed in self._owed)
