"""News of tasks that ended come in by message and wake those who wait for just these."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from firetime.store.connect import Line, Server
from firetime.values.errors import QueueError

_SILENCE_S = 20.0
"""After this long without a word the line is asked whether it still stands."""

_RECONNECT_S = 0.1


class EndedWatch:
    """One subscription for an event loop, made when somebody first waits and dropped when nobody does any more."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._waiting: defaultdict[bytes, set[asyncio.Event]] = defaultdict(set)
        self._channels: dict[str, asyncio.Event] = {}
        self._line: Line | None = None
        self._listening: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def endings(self, channel: str, task_id: str) -> AsyncGenerator[asyncio.Event]:
        """An event that is set whenever the task may have ended; look, clear it and wait again."""
        news, name = asyncio.Event(), task_id.encode()
        self._waiting[name].add(news)
        try:
            await self._subscribe(channel)
            yield news
        finally:
            self._waiting[name].discard(news)
            if not self._waiting[name]:
                del self._waiting[name]

    async def aclose(self) -> None:
        """Ends the subscription."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._line is not None:
            await self._line.aclose()
        self._listening = self._line = None

    async def _subscribe(self, channel: str) -> None:
        """Waits until the server has confirmed: what ends after this is heard."""
        confirmed = self._channels.get(channel)
        if confirmed is None:
            confirmed = self._channels[channel] = asyncio.Event()
            if self._line is None:
                self._line = self._server.line()
            try:
                await self._line.say("SUBSCRIBE", channel)
            except QueueError:
                del self._channels[channel]
                raise
            if self._listening is None:
                self._listening = asyncio.get_running_loop().create_task(self._listen(self._line))
        await confirmed.wait()

    async def _listen(self, line: Line) -> None:
        asked = False
        while True:
            try:
                heard = await line.listen(_SILENCE_S)
                if heard is None:
                    if asked:
                        await line.aclose()
                        raise QueueError("the subscription is silent")
                    await line.say("PING")
                    asked = True
                    continue
                asked = False
                self._hear(heard)
            except QueueError:
                await self._listen_again(line)
                asked = False

    def _hear(self, heard: list[bytes]) -> None:
        if heard[0] == b"subscribe":
            self._channels[heard[1].decode()].set()
        elif heard[0] == b"message":
            for news in self._waiting.get(heard[2], ()):
                news.set()

    async def _listen_again(self, line: Line) -> None:
        while True:
            await asyncio.sleep(_RECONNECT_S)
            try:
                await line.say("SUBSCRIBE", *self._channels)
                break
            except QueueError:
                continue
        # what was published meanwhile is lost: everyone looks for himself
        for waiting in self._waiting.values():
            for news in waiting:
                news.set()
