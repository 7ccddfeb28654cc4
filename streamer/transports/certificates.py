"""Reads until when the certificates in a PEM file are valid. Blocks."""

import time
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple

from streamer.files import read_file
from streamer.transports.probe import Answer, Probe, blocking, ok, problem, warning

WARN_S = 30 * 86_400
"""``streamer check --probe`` warns when a certificate expires in less than this."""


class CertificateRole(StrEnum):
    """The purpose of a file with certificates: a label of the metric."""

    AUTHORITIES = "authorities"  # those whose certificates are accepted
    CLIENT = "client"  # what we show where we connect
    SERVER = "server"  # what we show to those that connect


class CertificateFile(NamedTuple):
    """A file with certificates that is in use."""

    role: CertificateRole
    path: Path


def valid_until_s(file: CertificateFile) -> float:
    """Return until when (Unix seconds) a file is of use: a chain until the first certificate in it has expired.

    Of several authorities, it is the last: during a change, the earlier and the later one are in the file. Raises OSError
    for a file that cannot be read, ValueError for one without a certificate.
    """
    from cryptography import x509  # noqa: PLC0415  # takes memory: load it only if there are certificates

    found = [each.not_valid_after_utc.timestamp() for each in x509.load_pem_x509_certificates(read_file(file.path))]
    return max(found) if file.role is CertificateRole.AUTHORITIES else min(found)


def expiry_probe(key: str, file: CertificateFile) -> Probe:
    """Return the probe of how long a file is of use."""
    return blocking(f"{key} (expiry)", partial(_expiry, file))


def _expiry(file: CertificateFile) -> Answer:
    try:
        until_s = valid_until_s(file)
    except ValueError:
        return problem(f"{file.path}: expected certificates, as PEM")
    left_s, when = until_s - time.time(), f"{datetime.fromtimestamp(until_s, UTC):%Y-%m-%d %H:%M} UTC"
    if left_s < 0:
        return problem(f"{file.path}: expired at {when}")
    return (warning if left_s < WARN_S else ok)(f"{file.path}: expires at {when}, in {left_s / 86_400:.0f} days")
