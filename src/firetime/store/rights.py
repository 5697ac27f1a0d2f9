"""The least that a producer, a worker, a dashboard or an operator must be allowed: rules for the server's ACL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from firetime.values.errors import InvalidOption
from firetime.values.ids import checked_name


class Rights(msgspec.Struct, frozen=True):
    """What a user may do. Scripts run with the rights of whoever calls them, so their commands are named as well."""

    commands: frozenset[str]
    keys: Mapping[str, str]
    """What follows ``<prefix>:{queue}:`` -> "r", "w" or "rw"."""
    channels: frozenset[str] = frozenset()


def _rights(commands: str, *, rw: str = "", r: str = "", w: str = "", channels: str = "") -> Rights:
    keys = {name: mode for mode, names in (("rw", rw), ("r", r), ("w", w)) for name in names.split()}
    return Rights(frozenset(commands.split()), keys, frozenset(channels.split()))


_ENTRANCE = "evalsha script|load info time cluster|slots asking "
"""Of every role; the last two are for clusters."""

ROLES: Mapping[str, Rights] = {
    # dispatches, and asks for the status and the results of what it sent; WAIT is for min_replicas
    "producer": _rights(
        _ENTRANCE + "ping subscribe exists del get set pexpire hexists hget hlen hset llen lpush xadd xlen xpending "
        "wait zadd zcard zrange zrem zrevrangebyscore zscore",
        rw="tasks places lane:* delayed_tasks unique call:* group:*",
        r="dead ended:* paused result:* state",
        w="bell wake",
        channels="ended",
    ),
    # claims, runs, settles, leads, promotes, ticks schedules, and closes the new shards of a paused queue; where its tasks
    # dispatch tasks, it is a producer too
    "worker": _rights(
        _ENTRANCE
        + "ping subscribe publish blpop exists del get set incr pexpire pttl hdel hexists hget hincrby hlen hmget "
        "hset hsetnx llen lpush xack xadd xclaim xdel xgroup|create xgroup|delconsumer xinfo|consumers xinfo|stream "
        "xlen xpending xrange xread xreadgroup xrevrange zadd zcard zcount zrange zrangebyscore zrem zremrangebyrank "
        "zrevrangebyscore zscore",
        rw="tasks state places lane:* bell delayed_tasks wake unique dead leader leader:epoch workers_seen "
        "schedules schedules_due schedules_last schedules_wake metrics group:*",
        w="cancelling ended:* result:* history paused swept workers",
        channels="control ended",
    ),
    # looks at everything and changes nothing
    "dashboard": _rights(
        _ENTRANCE + "ping scan exists get hget hgetall hmget xinfo|stream xlen xpending xrange zcard zrange zscore",
        r="tasks state places lane:* delayed_tasks dead ended:* result:* paused leader workers workers_seen metrics "
        "schedules schedules_due schedules_last",
    ),
    # cancels, reschedules, replays, purges, pauses, and keeps schedules; it looks as a dashboard does
    "operator": _rights(
        _ENTRANCE + "publish exists get set del hdel hexists hget hlen hmget hset llen lpush pexpire wait xadd xdel "
        "xinfo|stream xlen xpending zadd zcard zrange zrem zrevrangebyscore zscore",
        rw="tasks state places lane:* delayed_tasks unique dead call:* schedules schedules_due",
        w="bell cancelling ended:* group:* paused schedules_last schedules_wake wake",
        channels="control ended",
    ),
}
"""What each role needs, and nothing that it does not: a test takes each word away and sees something fail."""


def rights_of(roles: Iterable[str]) -> Rights:
    """What several roles need together. Raises ``InvalidOption`` for one that there is not."""
    commands, channels = set[str](), set[str]()
    keys: dict[str, str] = {}
    for role in roles:
        if role not in ROLES:
            raise InvalidOption("role", role, f"one of {', '.join(ROLES)}, or several with + between them")
        rights = ROLES[role]
        commands |= rights.commands
        channels |= rights.channels
        for name, mode in rights.keys.items():
            keys[name] = "".join(letter for letter in "rw" if letter in mode + keys.get(name, ""))
    return Rights(frozenset(commands), keys, frozenset(channels))


def rules(rights: Rights, *, prefix: str, queue: str = "*", per_key: bool = True) -> list[str]:
    """The words of an ACL rule, beginning from no rights at all.

    ``per_key``: tells reading from writing for each key, which Redis 7.0 and every Valkey can. A script call needs both
    for all its keys, whatever the script does with them; a selector of its own allows it that, and nothing else.
    """
    stem = f"{checked_name('prefix', prefix)}:{{{queue if queue == '*' else checked_name('queue', queue)}}}:"
    said = ["resetkeys", "resetchannels", "-@all"]
    names = sorted(rights.keys)
    said += [f"{_pattern(rights.keys[name], per_key=per_key)}{stem}{name}" for name in names]
    said += [f"&{stem}{name}" for name in sorted(rights.channels)]
    said += [f"+{command}" for command in sorted(rights.commands) if not (per_key and command == "evalsha")]
    if per_key and "evalsha" in rights.commands:
        said += [f"(+evalsha {' '.join(f'~{stem}{name}' for name in names)})"]
    return said


def _pattern(mode: str, *, per_key: bool) -> str:
    return "~" if mode == "rw" or not per_key else f"%{mode.upper()}~"
