"""Messages of a hot queue take their shard: by their unique key, else their own id, else turn by turn."""

from __future__ import annotations

import secrets
from itertools import count

from firetime.values.shards import Shards, shard_in, shard_name, shard_of, with_shard


class Spread:
    """Where the messages of one runner go; it keeps whose turn is next."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        # programs that send one message each would else all send it to the first shard
        self._turns = {queue: count(secrets.randbelow(64)) for queue in shards.counts}

    def place(self, queue: str, task_id: str, *, key: str | None, explicit: bool) -> tuple[str, str]:
        """The shard's name and the message's id. Raises ``InvalidOption`` for a queue that is a shard of another.

        An id of the sender's own stays as it is: its hash tells the shard, or it is one that was made here before and
        carries it. An id made here is given the shard that it carries.
        """
        most = self._shards.spreads(queue)
        if most == 0:
            return self._shards.check_not_a_shard("queue", queue), task_id
        if explicit:
            shard = _of_an_id(task_id, most) if key is None else shard_of(key, most)
            return shard_name(queue, shard), task_id
        shard = next(self._turns[queue]) % most if key is None else shard_of(key, most)
        return shard_name(queue, shard), with_shard(task_id, shard)


def _of_an_id(task_id: str, most: int) -> int:
    carried = shard_in(task_id)
    return carried if carried is not None and carried < most else shard_of(task_id, most)
