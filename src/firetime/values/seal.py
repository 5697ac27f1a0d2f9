"""What another codec wrote is signed, or encrypted, for the place where it belongs; what was changed or moved is refused."""

from __future__ import annotations

import hmac
import os
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from firetime.values.codec import Codec, JsonCodec, Label, Sealing
from firetime.values.errors import InvalidOption, UntrustedMessage
from firetime.values.forks import in_a_child
from firetime.values.keyring import KEY_BYTES, Keyring, read_keys
from firetime.values.settings import Settings

_MAC_BYTES, _SALT_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 16, 12, 16

MOST_SEALS = 2**32
"""How often one derived key may encrypt with a random nonce of 96 bits (NIST SP 800-38D, section 8.3)."""

_MOST_HEADER = 64
_BOUND, _UNBOUND = b"i", b"q"


class Signed(Sealing):
    """Signs messages, results and errors with HMAC-SHA256; what was not signed so never reaches a task.

    ``keys``: ids and keys of at least 32 bytes; ``use``: the id of the one that signs (default: the only one). All of
    them verify. ``codec``: what writes the messages (default: JSON; ``Encrypted`` too). ``accept_unsigned``: also takes
    what bears no signature, for the time in which signing is introduced. Raises ``InvalidOption`` for keys that will
    not do. Everybody may read what is signed: see ``Encrypted``.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes],
        *,
        use: str | None = None,
        codec: Codec | None = None,
        accept_unsigned: bool = False,
    ) -> None:
        super().__init__(codec)
        self._keys = Keyring(keys, use)
        self._accept_unsigned = accept_unsigned

    def __repr__(self) -> str:
        return f"Signed({self._keys!r})"

    def seal(self, plain: bytes, label: Label) -> bytes:
        """Header, signature, and the bytes as they are."""
        header = _header(b"S1", self._keys.use.encode(), label)
        key = self._keys.get(self._keys.use.encode()) or b""
        return header + hmac.digest(key, _about(header, label) + plain, "sha256") + plain

    def unseal(self, sealed: bytes, label: Label) -> bytes:
        """The bytes, when the signature is right."""
        found = _read_header(b"S1", sealed)
        if found is None:
            if self._accept_unsigned:
                return sealed
            raise UntrustedMessage("", f"the {label.kind} is not signed", raw=sealed)
        header, id = found
        key = self._keys.get(id)
        if key is None:
            raise _unknown_key(id, label, sealed)
        signature, plain = sealed[len(header) :][:_MAC_BYTES], sealed[len(header) + _MAC_BYTES :]
        if not hmac.compare_digest(signature, hmac.digest(key, _about(header, label) + plain, "sha256")):
            reason = f"the signature of the {label.kind} is wrong: it was changed, moved, or signed with another key"
            raise UntrustedMessage("", reason, raw=sealed)
        return plain

    def is_current(self, sealed: bytes) -> bool:
        """Whether the key that signs now has signed it."""
        found = _read_header(b"S1", sealed)
        if found is None or found[1] != self._keys.use.encode():
            return False
        inner = sealed[len(found[0]) + _MAC_BYTES :]
        return not isinstance(self._inner, Sealing) or self._inner.is_current(inner)

    @property
    def varies(self) -> bool:  # type: ignore[override]
        """As the codec that it wraps does."""
        return isinstance(self._inner, Sealing) and self._inner.varies


class Encrypted(Sealing):
    """Encrypts messages, results and errors with AES-256-GCM; what was changed, or not encrypted, never reaches a task.

    ``keys``: ids and keys of 32 bytes; ``use``: the id of the one that encrypts (default: the only one). All of them
    decrypt. ``codec``: what writes the messages (default: JSON). ``accept_plain``: also takes what is not encrypted,
    for the time in which encryption is introduced. Needs the extra ``firetime[encryption]``. Raises ``InvalidOption``
    for keys that will not do, ``ImportError`` without the extra.

    Each process encrypts with keys of its own, derived from yours with a random salt (HKDF, RFC 5869), and takes another
    after 2^32 uses at most: so the bound that NIST SP 800-38D sets for random nonces is kept by any number of processes.
    """

    varies = True

    def __init__(
        self,
        keys: Mapping[str, bytes],
        *,
        use: str | None = None,
        codec: Codec | None = None,
        accept_plain: bool = False,
    ) -> None:
        super().__init__(codec)
        self._keys = Keyring(keys, use, exact=True)
        self._accept_plain = accept_plain
        self._derived = lru_cache(1024)(_cipher)
        self.begin_anew()
        in_a_child(self, Encrypted.begin_anew)

    def __repr__(self) -> str:
        return f"Encrypted({self._keys!r})"

    def begin_anew(self) -> None:
        """Takes another derived key; a forked child must not go on with its parent's count."""
        self._lock = threading.Lock()
        self._renew()

    def _renew(self) -> None:
        salt = os.urandom(_SALT_BYTES)
        self._current = salt, _cipher(self._keys.get(self._keys.use.encode()) or b"", salt)
        self._seals = 0

    def seal(self, plain: bytes, label: Label) -> bytes:
        """Header, salt, nonce, and the encrypted bytes with their tag."""
        with self._lock:
            if self._seals >= MOST_SEALS:
                self._renew()
            self._seals += 1
            salt, cipher = self._current
        header, nonce = _header(b"E1", self._keys.use.encode(), label), os.urandom(_NONCE_BYTES)
        return header + salt + nonce + bytes(cipher.encrypt(nonce, plain, _about(header, label)))

    def unseal(self, sealed: bytes, label: Label) -> bytes:
        """The bytes, when they are what was encrypted."""
        found = _read_header(b"E1", sealed)
        if found is None:
            if self._accept_plain:
                return sealed
            raise UntrustedMessage("", f"the {label.kind} is not encrypted", raw=sealed)
        header, id = found
        key, body = self._keys.get(id), sealed[len(header) :]
        if key is None:
            raise _unknown_key(id, label, sealed)
        if len(body) < _SALT_BYTES + _NONCE_BYTES + _TAG_BYTES:
            raise UntrustedMessage("", f"the encrypted {label.kind} is cut off", raw=sealed)
        salt, nonce = body[:_SALT_BYTES], body[_SALT_BYTES : _SALT_BYTES + _NONCE_BYTES]
        from cryptography.exceptions import InvalidTag

        try:
            cipher = self._derived(key, salt)
            return bytes(cipher.decrypt(nonce, body[_SALT_BYTES + _NONCE_BYTES :], _about(header, label)))
        except InvalidTag:
            reason = f"the {label.kind} cannot be decrypted: it was changed, moved, or encrypted with another key"
            raise UntrustedMessage("", reason, raw=sealed) from None

    def is_current(self, sealed: bytes) -> bool:
        """Whether the key that encrypts now has encrypted it."""
        found = _read_header(b"E1", sealed)
        return found is not None and found[1] == self._keys.use.encode()


