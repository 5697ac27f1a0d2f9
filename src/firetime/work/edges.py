"""A batch of verdicts of one kind, queue and lane becomes one script call, fenced message by message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import msgspec

from firetime.store.connect import Server
from firetime.store.keys import QueueKeys
from firetime.store.scripts import Argument
from firetime.values.codec import Guarded
from firetime.values.errors import TaskUnlockFailed
from firetime.values.ids import as_text
from firetime.values.message import Delivery, State
from firetime.values.verdict import DONE, Bury, Cancel, Complete, Outcome, Release, RetryIn, Verdict

# a day: long enough for whoever asks on the morning after
_OUTLIVES_MS = 24 * 3600 * 1000


class Settlement(msgspec.Struct, frozen=True):
    """One delivery and what becomes of it."""

    delivery: Delivery
    outcome: Outcome
    verdict: Verdict
    keep_history: bool = False
    repeated: bool = False
    """Its call went out before and was not answered: a refusal may mean that it was settled then."""


class Answered(msgspec.Struct, frozen=True):
    """What a script said to a batch."""

    refused: frozenset[str] = frozenset()
    """Ids whose fence no longer held."""
    not_freed: tuple[TaskUnlockFailed, ...] = ()


class Edges:
    """The settling edges, taken by one worker."""

    def __init__(
        self,
        server: Server,
        keys_of: Callable[[str], QueueKeys],
        consumer: str,
        codec: Guarded,
        *,
        history_length: int,
        remember_s: float,
    ) -> None:
        self._server = server
        self._keys_of = keys_of
        self._consumer = consumer
        self._codec = codec
        self._history_length = history_length
        self._remember_ms = max(1, round(remember_s * 1000))

    async def take(self, batch: list[Settlement]) -> Answered:
        """Settles a batch whose verdicts are of one kind, queue and lane. Raises ``QueueError`` kinds."""
        match batch[0].verdict:
            case Complete() | Cancel():
                return await self._complete(batch)
            case RetryIn():
                return await self._retry(batch)
            case Bury():
                return await self._bury(batch)
            case Release():
                return await self._release(batch)
            case _:
                return Answered()

    def _keys(self, batch: list[Settlement]) -> QueueKeys:
        return self._keys_of(batch[0].delivery.fence.queue)

    async def _complete(self, batch: list[Settlement]) -> Answered:
        keys = self._keys(batch)
        plain: list[Argument] = []
        others: list[Argument] = []
        more_keys: list[str] = []
        groups: dict[str, int] = {}
        for each in batch:
            if _is_plain(each):
                delivery, fence = each.delivery, each.delivery.fence
                plain += (fence.entry, fence.deliveries, delivery.task_id)
            else:
                group = _group(each.delivery)
                number = groups.setdefault(group, len(groups) + 1) if group else 0
                others += [*_fence_words(each), *self._ending_words(each), number]
                more_keys += [keys.ended(each.delivery.task_id), keys.result(each.delivery.task_id)]
        if groups:
            more_keys += [*keys.lanes.values(), keys.bell, keys.paused, *map(keys.group, groups)]
        counters = _counters(batch)
        arguments: dict[str, Argument] = {
            "consumer": self._consumer,
            "counted": len(counters) // 2,
            "plain": len(plain) // 3,
            "history_length": self._history_length,
            "ended_channel": keys.ended_channel,
        }
        lane = keys.lanes[batch[0].delivery.fence.lane]
        refused, not_freed = await self._server.run(
            "complete", keys, arguments, [*counters, *plain, *others], more_keys=more_keys, lane=lane
        )
        keys_of = {each.delivery.task_id: _unique_key(each.delivery) for each in batch} if not_freed else {}
        lost_keys = tuple(TaskUnlockFailed(keys_of[task_id], task_id) for task_id in _ids(not_freed))
        return Answered(_ids(refused), lost_keys)

    def _ending_words(self, each: Settlement) -> tuple[Argument, ...]:
        message = each.delivery.message
        value = each.verdict.value if isinstance(each.verdict, Complete) else None
        result_ms = message.result_ms if message is not None and value is not None else 0
        remember_ms = message.remember_ms if message is not None else 0
        outcome = "done value" if result_ms else "done"
        if isinstance(each.verdict, Cancel):
            outcome, remember_ms = "cancelled", max(remember_ms, self._remember_ms)
        if result_ms:
            # the outcome outlives the value, so that an expired result can be told from an unknown id
            remember_ms = max(remember_ms, result_ms + _OUTLIVES_MS)
        history = "1" if each.keep_history else ""
        return outcome, _unique_key(each.delivery), remember_ms, result_ms, value or b"", history, each.delivery.task

    async def _retry(self, batch: list[Settlement]) -> Answered:
        keys = self._keys(batch)
        counters = _counters(batch)
        rest: list[Argument] = [*counters]
        for each in batch:
            if isinstance(each.verdict, RetryIn):
                message, verdict = each.delivery.message, each.verdict
                delay_us = round(verdict.delay_s * 1_000_000)
                unique = _unique_key(each.delivery), message.unique_ms if message is not None else 0
                rest += [*_fence_words(each), delay_us, self._state(each, verdict.state), *unique]
        arguments: dict[str, Argument] = {
            "consumer": self._consumer,
            "letter": batch[0].delivery.fence.lane,
            "counted": len(counters) // 2,
            "remember_ms": self._remember_ms,
            "ended_channel": keys.ended_channel,
        }
        more_keys = [keys.ended(each.delivery.task_id) for each in batch]
        refused, cancelled = await self._server.run("retry", keys, arguments, rest, more_keys=more_keys)
        await self._give_up_groups(batch, _ids(cancelled))
        return Answered(_ids(refused))

    async def _give_up_groups(self, batch: list[Settlement], cancelled: frozenset[str]) -> None:
        # in a call of its own: a group that has lost a member never ends well, so that nobody can be too early or late
        members = (each.delivery for each in batch if each.delivery.task_id in cancelled)
        if groups := {group for group in map(_group, members) if group}:
            await self._server.ask("DEL", *map(self._keys(batch).group, groups))

    async def _bury(self, batch: list[Settlement]) -> Answered:
        keys = self._keys(batch)
        counters = _counters(batch)
        rest: list[Argument] = [*counters]
        for each in batch:
            if isinstance(each.verdict, Bury):
                state = msgspec.structs.replace(each.verdict.state, reason=each.verdict.reason, phase="")
                rest += [*_fence_words(each), self._state(each, state), _unique_key(each.delivery)]
        arguments: dict[str, Argument] = {
            "consumer": self._consumer,
            "counted": len(counters) // 2,
            "ended_channel": keys.ended_channel,
        }
        lane = keys.lanes[batch[0].delivery.fence.lane]
        (refused,) = await self._server.run("bury", keys, arguments, rest, lane=lane)
        return Answered(_ids(refused))

    def _state(self, each: Settlement, state: State) -> bytes:
        return self._codec.write_state(state, each.delivery.fence.queue, each.delivery.task_id)

    async def _release(self, batch: list[Settlement]) -> Answered:
        rest: list[Argument] = []
        for each in batch:
            if isinstance(each.verdict, Release):
                started = "1" if each.verdict.started else ""
                rest += [*_fence_words(each), started, each.delivery.fire_ms]
        arguments: dict[str, Argument] = {"consumer": self._consumer, "letter": batch[0].delivery.fence.lane}
        (refused,) = await self._server.run("release", self._keys(batch), arguments, rest)
        return Answered(_ids(refused))


def _is_plain(each: Settlement) -> bool:
    message = each.delivery.message
    if each.verdict is not DONE or each.keep_history or message is None:
        return False
    return message.unique_key is None and not (message.remember_ms or message.group)


def _fence_words(each: Settlement) -> tuple[Argument, ...]:
    return each.delivery.fence.entry, each.delivery.fence.deliveries, each.delivery.stored_id


def _unique_key(delivery: Delivery) -> str:
    return (delivery.message.unique_key or "") if delivery.message is not None else ""


def _group(delivery: Delivery) -> str:
    return delivery.message.group if delivery.message is not None else ""


def _counters(batch: list[Settlement]) -> list[Argument]:
    """Metrics of a batch, summed up: flat pairs of field and increment."""
    ran: defaultdict[str, list[Outcome]] = defaultdict(list)
    late_ms: list[int] = []
    for each in batch:
        delivery, outcome = each.delivery, each.outcome
        if outcome.ending in {"returned", "raised"}:
            ran[delivery.task].append(outcome)
            if delivery.fire_ms:
                late_ms.append(delivery.claimed_ms - delivery.fire_ms)
    counters: list[Argument] = []
    for task, outcomes in ran.items():
        spent_us = round(1_000_000 * sum(outcome.duration_s for outcome in outcomes))
        counters += (f"{task}_count", len(outcomes), f"{task}_sum", spent_us)
        if failed := sum(outcome.error is not None for outcome in outcomes):
            counters += (f"{task}_failed", failed)
    if late_ms:
        counters += ("@late_count", len(late_ms), "@late_sum", sum(late_ms))
    return counters


def _ids(told: list[bytes]) -> frozenset[str]:
    return frozenset(as_text(task_id) for task_id in told)
