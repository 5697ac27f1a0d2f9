"""What is said to a server, in the wire's form, and to which servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firetime.store.clock import Shift
from firetime.store.keys import QueueKeys
from firetime.store.scripts import Argument, Script, script
from firetime.values.errors import BrokerRefused

OLDEST = (6, 2)
"""The oldest Redis that has what the scripts need (XPENDING with IDLE, XAUTOCLAIM's kin, ZRANGE in scripts)."""


def words_of(
    shift: Shift,
    name: str,
    keys: QueueKeys,
    arguments: Mapping[str, Argument],
    rest: Sequence[Argument],
    *,
    more_keys: Sequence[str],
    named_keys: Mapping[str, str],
) -> tuple[Script, list[Argument]]:
    """A script and the words that call it."""
    called = script(name)
    if "shift_us" in called.argument_names:
        arguments = {"shift_us": shift.word, **arguments}
    return called, called.request(keys, arguments, rest, more_keys=more_keys, **named_keys)


def check_version(info: str) -> None:
    """Raises ``BrokerRefused`` when INFO tells of a server older than 6.2."""
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    version = facts.get("redis_version", "0")
    parts = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if tuple(parts) < OLDEST:
        raise BrokerRefused(f"the server is Redis {version}; firetime needs Redis 6.2 or newer, or Valkey")
