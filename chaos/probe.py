"""Somebody asks the server all the time whether it is there, and writes down when it was not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from redis import Redis
from redis.exceptions import RedisError

from chaos.clock import true_us
from chaos.diary import ALL, Diary

_EVERY_S = 0.05
_LATE_S = 0.4


class Probe:
    """Asks from a thread of its own, straight, not through a proxy. It misses what the machine misses, too."""

    def __init__(self, url: Callable[[], str], diary: Diary) -> None:
        self._url = url
        self._diary = diary
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="chaos-probe", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Asks no more."""
        self._over.set()
        self._thread.join(10)

    def _ask(self) -> None:
        redis = self._client()
        answered, answered_us = time.monotonic(), true_us()
        while not self._over.wait(_EVERY_S):
            try:
                redis.ping()
            except RedisError:
                redis.close()
                redis = self._client()
                continue
            now = time.monotonic()
            if now - answered > _EVERY_S + _LATE_S:
                self._diary.write("server did not answer", ALL, answered_us, ordered=False)
            answered, answered_us = now, true_us()
        redis.close()

    def _client(self) -> Redis:
        return Redis.from_url(self._url(), socket_timeout=5, socket_connect_timeout=5)
