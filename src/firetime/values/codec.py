"""Messages to bytes and back: JSON by msgspec; another codec (signing, encryption) may wrap it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from firetime.values.errors import InvalidTaskPayload
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
    """Plain JSON: readable by people and by other languages. Never pickle."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(Message)

    def encode(self, message: Message) -> bytes:
        """The record of a message."""
        return self._encoder.encode(message)

    def decode(self, record: bytes) -> Message:
        """The message of a record."""
        try:
            return self._decoder.decode(record)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidTaskPayload("", f"the record cannot be read: {error}", raw=record) from None
