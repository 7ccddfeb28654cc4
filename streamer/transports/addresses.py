"""Reads the text of network addresses. Makes no look-ups."""

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit


def split_url(text: str, expected: str, instead: str) -> SplitResult:
    """Split a URL without user and password. Raises ValueError, whose text does not contain the URL.

    ``expected`` is the text for what is no URL; ``instead`` says which options to set for a user and a password.
    """
    if not text.isprintable():  # `urlsplit` leaves out line breaks
        raise ValueError("expected printable characters")
    try:
        url = urlsplit(text)
        _ = url.port, url.hostname
    except ValueError:
        raise ValueError(expected) from None
    if "@" in url.netloc:
        raise ValueError(f"expected a URL without user and password: set {instead} instead")
    return url


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host: a name or an address, in brackets or not.

    The only such name is ``localhost``: other names would have to be resolved.
    """
    name = host.removeprefix("[").removesuffix("]")
    if name.lower().removesuffix(".") == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
