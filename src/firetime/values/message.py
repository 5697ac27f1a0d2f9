"""A message, its record in Redis, and one delivery of it to one worker.

None of them can be part of a reference cycle (they hold text, numbers and each other), so that the garbage collector
need not walk them (``gc=False``): a tenth of a busy worker's time went there.
"""

from __future__ import annotations

import msgspec

from firetime.values.errors import InvalidTaskPayload
from firetime.values.states import LANES, Priority

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that it cannot read; RecursionError for what is nested too deeply."""


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One run on its way, as its record holds it; the id is the record's key and not repeated inside.

    Written as a JSON array: fields are only ever added at the end, so that old and new releases read each other.
    """

    task: str
    args: msgspec.Raw
    """``[[positional, ...], {"keyword": ...}]``, as dispatched; the worker's task decodes it to its parameters' types."""
    lane: str = "n"
    unique_key: str | None = None
    unique_ms: int = 0
    """How long past the fire-time the key is held, in ms; 0 with a key: until the task ends."""
    result_ms: int = 0
    remember_ms: int = 0
    """How long an explicit id is remembered after its end, in ms."""
    max_retry: int | None = None
    timeout_s: float | None = None
    headers: dict[str, str] = {}
    group: str = ""
    """The group whose callback waits for it; empty: it is no member of one."""


class Parcel(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message about to be sent: where, under which id, when, and what to do about a unique key that is held."""

    queue: str
    task_id: str
    message: Message
    record: bytes
    explicit_id: bool = False
    delay_us: int = 0
    at_ms: int | None = None
    on_conflict: str = "raise"


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One failure, as a dead letter keeps it."""

    type: str
    text: str
    traceback: str
    at_ms: int
    """On the server's clock."""


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What happened to a message so far; absent in Redis until something went wrong."""

    crashes: int = 0
    deliveries: int = 0
    """Deliveries before the entry the message stands in now."""
    failures: int = 0
    first: tuple[Note, ...] = ()
    last: tuple[Note, ...] = ()
    phase: str = ""
    """``failing``: out of attempts, and its failure handler has yet to end well."""
    reason: str = ""
    """Why it is failing or dead: exhausted, crashed, rejected, malformed, unknown, record lost."""
    first_seen_ms: int = 0
    """When a worker first met it without knowing its task; 0: never."""
    puzzled: int = 0
    """How often it was put back for that."""


class Fence(msgspec.Struct, frozen=True, gc=False):
    """What a worker must still hold to settle a delivery."""

    queue: str
    lane: str
    entry: str
    consumer: str
    deliveries: int


class Delivery(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One handing of a message to one worker; equal to itself only, since no other is the same handing."""

    task_id: str
    fence: Fence
    message: Message | None
    """None for what cannot be read; ``raw`` is then what there is."""
    state: State
    fire_ms: int
    """Its fire-time in ms on the server's clock; 0 for what was ready at once."""
    claimed_ms: int
    """When it was claimed, on the same clock."""
    raw: bytes = b""
    problem: str = ""
    """``malformed`` or ``record lost`` when there is no message."""
    cancel_asked: bool = False
    own_id: bytes = b""
    """The id as it is stored, where that is no text."""
    error: InvalidTaskPayload | None = None
    """What the codec said of a malformed one."""
    logical: str = ""
    """The queue that people know, where ``fence`` names a shard of one."""

    @property
    def crashes(self) -> int:
        """Deliveries whose lease ran out: those recorded, and all of this entry but the present one."""
        return self.state.crashes + self.fence.deliveries - 1

    @property
    def number(self) -> int:
        """The fence as user code sees it: grows with every delivery of this id."""
        return self.state.deliveries + self.fence.deliveries

    @property
    def stored_id(self) -> str | bytes:
        """The id as scripts must be given it."""
        return self.own_id or self.task_id

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self.logical or self.fence.queue

    @property
    def task(self) -> str:
        """The task's name, or what stands for it where the message cannot be read."""
        return self.message.task if self.message is not None else f"<{self.problem}>"


def lane_of(priority: Priority) -> str:
    """The letter of the lane for a priority."""
    return LANES[priority]
