"""News of tasks that ended come in by message and wake those who wait for just these."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from firetime.store.connect import CALL_S, Line, Server
from firetime.values.errors import BrokerRefused, BrokerUnavailable, QueueError

_SILENCE_S = 20.0
"""After this long without a word the line is asked whether it still stands."""

_RECONNECT_S = 0.1


class EndedWatch:
    """One subscription for an event loop, made when somebody first waits, and kept until closed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._waiting: defaultdict[bytes, set[asyncio.Event]] = defaultdict(set)
        self._channels: dict[str, asyncio.Future[None]] = {}
        """Done when the server has confirmed the subscription."""
        self._line: Line | None = None
        self._one_at_a_time = asyncio.Lock()
        """Two that speak at once would connect twice."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening = False
        self._closed = False

    def check_open(self) -> None:
        """Raises ``BrokerRefused`` after ``aclose``: what is waited for would never be heard."""
        if self._closed:
            raise BrokerRefused("this runner is closed")

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
        """Ends the subscription; whoever waits is told that nothing more will be heard."""
        self._closed = True
        self._let_all_look()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._line is not None:
            await self._line.aclose()
        self._line = None

    async def _subscribe(self, channel: str) -> None:
        """Waits until the server has confirmed: what ends after this is heard."""
        confirmed = self._channels.get(channel)
        if confirmed is None:
            confirmed = self._channels[channel] = asyncio.get_running_loop().create_future()
            # a task of its own: whoever waits may be cancelled, and others wait for the same
            self._spawn(self._ask_for(channel, confirmed))
        await asyncio.shield(confirmed)

    async def _ask_for(self, channel: str, confirmed: asyncio.Future[None]) -> None:
        line = self._line = self._line or self._server.line()
        clock = asyncio.get_running_loop().time
        expires = clock() + CALL_S
        while True:
            try:
                await self._say(line, "SUBSCRIBE", channel)
                break
            except QueueError as error:
                if clock() + _RECONNECT_S > expires or not isinstance(error, BrokerUnavailable):
                    del self._channels[channel]
                    confirmed.set_exception(error)
                    confirmed.exception()  # whoever waited may have gone
                    return
            await asyncio.sleep(_RECONNECT_S)
        if not self._listening:
            self._listening = True
            self._spawn(self._listen(line))

    async def _say(self, line: Line, *words: str) -> None:
        async with self._one_at_a_time:
            await line.say(*words)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, line: Line) -> None:
        asked = False
        while True:
            try:
                heard = await line.listen(_SILENCE_S)
                if heard is None:
                    if asked:
                        await line.aclose()
                        raise QueueError("the subscription is silent")
                    await self._say(line, "PING")
                    asked = True
                    continue
                asked = False
                self._hear(heard)
            except BrokerRefused as error:
                self._refuse(error)
                return
            except QueueError:
                await self._listen_again(line)
                asked = False

    def _refuse(self, error: BrokerRefused) -> None:
        """The user may not subscribe: whoever waits for that is told, and the next one who waits asks anew."""
        self._listening = False
        for channel, confirmed in tuple(self._channels.items()):
            if not confirmed.done():
                del self._channels[channel]
                confirmed.set_exception(error)
                confirmed.exception()  # whoever waited may have gone
        self._let_all_look()

    def _hear(self, heard: list[bytes]) -> None:
        if heard[0] == b"subscribe":
            confirmed = self._channels.get(heard[1].decode())
            if confirmed is not None and not confirmed.done():
                confirmed.set_result(None)
            else:
                self._let_all_look()
        elif heard[0] == b"message":
            for news in self._waiting.get(heard[2], ()):
                news.set()

    async def _listen_again(self, line: Line) -> None:
        while True:
            await asyncio.sleep(_RECONNECT_S)
            try:
                await self._say(line, "SUBSCRIBE", *self._channels)
                return
            except QueueError:
                continue

    def _let_all_look(self) -> None:
        """The subscription was lost and stands again; what was published meanwhile stays lost."""
        for waiting in self._waiting.values():
            for news in waiting:
                news.set()
