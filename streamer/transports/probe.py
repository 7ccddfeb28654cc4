"""What a transport can try out before the streamer runs (``streamer check --probe``), and the steps for it.

A probe costs nobody a message: it asks for no session that others have, sends nothing to receivers and keeps no port. Its
text repeats no secret. Whoever runs it gives it only so much time, so it can be cancelled wherever it waits. What may block
runs in a thread that nobody waits for: a dead file server or resolver would hold up the end of the command for minutes.
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
"""How long a connection may take. Shorter than what a probe has, so that it can say what it waited for."""

_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Verdict(Enum):
    """What a probe found out."""

    OK = "ok"
    PROBLEM = "problem"
    CANNOT_TELL = "cannot tell"


class Answer(NamedTuple):
    """The answer of a probe, for the operator."""

    verdict: Verdict
    text: str


ok = partial(Answer, Verdict.OK)
problem = partial(Answer, Verdict.PROBLEM)
cannot_tell = partial(Answer, Verdict.CANNOT_TELL)


class Probe(NamedTuple):
    """Something to try out, and the key in the configuration that it is about (of a transport: in its options)."""

    key: str
    run: Callable[[], Awaitable[Answer]]


def blocking(key: str, work: Callable[[], Answer]) -> Probe:
    """A probe that may block. It may raise OSError and `ConfigurationError`."""

    async def run() -> Answer:
        try:
            return await in_thread(work)
        except ConfigurationError as exc:
            return problem(str(exc))
        except OSError as exc:
            return problem(reason(exc) if exc.filename is None else f"{exc.filename}: {reason(exc)}")

    return Probe(key, run)


def reason(exc: OSError) -> str:
    """What went wrong, in a few words."""
    return (exc.strerror or str(exc) or type(exc).__name__).lower()


def address_of(host: str, port: int) -> str:
    """Host and port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def can_listen(host: str, port: int, is_only_v6: bool = True) -> Answer:
    """Whether a TCP port of this machine is free. Blocks: names are looked up.

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
    """A connection to a TCP port, by any of the host's addresses. Blocks. Raises OSError."""
    try:
        return socket.create_connection((host, port), timeout=CONNECT_S)
    except TimeoutError:
        raise TimeoutError(errno.ETIMEDOUT, f"no connection within {CONNECT_S:g} s") from None
    except UnicodeError:
        raise OSError(errno.EINVAL, "not the name of a host") from None


def can_connect(host: str, port: int) -> Answer:
    """Whether somebody accepts connections there. Blocks."""
    where = address_of(host, port)
    try:
        connect(host, port).close()
    except OSError as exc:
        return problem(f"{where}: {reason(exc)}")
    return ok(f"{where} accepts connections")
