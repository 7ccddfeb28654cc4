"""The last seconds of what a daemon has shown, bounded in time and bytes, and what makes them worth keeping. Pure."""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

MESSAGES, EVENTS = "messages", "events"
"""The topics of a recording: messages with their outcomes as the tap shows them, and the daemon's events."""

CAUSES = ("dead-letter", "endpoint-down", "unheard")
_ENTRY_BYTES = 200


class Shown(NamedTuple):
    """One event of a stream. ``at_ns``: when it came, in Unix nanoseconds; ``data``: JSON."""

    at_ns: int
    topic: str
    data: bytes


class Ring:
    """Keeps what came in the last ``keep_s`` seconds, at most ``max_bytes`` of it. ``left_out`` counts what had no room."""

    def __init__(self, keep_s: float, max_bytes: int) -> None:
        self.left_out = 0
        self._keep_ns, self._max_bytes = int(keep_s * 1e9), max_bytes
        self._bytes = 0
        self._shown: deque[Shown] = deque()

    def add(self, shown: Shown) -> None:
        """Add the newest, and forget what is too old or has no room any more."""
        self._shown.append(shown)
        self._bytes += len(shown.data) + _ENTRY_BYTES
        while self._shown and (self._bytes > self._max_bytes or shown.at_ns - self._shown[0].at_ns > self._keep_ns):
            oldest = self._shown.popleft()
            self._bytes -= len(oldest.data) + _ENTRY_BYTES
            self.left_out += shown.at_ns - oldest.at_ns <= self._keep_ns

    def take(self) -> list[Shown]:
        """Return and forget everything, oldest first."""
        shown, self._shown, self._bytes, self.left_out = list(self._shown), deque(), 0, 0
        return shown


class Causes:
    """Tells which events are worth a recording. ``wanted``: some of `CAUSES`."""

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self._up: set[str] = set()  # endpoints

    def of(self, kind: str, data: Mapping[str, Any]) -> str:
        """Return the cause in an event named ``kind``; empty: no wanted one. An endpoint that was down before is none."""
        cause = ""
        if kind == "message":
            cause = "unheard" if data.get("outcome") == "unheard" else ""
        elif kind == "dead_letter":
            cause = "dead-letter"
        elif kind == "state" and data.get("what") == "endpoint":
            name, is_up = str(data.get("name")), data.get("state") == "up"
            cause = "endpoint-down" if name in self._up and not is_up else ""
            (self._up.add if is_up else self._up.discard)(name)
        return cause if cause in self._wanted else ""
