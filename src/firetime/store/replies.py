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


_AS_CLUSTER = "name some of its nodes, as redis+cluster://host:port,host:port"


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


def refused(error: BaseException, *, in_cluster: bool = False) -> QueueError:
    """An error reply as an exception; ``in_cluster``: whoever asked can follow a slot to where it is."""
    text = _said(error)
    code = text.partition(" ")[0]
    if code == "NOSCRIPT":
        return NoScript(text)
    if code in ("MOVED", "ASK"):
        return (
            Redirected(text)
            if in_cluster
            else BrokerRefused(f"the server is a node of a cluster: {_AS_CLUSTER} ({text})")
        )
    if "STALECALL" in text:
        return StaleCall(text)
    if _says(text, ("OOM",)):
        return QueueFull("?", f"the server is out of memory ({text[:200]})")
    if _says(text, _PASSING):
        return BrokerUnavailable(f"the server cannot serve now: {text[:200]}")
    if code in _RIGHTS or any(words in text for words in _RIGHTS_TEXTS):
        return BrokerRefused(f"the server refuses these credentials or rights: {text[:200]}")
    return BrokerRefused(f"the server refused: {text[:500]}")


def is_reply(error: BaseException) -> bool:
    """Whether the server said it; some of what it says the client files under lost connections."""
    from redis.exceptions import ResponseError

    if isinstance(error, ResponseError):
        return True
    return type(error).__name__ in _CODES or any(words in str(error) for words in _RIGHTS_TEXTS)


def read_failure(where: str, error: BaseException, *, sent: bool, in_cluster: bool = False) -> tuple[QueueError, bool]:
    """What the client raised as an exception, and whether the connection is of no more use.

    It is where the server said nothing; and where it cannot serve, for it may have been demoted: then the next call
    looks for the server anew.
    """
    if not is_reply(error):
        return unreachable(where, error, sent=sent), True
    said = refused(error, in_cluster=in_cluster)
    return said, isinstance(said, BrokerUnavailable)


def unreachable(where: str, error: BaseException, *, sent: bool) -> QueueError:
    """A lost, refused or silent connection as an exception; ``sent``: a request had gone out.

    One that TLS does not let come about is ``BrokerRefused``: another try would end in the same way.
    """
    if (reason := _kept_apart(error)) is not None:
        return BrokerRefused(f"no TLS connection with {where}: {reason}")
    what = "no answer" if isinstance(error, TimeoutError) and sent else "no connection"
    return BrokerUnavailable(f"{what} from {where}: {str(error) or type(error).__name__}", maybe_accepted=sent)


# OpenSSL's reasons for what stays so until somebody changes a certificate or a setting; any other, an end of the
# stream among them, is a lost connection.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server wants to see a certificate: give tls_cert and tls_key",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the server refuses what is offered (protocol, ciphers, or no tls_cert)",
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not trust the certificate given as tls_cert",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the server does not accept the certificate given as tls_cert",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate given as tls_cert has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the server speaks no version of TLS that is safe enough here",
}
_MOST_CAUSES = 8


def _kept_apart(error: BaseException) -> str | None:
    """Why TLS failed for good, as far as the error or its causes tell."""
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return None
        if verify_message := getattr(cause, "verify_message", None):
            return f"its certificate is not trusted: {str(verify_message).rstrip('.')} (see tls_ca and tls_verify)"
        reason = getattr(cause, "reason", None)
        if isinstance(reason, str) and reason.replace(" ", "_").upper() in _ALERTS:
            return _ALERTS[reason.replace(" ", "_").upper()]
        if isinstance(reason, str) and reason in _NO_TLS:
            return "the server does not speak TLS at this port (redis:// is without it)"
        cause = cause.__cause__ or cause.__context__
    return None


def _says(text: str, codes: tuple[str, ...]) -> bool:
    """Whether the reply has one of the codes, its own or that of a command within a script.

    A script that a command failed in says so in its server's way, and, where it raises the error again, behind the place
    it stands at: ``-READONLY ...`` or ``ERR user_script:62: READONLY ...``.
    """
    return any(text.startswith(f"{code} ") or f"-{code} " in text or f": {code} " in text for code in codes)


def _said(error: BaseException) -> str:
    """The error reply as the server wrote it."""
    text = str(error)
    code = getattr(error, "status_code", None) or _CODES.get(type(error).__name__)
    return text if code is None or text.startswith(code) else f"{code} {text}"
