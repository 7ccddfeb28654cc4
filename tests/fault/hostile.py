"""What the tests with hostile peers and missing resources share: messages, and the daemon's configuration."""

import itertools
import json
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.independent.message import Plain
from tests.process import StreamerProcess

MIB = 1 << 20
QUICK = {"initial_ms": 50, "max_ms": 200}
QUICK_END = {"drain_s": 1}


def notifications(here: str, there: str, count: int, size: int = 4) -> list[Plain]:
    """Good messages in ten flows."""
    flows = itertools.cycle(range(10))
    return [
        Plain(4, (here, 0x100 + next(flows), 1, 0x8000), (there, 2, 1, 0), payload=n.to_bytes(4, "big").ljust(size, b"."))
        for n in range(count)
    ]


def ids(messages: Iterable[Plain]) -> list[bytes]:
    return [message.id for message in messages]


def mqtt_endpoint(url: str, authority: str, **options: Any) -> dict[str, Any]:
    settings = {"broker": url, "topics": "in-vehicle", "reconnect": QUICK} | options
    return {"transport": "mqtt5", "authorities": [authority], "options": settings}


def configuration(directory: Path, first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {
        "authority": "gw",
        "endpoints": {"first": first, "second": second},
        "routes": [{"from": "first", "to": "second"}, {"from": "second", "to": "first"}],
        "journal": {"path": str(directory / "journal.db")},
        "shutdown": QUICK_END,
        "log": {"level": "info", "repeat_s": 3600},
    }


def said(daemon: StreamerProcess, event: str) -> list[dict[str, Any]]:
    """The daemon's log lines of one event."""
    lines = (json.loads(line) for line in daemon.log.splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == event]


def pid_of(daemon: StreamerProcess) -> int:
    assert daemon.process is not None
    return daemon.process.pid


@contextmanager
def no_more_descriptors(daemon: StreamerProcess) -> Iterator[None]:
    """Whatever the daemon wants to open fails; what is open stays open."""
    before = resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE)
    resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid_of(daemon), resource.RLIMIT_NOFILE, before)


def publish_bytes(topic: str, payload: bytes, properties: bytes, packet_id: int) -> bytes:
    """A PUBLISH with QoS 1 made by hand: no codec would write it."""
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + packet_id.to_bytes(2, "big") + properties + payload
    length, rest = bytearray(), len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length.append(digit | 0x80 if rest else digit)
        if not rest:
            return b"\x32" + bytes(length) + body
