"""The server, the proxies before it, and the crew behind them: what faults happen to."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from chaos.crew import Crew, Place
from chaos.diary import Diary
from chaos.plan import PREFIX, QUEUES, Plan, Post
from firetime.store.keys import QueueKeys
from tests.kit.proxy import FaultProxy
from tests.kit.servers import ServerProcess

_COPIED_S = 20.0
_LEAD_S = 4.0
"""The load begins so long after the processes were started."""


class Stage:
    """One run's server, proxies and processes; ``close`` ends them all."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.diary = Diary()
        self.server = ServerProcess(
            plan.server, folder / "server", append_only=True, config={"appendfsync": plan.appendfsync}
        ).start()
        slots = [*plan.worker_slots, *plan.producer_slots]
        self.replica: ServerProcess | None = None
        self.proxies = {slot: FaultProxy(self.server.url) for slot in slots}
        self.began_s = time.time() + _LEAD_S
        self.workers = [self._place(slot, "chaos.worker", ends=False) for slot in plan.worker_slots]
        self.producers = [self._place(slot, "chaos.producer", ends=True) for slot in plan.producer_slots]
        self.crew = Crew([*self.workers, *self.producers], self.diary.vanished)
        self.redis = _client(self.server.url)
        self.keys = {queue: QueueKeys(PREFIX, queue) for queue in QUEUES}

    def _place(self, slot: str, module: str, *, ends: bool) -> Place:
        post = Post(
            slot=slot, url=self.proxies[slot].url, folder=str(self.folder), plan=self.plan, began_s=self.began_s
        )
        return Place(post, module, ends=ends)

    @property
    def url(self) -> str:
        """Of the server, straight."""
        return self.server.url

    def client(self, url: str) -> Any:
        """A plain client for a server of the run."""
        return _client(url)

    def add_replica(self) -> None:
        """A second server that copies the first; returns when it does."""
        folder, config = self.folder / "replica", {"appendfsync": self.plan.appendfsync}
        self.replica = ServerProcess(self.plan.server, folder, append_only=True, config=config).start()
        with _client(self.replica.url) as redis:
            redis.replicaof("127.0.0.1", str(self.server.port))
            give_up = time.monotonic() + _COPIED_S
            while redis.info("replication").get("master_link_status") != "up":
                if time.monotonic() > give_up:
                    raise TimeoutError(f"the replica did not copy its primary within {_COPIED_S:g} s")
                time.sleep(0.05)

    def move_to(self, server: ServerProcess) -> None:
        """From now on this is the server: who connects anew reaches it."""
        self.redis.close()
        self.server, self.redis = server, _client(server.url)
        for proxy in self.proxies.values():
            proxy.point_at(server.url)

    def leader(self, chosen: int) -> Place | None:
        """Who leads one of the queues, or another if nobody leads that one now."""
        for offset in range(len(QUEUES)):
            keys = self.keys[QUEUES[(chosen + offset) % len(QUEUES)]]
            with contextlib.suppress(RedisError):
                token = (self.redis.get(keys.leader) or b"").split(b" ")[0]
                about = self.redis.hget(keys.workers, token) if token else None
                pid = json.loads(about)["pid"] if about else 0
                for place in self.workers:
                    if pid and place.pid == pid:
                        return place
        return None

    def heal(self) -> None:
        """Every fault of the network ends."""
        for proxy in self.proxies.values():
            proxy.heal()

    def close(self) -> None:
        """Nothing is left running."""
        self.crew.close()
        for proxy in self.proxies.values():
            proxy.close()
        self.redis.close()
        self.server.stop()
        if self.replica is not None:
            self.replica.stop()


def _client(url: str) -> Any:
    return Redis.from_url(url, protocol=2, socket_timeout=10, socket_connect_timeout=10)
