"""An address becomes the server it names: one, a cluster, what sentinels watch over, or this machine's own."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from firetime.store.address import Address
from firetime.store.clock import Shift
from firetime.store.connect import Server
from firetime.store.wire import AsyncConnection
from firetime.values.errors import BrokerUnavailable

if TYPE_CHECKING:
    from firetime.store.embedded import EmbeddedServer


def connect(address: Address, shift: Shift) -> Server:
    """The server of an address, as one event loop sees it; nothing is sent yet."""
    if address.kind == "cluster":
        from firetime.store.cluster import ClusterServer

        return ClusterServer(address, shift)
    if address.kind == "sentinel":
        from firetime.store.sentinel import SentinelServer

        return SentinelServer(address, shift)
    return Server(address, shift)


class Home:
    """A process's hold on the embedded server of a folder, taken when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._embedded: EmbeddedServer | None = None
        self._joining = threading.Lock()

    def join(self) -> Address:
        """Where the server is; starts it where nobody has, or where it was lost. Blocks for a tenth of a second then.

        Raises ``EmbeddedUnavailable``.
        """
        from firetime.store.embedded import join_or_start

        with self._joining:
            held = self._embedded
            if held is None or not held.answers():
                self.folder = self.folder.resolve()
                self._embedded = join_or_start(self.folder)
                if held is not None:
                    held.close()
                held = self._embedded
            return Address(held.url)

    def leave(self) -> None:
        """Lets go of the server, which ends with its last user."""
        with self._joining:
            held, self._embedded = self._embedded, None
        if held is not None:
            held.close()

    async def connect(self, shift: Shift) -> Server:
        """The server as one event loop sees it."""
        return _HomeServer(await asyncio.to_thread(self.join), shift, self)


class _HomeServer(Server):
    """The embedded server: each new connection sees to it that it is there."""

    def __init__(self, address: Address, shift: Shift, home: Home) -> None:
        super().__init__(address, shift)
        self._home = home

    async def locate(self, connection: AsyncConnection) -> None:
        """Starts the server anew where it was lost; its socket stays the same."""
        from firetime.store.embedded import EmbeddedUnavailable

        try:
            await asyncio.to_thread(self._home.join)
        except EmbeddedUnavailable as error:
            # it has been there before: a worker bears it like any other outage
            raise BrokerUnavailable(error.reason) from None
