"""What firetime uses of the client's connections: they pack, send, read and close; nothing of its commands."""

from __future__ import annotations

import asyncio
import os
import select
import ssl
from collections.abc import Sequence
from typing import Any, Protocol, cast

import hiredis

from firetime.store.scripts import Argument
from firetime.values.errors import NotReplicated

_TURNS_OF_A_CLOSE = 3


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


def has_ended(connection: AsyncConnection) -> bool:
    """Whether the server has closed it while nobody used it, as a restart does: then a request need not fail first."""
    reader = getattr(connection, "_reader", None)
    return reader is not None and (reader.at_eof() or reader.exception() is not None)


def has_ended_blocking(connection: Any) -> bool:
    """The same for a connection of ``redis``: nothing is expected, so that what can be read is the server's good-bye.

    Not so with TLS, where the server may send what is no reply; there the request fails, and is repeated.
    """
    if connection._sock is None or isinstance(connection._sock, ssl.SSLSocket):  # noqa: SLF001 - no public word for it
        return False
    quick = select.poll()
    quick.register(connection._sock, select.POLLIN)  # noqa: SLF001
    return bool(quick.poll(0))


def sever_blocking(connection: Any) -> None:
    """Closes the socket of a connection of ``redis``, with which nobody else may be told anything: it is the parent's."""
    if connection._sock is not None:  # noqa: SLF001 - the client's own closing says good-bye first
        connection._sock.close()  # noqa: SLF001


def abort(connection: AsyncConnection) -> None:
    """Drops the connection at once: whoever waits for its answer is told that it is lost."""
    writer = getattr(connection, "_writer", None)
    if writer is not None:
        writer.transport.abort()


async def drop(connection: AsyncConnection) -> None:
    """Closes the connection for good, in the turns of the event loop that may be its last.

    A close in the usual way takes as long as the server likes: TLS waits for its farewell.
    """
    abort(connection)
    await connection.disconnect(nowait=True)
    for _ in range(_TURNS_OF_A_CLOSE):
        await asyncio.sleep(0)


def sever(connection: AsyncConnection) -> None:
    """Closes the connection's socket, without a word to the event loop it belongs to.

    A close in the usual way takes the socket out of the loop's epoll set, which a forked child shares with its parent:
    the parent would never hear of its own socket again. With nothing behind the descriptor, nothing can be taken out.
    """
    writer = getattr(connection, "_writer", None)
    if writer is None:
        return
    lent = writer.get_extra_info("socket")
    inner = getattr(lent, "_sock", None)
    if inner is not None:
        inner.close()
    elif lent.fileno() >= 0:
        # uvloop lends no socket that could be closed
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, lent.fileno(), inheritable=False)
        os.close(nothing)


def packed(words: Sequence[Argument]) -> bytes:
    """A command in the wire protocol; hiredis packs in C what the client packs in Python."""
    return cast(bytes, hiredis.pack_command(tuple(words)))  # type: ignore[arg-type] # pyright: ignore[reportUnknownMemberType, reportArgumentType]


_WAIT_SHARE = 0.8
"""How much of a call's time its replicas have: the rest is for the answer's way, so that it tells how many have it."""


async def replicated(connection: AsyncConnection, words: Sequence[Argument], replicas: int, left_s: float) -> Any:
    """One command, answered once so many replicas have what it wrote.

    WAIT counts what the connection itself has written, so it follows in the same packet.
    https://redis.io/docs/latest/commands/wait/
    """
    wait_ms = max(1, int(left_s * _WAIT_SHARE * 1000))  # 0 would be for ever
    request = packed(words) + packed(("WAIT", replicas, wait_ms))
    await connection.send_packed_command(request, check_health=False)
    reply = await connection.read_response(disable_decoding=True)
    reached = int(await connection.read_response(disable_decoding=True))
    if reached < replicas:
        raise NotReplicated(replicas, reached)
    return reply


async def read_info(connection: AsyncConnection, section: str) -> str:
    """One section of INFO, over a connection that nobody else uses yet."""
    await connection.send_packed_command(packed(("INFO", section)), check_health=False)
    told = cast(bytes, await connection.read_response(disable_decoding=True))
    return told.decode("utf-8", "replace")
