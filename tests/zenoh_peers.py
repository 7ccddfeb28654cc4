"""The other side in Zenoh tests: raw eclipse-zenoh sessions that find each other only where a test says so."""

import json
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import zenoh


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_endpoint() -> str:
    """A Zenoh endpoint on a free port."""
    return f"tcp/127.0.0.1:{free_port()}"


def open_peer(
    *, connect: Iterable[str] = (), listen: Iterable[str] = (), mode: str = "peer", **settings: Any
) -> zenoh.Session:
    """A session with scouting off. ``settings`` are further Zenoh keys, with ``__`` for the slash."""
    config = zenoh.Config()
    keys = {
        "mode": mode,
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "scouting/multicast/enabled": False,
        **{name.replace("__", "/"): value for name, value in settings.items()},
    }
    for key, value in keys.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


@contextmanager
def raw_peer(
    *, connect: Iterable[str] = (), listen: Iterable[str] = (), mode: str = "peer", **settings: Any
) -> Iterator[zenoh.Session]:
    """`open_peer`, closed at the end."""
    session = open_peer(connect=connect, listen=listen, mode=mode, **settings)
    try:
        yield session
    finally:
        session.close()  # type: ignore[no-untyped-call]  # eclipse-zenoh leaves out the return type
