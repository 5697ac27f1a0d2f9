"""What firetime uses of the client's connections: they pack, send, read and close; nothing of its commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class AsyncConnection(Protocol):
    """A connection of ``redis.asyncio``."""

    @property
    def is_connected(self) -> bool:
        """Whether it is up, as far as it knows."""
        ...

    async def connect(self) -> None:
        """Connects, authenticates, selects the database."""
        ...

    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - theirs
        """Sends bytes."""
        ...

    async def read_response(self, disable_decoding: bool = False, *, disconnect_on_error: bool = True) -> Any:  # noqa: FBT001, FBT002 - theirs
        """Reads one reply."""
        ...

    async def disconnect(self, nowait: bool = False) -> None:  # noqa: FBT001, FBT002 - theirs
        """Closes."""
        ...


class BlockingConnection(Protocol):
    """A connection of ``redis``."""

    def connect(self) -> None:
        """Connects, authenticates, selects the database."""
        ...

    def send_packed_command(self, command: Sequence[bytes], check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - theirs
        """Sends bytes."""
        ...

    def read_response(self, disable_decoding: bool = False) -> Any:  # noqa: FBT001, FBT002 - theirs
        """Reads one reply."""
        ...

    def disconnect(self) -> None:
        """Closes."""
        ...
