"""Whether a link is up and since when, and why not: a reason for counters, and a text for people. Neither has a secret."""

import errno
import os
import socket
import ssl
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from streamer.transports.events import LinkState

_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL
_NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL)
_ALERT_EXPIRED = "ALERT_CERTIFICATE_EXPIRED"


class LinkFailure(StrEnum):
    """Why a link is not up: the label of the counter."""

    REFUSED = "refused"  # nothing listens on the port
    UNKNOWN_HOST = "unknown_host"
    UNREACHABLE = "unreachable"  # no way to the host
    TIMEOUT = "timeout"  # no answer in time
    TLS = "tls"  # the other end speaks no TLS, or one side does not accept the other's certificate
    CERTIFICATE_EXPIRED = "certificate_expired"
    AUTHENTICATION = "authentication"  # user, password or rights
    PROTOCOL = "protocol"  # what came breaks the protocol, or is another one
    RESET = "reset"  # the other end closed or reset the connection without a reason
    BROKER = "broker"  # the other end gave another reason
    PROXY = "proxy"  # the proxy does not let us through
    FILES = "files"  # a file with a password or certificate cannot be used
    OTHER = "other"


class LinkError(NamedTuple):
    """One failure of a link, at a Unix time in ms. ``address``: the other end, empty if unknown."""

    reason: LinkFailure
    text: str
    address: str
    at_ms: int

    def __str__(self) -> str:
        return f"{self.address}: {self.text}" if self.address else self.text


class LinkStatus(NamedTuple):
    """The state and history of an endpoint's link. Times are Unix times in ms."""

    state: LinkState
    since_ms: int
    """When it was last up or not up for the first time; when the transport was built, if it was never up."""
    addresses: Sequence[str]
    """The addresses to which the endpoint connects."""
    connected_to: Sequence[str]
    """The other ends to which it is connected now, as far as they are known."""
    first_error: LinkError | None
    """The first failure since it was last up: the cause. None while it is up, or if none is known."""
    last_error: LinkError | None
    """The latest failure; it stays when the link is back."""
    next_attempt_ms: int | None
    """When the transport tries to connect again, if it waits for that."""


def failure_of(exc: BaseException) -> tuple[LinkFailure, str]:
    """Return the reason and the text of an error from opening or using a connection."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        reason = LinkFailure.CERTIFICATE_EXPIRED if exc.verify_code == _EXPIRED else LinkFailure.TLS
        return reason, f"the certificate of the other end is not accepted: {exc.verify_message}"
    if isinstance(exc, ssl.SSLError):
        code = exc.reason or type(exc).__name__
        if code.endswith(_ALERT_EXPIRED):
            return LinkFailure.CERTIFICATE_EXPIRED, "the other end says that our certificate has expired"
        return LinkFailure.TLS, f"TLS: {code.lower().replace('_', ' ')}"
    if isinstance(exc, socket.gaierror):
        return LinkFailure.UNKNOWN_HOST, (exc.strerror or "unknown host").lower()
    if isinstance(exc, UnicodeError):
        return LinkFailure.UNKNOWN_HOST, "not the name of a host"
    if isinstance(exc, OSError):
        return _of_system(exc), os.strerror(exc.errno).lower() if exc.errno else str(exc) or type(exc).__name__
    return LinkFailure.OTHER, type(exc).__name__


def _of_system(exc: OSError) -> LinkFailure:
    if isinstance(exc, ConnectionRefusedError):
        return LinkFailure.REFUSED
    if isinstance(exc, TimeoutError):
        return LinkFailure.TIMEOUT
    if isinstance(exc, ConnectionError):
        return LinkFailure.RESET
    return LinkFailure.UNREACHABLE if exc.errno in _NO_WAY else LinkFailure.OTHER
