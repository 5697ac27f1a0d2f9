"""A producer process of the run: ``python -m chaos.producer <post as JSON>`` sends its share of the load, then ends.

Killed, it is followed by another in its place, which reads in the journals how far it came.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from pathlib import Path

import msgspec

from chaos.journal import Journal, told
from chaos.load import Order, batch_of, batches
from chaos.plan import Post
from chaos.sender import Sender
from chaos.tasks import make_runner, register

_ANSWERED = {"yes", "held", "moved", "exists", "maybe"}
"""Answers after which an order is not sent again; what was refused for now is."""


class Past:
    """What those before this one, in the same place, have told."""

    def __init__(self, folder: Path, slot: str) -> None:
        self.done: set[int] = set()
        """Batches that are over."""
        self._sent: dict[str, int] = {}
        self._answers: defaultdict[int, set[str]] = defaultdict(set)
        for path in sorted(folder.glob(f"{slot}.*.tsv")):
            for words in told(path):
                self._hear(words)

    def _hear(self, words: list[str]) -> None:
        match words[0]:
            case "p":
                self.done.add(int(words[1]))
            case "i":
                self._sent[words[1]] = int(words[2])
                self._answers[int(words[2])].add("?")
            case "a":
                order = self._sent[words[1]]
                self._answers[order].discard("?")
                self._answers[order].add(words[2])

    def is_over(self, order: Order) -> bool:
        """Whether it needs no sending: it was answered, or may have been accepted and has no id that would tell."""
        heard = self._answers.get(order.number, set())
        if order.explicit_id:
            return bool(heard & (_ANSWERED - {"maybe"}))
        return bool(heard & (_ANSWERED | {"?"}))


async def produce(post: Post) -> None:
    """Sends batch after batch, each at its time, or at once when that is over."""
    folder, producer = Path(post.folder), int(post.slot.rpartition("-")[2])
    past = Past(folder, post.slot)
    runner = make_runner(post.url, post.plan)
    register(runner)
    sender = Sender(runner, Journal(folder, post.slot), post.plan)
    count = batches(post.plan, producer)
    for number in range(count):
        if number in past.done:
            continue
        due_s = post.began_s + post.plan.seconds * number / count
        await asyncio.sleep(max(0.0, due_s - time.time()))
        orders = [order for order in batch_of(post.plan, producer, number) if not past.is_over(order)]
        await sender.send(orders)
        sender.journal.tell("p", number)
    await sender.finish()
    await runner.aclose()


if __name__ == "__main__":
    asyncio.run(produce(msgspec.json.decode(sys.argv[1], type=Post)))
