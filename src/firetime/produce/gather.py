"""Messages become the members of a group, in one queue; what cannot be one is refused before anything is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from firetime.produce.draft import House, record_of
from firetime.produce.task import each_its_own
from firetime.values.errors import InvalidOption
from firetime.values.ids import new_id
from firetime.values.message import Parcel
from firetime.values.shards import Shards, moved_to, shard_name, shard_of

_MESSAGE = "a message, as task.message(...) makes it"
_MEMBER = "messages without a unique key: whoever replaces one of them would take it out of the group"
_CALLBACK = "a message that nothing can refuse later: without a unique key, a task_id, a delay or a time of its own"


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """A group as it is sent."""

    group_id: str
    queue: str
    """The queue, or the one shard, in which all of it is."""
    members: tuple[Parcel, ...]
    callback: Parcel


def gather(members: Iterable[Parcel], callback: Parcel, *, house: House, shards: Shards) -> Gathered:
    """The group of these messages. Raises ``InvalidOption``, ``InvalidTaskPayload``."""
    given = list(members)
    for what, parcel in (*(("members", each) for each in given), ("then", callback)):
        if not isinstance(parcel, Parcel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption(what, parcel, _MESSAGE)
    _check_alone(given, callback)
    group_id = new_id()
    queue = _one_queue([*given, callback], group_id, shards)
    own = each_its_own(_moved(given, queue, shards), house.codec)
    return Gathered(
        group_id=group_id,
        queue=queue,
        members=tuple(_written(each, group_id, house) for each in own),
        callback=_written(_moved([callback], queue, shards)[0], "", house),
    )


def _check_alone(members: Sequence[Parcel], callback: Parcel) -> None:
    for each in members:
        if each.message.unique_key is not None:
            raise InvalidOption("members", each.message.task, _MEMBER)
    timed = callback.delay_us > 0 or callback.at_ms is not None
    if callback.message.unique_key is not None or callback.explicit_id or timed:
        raise InvalidOption("then", callback.message.task, _CALLBACK)
    ids = Counter(each.task_id for each in members if each.explicit_id)
    if twice := [task_id for task_id, times in ids.items() if times > 1]:
        raise InvalidOption("members", twice[0], "each task_id once")


def _one_queue(parcels: Sequence[Parcel], group_id: str, shards: Shards) -> str:
    """Where all of them go: of a queue with shards to that of the ids that their sender chose, else to the group's own."""
    queues = sorted({shards.logical(each.queue) for each in parcels})
    if len(queues) > 1:
        raise InvalidOption("members", queues, "messages, and a callback, of one queue")
    bound = sorted({each.queue for each in parcels if each.explicit_id})
    if len(bound) > 1:
        raise InvalidOption("members", bound, "task_ids of one shard: their hash tells which")
    if bound:
        return bound[0]
    # not turn by turn: messages that were made took the turns, so that groups of a kind would all meet in one shard
    count = shards.spreads(queues[0])
    return shard_name(queues[0], shard_of(group_id, count)) if count else queues[0]


def _moved(parcels: Sequence[Parcel], queue: str, shards: Shards) -> list[Parcel]:
    shard = shards.shard(queue)
    if shard is None:
        return list(parcels)
    return [
        each
        if each.queue == queue
        else msgspec.structs.replace(each, queue=queue, task_id=moved_to(each.task_id, shard))
        for each in parcels
    ]


def _written(parcel: Parcel, group_id: str, house: House) -> Parcel:
    """Written anew: what is sealed is so for the id and the shard under which it goes out."""
    message = msgspec.structs.replace(parcel.message, group=group_id)
    record = record_of(message, parcel.queue, parcel.task_id, house)
    return msgspec.structs.replace(parcel, message=message, record=record)
