"""Probes, with which a transport tests its options before the streamer runs (``streamer check --probe``), and their parts.

A probe disturbs no other program: it takes over no session, sends nothing to receivers and keeps no port. Its text contains
no secret. Its time is bounded, so it can be cancelled wherever it waits. Blocking calls run on a thread that nobody joins: a
dead file server or resolver would delay the end of the command by minutes.
"""

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import NamedTuple

from streamer.files import in_thread
from streamer.transports.errors import ConfigurationError

CONNECT_S = 4.0
"""The time limit of a connection. Shorter than a probe's, so that the probe can report what it waited for."""

_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Verdict(Enum):
    """The result of a probe."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    CANNOT_TELL = "cannot tell"


class Answer(NamedTuple):
    """The result of a probe and its text for the operator."""

    verdict: Verdict
    text: str


ok = partial(Answer, Verdict.OK)
warning = partial(Answer, Verdict.WARNING)
problem = partial(Answer, Verdict.PROBLEM)
cannot_tell = partial(Answer, Verdict.CANNOT_TELL)


class Probe(NamedTuple):
    """A test, and the configuration key that it tests (of a transport: in its options)."""

    key: str
    run: Callable[[], Awaitable[Answer]]


def blocking(key: str, work: Callable[[], Answer]) -> Probe:
    """Return a probe that runs ``work`` on a thread. ``work`` may raise OSError and `ConfigurationError`."""

    async def run() -> Answer:
        try:
            return await in_thread(work)
        except ConfigurationError as exc:
            return problem(str(exc))
        except OSError as exc:
            return problem(reason(exc) if exc.filename is None else f"{exc.filename}: {reason(exc)}")

    return Probe(key, run)


def checked(key: str, work: Callable[[], object], done: str) -> Probe:
    """Return a probe of what ``work`` checks: ``done``, or the text of its ValueError, which may begin with the key."""

    def run() -> Answer:
        try:
            work()
        except ValueError as exc:
            return problem(str(exc).removeprefix(key).lstrip(".: "))
        return ok(done)

    return blocking(key, run)


def reason(exc: OSError) -> str:
    """Return the reason of an error in a few words."""
    return (exc.strerror or str(exc) or type(exc).__name__).lower()


def address_of(host: str, port: int) -> str:
    """Return host and port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def can_listen(host: str, port: int, is_only_v6: bool = True) -> Answer:
    """Test whether a TCP port of this machine is free. Blocks: names are looked up.

    ``is_only_v6``: whether the socket for all addresses of IPv6 leaves those of IPv4 to others.
    """
    where = address_of(host, port)
    if not port:
        return ok(f"{where}: any free port")
    missing: OSError | None = None
    is_one_free = False
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
        try:
            _bind(family, address, is_only_v6)
            is_one_free = True
        except OSError as exc:
            if exc.errno not in _NOT_HERE:
                return problem(f"{where}: {os.strerror(exc.errno or 0).lower()}")
            missing = exc
    if is_one_free or missing is None:
        return ok(f"{where} is free")
    return problem(f"{where}: this machine does not have the address")


def _bind(family: int, address: tuple[object, ...], is_only_v6: bool) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_only_v6)
        bound.bind(address)


def connect(host: str, port: int) -> socket.socket:
    """Connect to a TCP port, at any of the host's addresses. Blocks. Raises OSError."""
    try:
        return socket.create_connection((host, port), timeout=CONNECT_S)
    except TimeoutError:
        raise TimeoutError(errno.ETIMEDOUT, f"no connection within {CONNECT_S:g} s") from None
    except UnicodeError:
        raise OSError(errno.EINVAL, "not the name of a host") from None


def can_connect(host: str, port: int) -> Answer:
    """Test whether a TCP port accepts connections. Blocks."""
    where = address_of(host, port)
    try:
        connect(host, port).close()
    except OSError as exc:
        return problem(f"{where}: {reason(exc)}")
    return ok(f"{where} accepts connections")
