"""The client's and the server's errors become firetime's own, which say what can be done about them."""

from __future__ import annotations

from firetime.values.errors import BrokerRefused, BrokerUnavailable, QueueError, QueueFull

# What a server says while it cannot serve, but will: nothing was done, asking again helps.
# MISCONF (snapshots fail) and NOREPLICAS too are conditions of the server that pass when its operator acts.
_PASSING = (
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MISCONF",
    "BUSY ",
    "UNBLOCKED",
)
_RIGHTS = ("NOAUTH", "WRONGPASS", "NOPERM", "invalid username-password", "invalid password", "without any password")


class StaleCall(QueueError):
    """A numbered call arrived after a later one of the same sender; it did nothing."""


class NoScript(QueueError):
    """The server does not know the script (yet, or any more)."""


def refused(text: str) -> QueueError:
    """An error reply as an exception."""
    if text.startswith("NOSCRIPT") or "No matching script" in text:
        return NoScript(text)
    if "STALECALL" in text:
        return StaleCall(text)
    if "OOM " in text:
        return QueueFull("?", f"the server is out of memory ({text[:200]})")
    if text.startswith(_PASSING) or any(f"-{word}" in text for word in _PASSING):
        return BrokerUnavailable(f"the server cannot serve now: {text[:200]}")
    if any(word in text for word in _RIGHTS):
        return BrokerRefused(f"the server refuses these credentials or rights: {text[:200]}")
    return BrokerRefused(f"the server refused: {text[:500]}")


def unreachable(where: str, error: BaseException, *, sent: bool) -> BrokerUnavailable:
    """A lost, refused or silent connection as an exception; ``sent``: a request had gone out."""
    what = "no answer" if isinstance(error, TimeoutError) and sent else "no connection"
    return BrokerUnavailable(f"{what} from {where}: {str(error) or type(error).__name__}", maybe_accepted=sent)
