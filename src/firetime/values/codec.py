"""Messages to bytes and back: JSON by msgspec; another codec (signing, encryption) may wrap it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from firetime.values.errors import InvalidTaskPayload, shown
from firetime.values.message import Message


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
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidTaskPayload("", f"the record cannot be read: {error}", raw=record) from None


class Guarded:
    """A codec, which may be user code: whatever goes wrong in it is ``InvalidTaskPayload``, and ends nothing else."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def encode(self, message: Message) -> bytes:
        """The record of a message."""
        try:
            record: object = self._codec.encode(message)
            if not isinstance(record, bytes):
                raise TypeError(f"the codec gave {type(record).__name__}, not bytes")
            return record
        except InvalidTaskPayload:
            raise
        except Exception as error:
            raise InvalidTaskPayload(message.task, f"its message cannot be encoded: {shown(error)}") from error

    def decode(self, record: bytes) -> Message:
        """The message of a record."""
        try:
            return self._codec.decode(record)
        except InvalidTaskPayload:
            raise
        except Exception as error:  # what user code raises, and RecursionError for JSON that is too deep
            raise InvalidTaskPayload("", f"the record cannot be read: {shown(error)}", raw=record) from error
