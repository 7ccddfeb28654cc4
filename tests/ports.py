"""Ports for the servers of a test."""

import itertools
import os
import random
import socket

HOST = "127.0.0.1"

_FIRST, _AFTER = 20_000, 32_000
_SHARES = 8


def _mine() -> range:
    """The ports of this process: those that run tests side by side have different ones."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    share = int(worker.removeprefix("gw")) % _SHARES if worker else random.randrange(_SHARES)
    size = (_AFTER - _FIRST) // _SHARES
    return range(_FIRST + share * size, _FIRST + (share + 1) * size)


_ports = _mine()
_turn = itertools.count(random.randrange(len(_ports)))


def free_port() -> int:
    """A port that nobody listens on, and that nobody else will be given soon: it may be listened on later.

    They are below the range from which the kernel takes ports for outgoing connections: a client that keeps calling a
    closed port of that range can end up connected to itself.
    """
    for _ in _ports:
        port = _ports[next(_turn) % len(_ports)]
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no free port in {_ports}")
