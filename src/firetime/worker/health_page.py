"""A question comes in over HTTP, whether the worker is well; 200 or 503 goes out, with what ails it as JSON."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

import msgspec

from firetime.values.errors import InvalidOption
from firetime.worker.wellbeing import Wellbeing

_MOST_S = 5.0
_MOST_BYTES = 8 * 1024
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_PATHS = ("/health", "/livez", "/readyz")


def bind(address: str) -> socket.socket:
    """The socket to serve on. Raises ``InvalidOption`` where the address is not to be had."""
    host, _, port = address.rpartition(":")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host.strip("[]"), int(port)), family=family)
    except OSError as error:
        raise InvalidOption("health", address, f"an address of this machine that is free ({error})") from None


async def serve(on: socket.socket, look: Callable[[], Wellbeing]) -> None:
    """For ever: answers ``GET /health`` and ``/readyz`` (is it ready), ``/livez`` (would a new process mend it)."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_MOST_S):
                asked = await reader.readuntil(b"\n")
                while (await reader.readuntil(b"\n")).strip():
                    pass
                writer.write(_answer(asked, look()))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, sock=on, limit=_MOST_BYTES)
    async with server:
        await server.serve_forever()


def _answer(asked: bytes, found: Wellbeing) -> bytes:
    method, path, *_ = [*asked.decode("latin-1").split(), "", ""]
    path = path.partition("?")[0]
    if path not in _PATHS:
        return _reply(404, {"paths": _PATHS}, with_body=True)
    if method not in ("GET", "HEAD"):
        return _reply(405, {"methods": ("GET", "HEAD")}, with_body=True)
    well = found.alive if path == "/livez" else found.ready
    return _reply(200 if well else 503, found, with_body=method == "GET")


def _reply(status: int, told: object, *, with_body: bool) -> bytes:
    body = msgspec.json.encode(told) + b"\n"
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
