"""Reads until when the certificates in a PEM file are valid. Blocks."""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from streamer.files import read_file


class CertificateRole(StrEnum):
    """What a file with certificates is for: a label of the metric."""

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
