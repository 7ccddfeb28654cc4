"""Which reason an error of a connection has, and its text."""

import errno
import os
import socket
import ssl

import pytest

from streamer.transports.link_error import LinkError, LinkFailure, failure_of


def unverified(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "as OpenSSL says"
    return error


def alert(name: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "alert")
    error.reason = name
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 1883)"), LinkFailure.REFUSED),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), LinkFailure.UNKNOWN_HOST),
        (UnicodeError("label too long"), LinkFailure.UNKNOWN_HOST),
        (OSError(errno.EHOSTUNREACH, "x"), LinkFailure.UNREACHABLE),
        (OSError(errno.ENETUNREACH, "x"), LinkFailure.UNREACHABLE),
        (TimeoutError(errno.ETIMEDOUT, "x"), LinkFailure.TIMEOUT),
        (TimeoutError(), LinkFailure.TIMEOUT),
        (ConnectionResetError(errno.ECONNRESET, "x"), LinkFailure.RESET),
        (BrokenPipeError(errno.EPIPE, "x"), LinkFailure.RESET),
        (unverified(10), LinkFailure.CERTIFICATE_EXPIRED),
        (unverified(9), LinkFailure.TLS),  # not valid yet: a clock that is behind
        (unverified(20), LinkFailure.TLS),
        (alert("SSLV3_ALERT_CERTIFICATE_EXPIRED"), LinkFailure.CERTIFICATE_EXPIRED),
        (alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), LinkFailure.TLS),
        (alert("WRONG_VERSION_NUMBER"), LinkFailure.TLS),
        (OSError(errno.EMFILE, "x"), LinkFailure.OTHER),
        (KeyError("x"), LinkFailure.OTHER),
    ],
)
def test_the_reason(error: Exception, reason: LinkFailure) -> None:
    found, text = failure_of(error)
    assert found is reason
    assert text


def test_the_text_is_that_of_the_system() -> None:
    for number in (errno.ECONNREFUSED, errno.EMFILE):
        assert failure_of(OSError(number, "something else"))[1] == os.strerror(number).lower()


def test_the_text_of_an_error_with_and_without_an_address() -> None:
    assert str(LinkError(LinkFailure.REFUSED, "connection refused", "veh:1", 0)) == "veh:1: connection refused"
    assert str(LinkError(LinkFailure.OTHER, "no session", "", 0)) == "no session"
