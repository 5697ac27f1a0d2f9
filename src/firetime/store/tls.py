"""What is said about TLS becomes what the client's connections take, its files checked before anything connects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firetime.values.access import Access, checked_verify
from firetime.values.errors import InvalidOption

TLS_WORDS = ("tls_ca", "tls_cert", "tls_key", "tls_verify")
"""Firetime's own words; each is a setting as well as a word of the URL's query."""

CLIENT_WORDS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "ssl_password",
)
"""Those of redis-py, for URLs that exist already."""


def said_of_tls(query: Mapping[str, str], access: Access) -> dict[str, str]:
    """What the query, else the settings say, by firetime's own words."""
    said = {word: query.get(word) or getattr(access, word) for word in TLS_WORDS}
    return {word: value for word, value in said.items() if value}


def tls_options(query: Mapping[str, str], access: Access) -> dict[str, Any]:
    """Options of the client's TLS connections. Client defaults have changed before: what is verified is always said.

    Raises ``InvalidOption`` for a file that is missing or not what it should be.
    """
    said = said_of_tls(query, access)
    verify = checked_verify("tls_verify", said.get("tls_verify") or _verified_by(query))
    options: dict[str, Any] = {
        "ssl_ca_certs": said.get("tls_ca") or query.get("ssl_ca_certs"),
        "ssl_ca_path": query.get("ssl_ca_path"),
        "ssl_certfile": said.get("tls_cert") or query.get("ssl_certfile"),
        "ssl_keyfile": said.get("tls_key") or query.get("ssl_keyfile"),
        "ssl_password": query.get("ssl_password"),
        "ssl_cert_reqs": "none" if verify == "none" else "required",
        "ssl_check_hostname": verify == "full",
    }
    _check_files(options)
    return {name: value for name, value in options.items() if value is not None}


def _verified_by(query: Mapping[str, str]) -> str:
    if query.get("ssl_cert_reqs", "required").lower().removeprefix("cert_") == "none":
        return "none"
    return "ca" if query.get("ssl_check_hostname", "true").lower() in ("0", "f", "false", "n", "no") else "full"


def _check_files(options: Mapping[str, Any]) -> None:
    """Reads them once; connections read them anew, so that renewed certificates are taken at the next connection."""
    import ssl

    context = ssl.create_default_context()
    authority, certificate, key = options["ssl_ca_certs"], options["ssl_certfile"], options["ssl_keyfile"]
    if authority:
        try:
            context.load_verify_locations(cafile=authority)
        except (OSError, ValueError) as error:
            raise InvalidOption("tls_ca", authority, f"a file of certificates in PEM form ({_reason(error)})") from None
    if key and not certificate:
        raise InvalidOption("tls_key", key, "tls_cert beside it: the certificate that the key belongs to")
    if certificate:
        try:
            # without a password of its own, OpenSSL would ask the terminal for that of an encrypted key
            context.load_cert_chain(certificate, key, options["ssl_password"] or "")
        except (OSError, ValueError) as error:
            expected = f"a certificate and its key in PEM form, in one file or with tls_key ({_reason(error)})"
            raise InvalidOption("tls_cert", certificate, expected) from None


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
