"""The client's and the server's errors become firetime's own, which say what can be done about them."""

from __future__ import annotations

from firetime.values.errors import BrokerRefused, BrokerUnavailable, QueueError, QueueFull

# What a server says while it cannot serve, but will: nothing was done, asking again helps. MISCONF (its snapshots
# fail) and NOREPLICAS too are conditions that pass when its operator acts.
_PASSING = (
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MISCONF",
    "BUSY",
    "UNBLOCKED",
)
_RIGHTS = ("NOAUTH", "WRONGPASS", "NOPERM")
_RIGHTS_TEXTS = ("invalid username-password", "invalid password", "without any password", "no password is set")

# The client takes the code off the text of these; older releases of it do not keep it elsewhere.
_CODES = {
    "AskError": "ASK",
    "AuthenticationError": "WRONGPASS",
    "BusyLoadingError": "LOADING",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "NoScriptError": "NOSCRIPT",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "TryAgainError": "TRYAGAIN",
}


class StaleCall(QueueError):
    """A numbered call arrived after a later one of the same sender; it did nothing."""


class NoScript(QueueError):
    """The server does not know the script (yet, or any more)."""

    node: tuple[str, int] | None = None
    """Of a cluster: the node that does not."""


class Redirected(QueueError):
    """Another node of the cluster has the key: for good (``MOVED``), or for this one call (``ASK``)."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        code, slot, node = text.split(" ")[:3]
        host, _, port = node.rpartition(":")
        self.once = code == "ASK"
        self.slot = int(slot)
        self.node = (host, int(port))


def refused(error: BaseException) -> QueueError:
    """An error reply as an exception."""
    text = _said(error)
    code = text.partition(" ")[0]
    if code == "NOSCRIPT":
        return NoScript(text)
    if code in ("MOVED", "ASK"):
        return Redirected(text)
    if "STALECALL" in text:
        return StaleCall(text)
    if code == "OOM" or "-OOM " in text:
        return QueueFull("?", f"the server is out of memory ({text[:200]})")
    if code in _PASSING or any(f"-{word} " in text for word in _PASSING):
        return BrokerUnavailable(f"the server cannot serve now: {text[:200]}")
    if code in _RIGHTS or any(words in text for words in _RIGHTS_TEXTS):
        return BrokerRefused(f"the server refuses these credentials or rights: {text[:200]}")
    return BrokerRefused(f"the server refused: {text[:500]}")


def is_reply(error: BaseException) -> bool:
    """Whether the server said it, although the client files it under lost connections."""
    return type(error).__name__ in _CODES or any(words in str(error) for words in _RIGHTS_TEXTS)


def unreachable(where: str, error: BaseException, *, sent: bool) -> BrokerUnavailable:
    """A lost, refused or silent connection as an exception; ``sent``: a request had gone out."""
    what = "no answer" if isinstance(error, TimeoutError) and sent else "no connection"
    return BrokerUnavailable(f"{what} from {where}: {str(error) or type(error).__name__}", maybe_accepted=sent)


def _said(error: BaseException) -> str:
    """The error reply as the server wrote it."""
    text = str(error)
    code = getattr(error, "status_code", None) or _CODES.get(type(error).__name__)
    return text if code is None or text.startswith(code) else f"{code} {text}"
