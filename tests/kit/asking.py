"""A question over HTTP, as a supervisor asks it."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any


async def ask(port: int, path: str, *, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, Any]:
    """The status and the JSON document; from a thread, for the event loop may be the one that is asked about."""

    def asked() -> tuple[int, Any]:
        line = http.client.HTTPConnection(host, port, timeout=10)
        try:
            line.request(method, path)
            answer = line.getresponse()
            body = answer.read()
        finally:
            line.close()
        return answer.status, json.loads(body) if body else None

    return await asyncio.to_thread(asked)
