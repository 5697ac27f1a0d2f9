"""Messages to bytes and back: JSON by msgspec; another codec (signing, encryption) may wrap it."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import msgspec

from firetime.values.errors import InvalidTaskPayload, shown
from firetime.values.message import UNREADABLE, Message, State
from firetime.values.state import read_state, write_state


class Codec(Protocol):
    """How a record is written. ``decode`` raises ``InvalidTaskPayload`` for what it cannot or will not read."""

    def encode(self, message: Message) -> bytes:
        """The record of a message."""
        ...

    def decode(self, record: bytes) -> Message:
        """The message of a record."""
        ...


class JsonCodec:
    """Plain JSON: readable by people and by other languages. Never pickle.

    What follows the arguments is left out where all of it is as usual: that is a sixth of a short message, a million
    times where so many wait for their fire-time.
    """

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(Message)
        self._usual = self._encoder.encode(Message("", msgspec.Raw(b"0"))).removeprefix(b'["",0')

    def encode(self, message: Message) -> bytes:
        """The record of a message."""
        record = self._encoder.encode(message)
        return record.removesuffix(self._usual) + b"]" if record.endswith(self._usual) else record

    def decode(self, record: bytes) -> Message:
        """The message of a record."""
        try:
            return self._decoder.decode(record)
        except UNREADABLE as error:
            raise InvalidTaskPayload("", f"the record cannot be read: {error}", raw=record) from None


Kind = Literal["message", "schedule", "result", "state"]


class Label(NamedTuple):
    """Where something that is sealed belongs: there it can be opened, and nowhere else."""

    prefix: str
    kind: Kind
    queue: str
    id: str
    """A task's id, a schedule's name; empty for a message that may go out under the id of the one it replaces."""


NOWHERE = Label("", "message", "", "")


class Sealing:
    """A codec that wraps another one, and seals what that wrote; results and errors as well as messages.

    Its two methods are ``seal`` and ``unseal``; the latter raises ``UntrustedMessage``.
    """

    varies = False
    """Whether the same bytes, sealed again, look different."""

    def __init__(self, codec: Codec | None = None) -> None:
        self._inner = codec or JsonCodec()

    def seal(self, plain: bytes, label: Label) -> bytes:
        """Bytes that ``unseal`` opens under the same label only."""
        raise NotImplementedError

    def unseal(self, sealed: bytes, label: Label) -> bytes:
        """What was sealed."""
        raise NotImplementedError

    def is_current(self, sealed: bytes) -> bool:
        """Whether it was sealed in the way that ``seal`` would seal it now."""
        return isinstance(self._inner, Sealing) and self._inner.is_current(sealed)

    def wrap(self, plain: bytes, label: Label) -> bytes:
        """Sealed by all layers, the inner ones first."""
        inner = self._inner.wrap(plain, label) if isinstance(self._inner, Sealing) else plain
        return self.seal(inner, label)

    def unwrap(self, sealed: bytes, label: Label) -> bytes:
        """Opened by all layers."""
        inner = self.unseal(sealed, label)
        return self._inner.unwrap(inner, label) if isinstance(self._inner, Sealing) else inner

    def encode_for(self, message: Message, label: Label) -> bytes:
        """The record of a message."""
        inner = self._inner
        written = inner.encode_for(message, label) if isinstance(inner, Sealing) else inner.encode(message)
        return self.seal(written, label)

    def decode_for(self, record: bytes, label: Label) -> Message:
        """The message of a record."""
        written, inner = self.unseal(record, label), self._inner
        return inner.decode_for(written, label) if isinstance(inner, Sealing) else inner.decode(written)

    def encode(self, message: Message) -> bytes:
        """Sealed for nowhere: the runner uses ``encode_for``."""
        return self.encode_for(message, NOWHERE)

    def decode(self, record: bytes) -> Message:
        """Opened as sealed for nowhere."""
        return self.decode_for(record, NOWHERE)


class Guarded:
    """A codec, which may be user code: whatever goes wrong in it is ``InvalidTaskPayload``, and ends nothing else."""

    def __init__(self, codec: Codec, prefix: str = "") -> None:
        self._codec = codec
        self._sealing = codec if isinstance(codec, Sealing) else None
        self._prefix = prefix

    def encode(self, message: Message, queue: str = "", id: str = "", kind: Kind = "message") -> bytes:
        """The record of a message that goes out under that id; for an empty one, under any of the queue."""
        try:
            sealing = self._sealing
            record: object = (
                self._codec.encode(message)
                if sealing is None
                else sealing.encode_for(message, Label(self._prefix, kind, queue, id))
            )
            if not isinstance(record, bytes):
                raise TypeError(f"the codec gave {type(record).__name__}, not bytes")
            return record
        except InvalidTaskPayload:
            raise
        except Exception as error:
            raise InvalidTaskPayload(message.task, f"its message cannot be encoded: {shown(error)}") from error

    def decode(self, record: bytes, queue: str = "", id: str = "", kind: Kind = "message") -> Message:
        """The message of a record found under that id."""
        try:
            if self._sealing is None:
                return self._codec.decode(record)
            return self._sealing.decode_for(record, Label(self._prefix, kind, queue, id))
        except InvalidTaskPayload:
            raise
        except Exception as error:  # what user code raises, and RecursionError for JSON that is too deep
            raise InvalidTaskPayload("", f"the record cannot be read: {shown(error)}", raw=record) from error

    def wrap(self, plain: bytes, kind: Kind, queue: str, id: str) -> bytes:
        """A result or a state as it is stored: sealed, where the codec seals."""
        return plain if self._sealing is None else self._sealing.wrap(plain, Label(self._prefix, kind, queue, id))

    def unwrap(self, stored: bytes, kind: Kind, queue: str, id: str) -> bytes:
        """What ``wrap`` was given. Raises ``UntrustedMessage``."""
        return stored if self._sealing is None else self._sealing.unwrap(stored, Label(self._prefix, kind, queue, id))

    def is_kept_as_well_as(self, kept: bytes) -> bool:
        """Whether a record that is kept already may stay where it says the same: sealed anew it would look changed."""
        return self._sealing is not None and self._sealing.varies and self._sealing.is_current(kept)

    def write_state(self, state: State, queue: str, id: str) -> bytes:
        """A state as it is stored."""
        if self._sealing is None:
            return write_state(state)
        return write_state(state, lambda body: self.wrap(body, "state", queue, id))

    def read_state(self, stored: bytes | None, queue: str, id: str) -> State:
        """A stored state; fresh, but for its counters, where it is not what was written."""
        if self._sealing is None:
            return read_state(stored)
        return read_state(stored, lambda body: self.unwrap(body, "state", queue, id))