def _cipher(key: bytes, salt: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError:
        raise ImportError("encryption needs cryptography: pip install 'firetime[encryption]'") from None
    return AESGCM(HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=b"firetime encrypted 1").derive(key))


def _header(what: bytes, id: bytes, label: Label) -> bytes:
    return b"%b %b %b " % (what, id, _BOUND if label.id else _UNBOUND)


def _read_header(what: bytes, sealed: bytes) -> tuple[bytes, bytes] | None:
    """The header, and the key's id; None for what bears none. No JSON begins like it."""
    words = sealed[:_MOST_HEADER].split(b" ", 3)
    if len(words) != 4 or words[0] != what or words[2] not in (_BOUND, _UNBOUND):
        return None
    return sealed[: len(b" ".join(words[:3])) + 1], words[1]


def _about(header: bytes, label: Label) -> bytes:
    """What is authenticated beside the bytes, so that no two places give the same: each word with its length."""
    prefix, kind, queue, id = label
    if header.endswith(b" q "):
        id = ""
    return b"firetime" + _counted(header) + _place(prefix, kind, queue) + _counted(id.encode("utf-8", "surrogatepass"))


@lru_cache(256)
def _place(prefix: str, kind: str, queue: str) -> bytes:
    return b"".join(_counted(word.encode("utf-8", "surrogatepass")) for word in (prefix, kind, queue))


def _counted(word: bytes) -> bytes:
    return b"%d:%b," % (len(word), word)


def _unknown_key(id: bytes, label: Label, sealed: bytes) -> UntrustedMessage:
    said = id.decode("utf-8", "backslashreplace")
    return UntrustedMessage(
        "", f"the {label.kind} is sealed with the key {said!r}, which is not known here", raw=sealed
    )


def chosen_codec(given: Codec | None, settings: Settings) -> Codec:
    """The codec given in code, or what the keys in the settings ask for, plain JSON where there are none.

    Raises ``InvalidOption`` where both say something, and for keys that will not do.
    """
    signing, encryption = settings.signing_keys, settings.encryption_keys
    if given is not None:
        for name, keys in (("signing_keys", signing), ("encryption_keys", encryption)):
            if keys is not None:
                raise InvalidOption(name, keys, "no codec= beside it, which would not use them")
        return given
    codec: Codec = JsonCodec()
    if encryption is not None:
        ring, use = read_keys("encryption_keys", encryption.word)
        codec = Encrypted(ring, use=use, codec=codec)
    if signing is not None:
        ring, use = read_keys("signing_keys", signing.word)
        codec = Signed(ring, use=use, codec=codec)
    return codec
