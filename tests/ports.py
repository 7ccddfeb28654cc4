"""Ports for the servers of a test."""

import fcntl
import itertools
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"

_FIRST, _AFTER = 20_000, 32_000
_SHARES = 24


@cache
def mine() -> range:
    """The ports of this process: all that run tests on this machine, also for another checkout, have different ones."""
    size = (_AFTER - _FIRST) // _SHARES
    for share in random.sample(range(_SHARES), _SHARES):
        try:
            lock = os.open(Path(tempfile.gettempdir()) / f"ustreamer-test-ports-{share}", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:  # another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the process ends
        except OSError:
            os.close(lock)
            continue
        return range(_FIRST + share * size, _FIRST + (share + 1) * size)
    return range(_FIRST, _AFTER)  # so many processes run tests here already


_turn = itertools.count(random.randrange(_AFTER - _FIRST))


def free_port() -> int:
    """A port that nobody listens on, and that nobody else will be given soon: it may be listened on later.

    They are below the range from which the kernel takes ports for outgoing connections: a client that keeps calling a
    closed port of that range can end up connected to itself.

    Ports of connections that have ended a while ago (TIME_WAIT) are only given if there is no other, because they are good
    only for servers that reuse addresses. Most do.
    """
    ports = mine()
    for reuses in (False, True):
        for _ in ports:
            port = ports[next(_turn) % len(ports)]
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuses)
                try:
                    probe.bind((HOST, port))
                except OSError:
                    continue
                return port
    raise AssertionError(f"no free port in {ports}")
