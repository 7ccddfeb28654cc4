"""Messages that stay on disk until they are safe with the router: Updates, and commands that nothing else keeps.

They go to the router in order and in portions: if many subscriptions end together, thousands of messages at once would
displace each other in the router's queues.

A uEntity that subscribes and unsubscribes endlessly causes Updates for observers that may be down. So beyond a bound in
bytes the oldest Updates are dropped. Commands are not: there are no more of them than subscriptions.
"""

import logging
from collections import deque
from collections.abc import Iterable

from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import UMessage, UMessageType

MAX_UNSAFE_MESSAGES = 500

MAX_BYTES = 128 * 1024 * 1024
"""The most bytes that wait: more than one Update for each subscription at the default limits."""

_OVERHEAD_BYTES = 1000  # memory of a message besides its payload
_SPARE = 0.1  # share of the bound that is freed together, so that not every message scans the outbox

logger = logging.getLogger("ustreamer.usubscription")

Entry = tuple[int, UMessage]
"""The number of a message on disk, and the message."""

_Waiting = tuple[int, UMessage, float]
"""An entry, and since when it waits (monotonic)."""


class Outbox:
    """Hands messages to ``transport``; at most ``max_unsafe`` are not safe with the router. ``max_bytes`` may wait."""

    def __init__(self, transport: LocalTransport, max_unsafe: int = MAX_UNSAFE_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._transport = transport
        self._max_unsafe = max_unsafe
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._open = 0
        self._safe: list[int] = []
        self._number = 0
        self._is_handing_over = False

    def __len__(self) -> int:
        """Return the number of messages that are not safe with the router yet."""
        return len(self._waiting) + self._open

    def number(self) -> int:
        """Return the number for the next message."""
        self._number += 1
        return self._number

    def restore(self, entries: Iterable[Entry], now_s: float) -> None:
        """Queue the messages of an earlier run. The next `send` hands them over."""
        for number, message in entries:
            self._add(number, message, now_s)
            self._number = max(self._number, number)

    def send(self, entries: Iterable[Entry], now_ms: int, now_s: float) -> None:
        """Queue these messages, which are on disk, and hand over as many as may be. Expired messages are not sent."""
        for number, message in entries:
            self._add(number, message, now_s)
        self._go_on(now_ms, now_s)
        if self._bytes > self.max_bytes:
            self._give_up_oldest()

    def take_safe(self) -> list[int]:
        """Return the numbers of messages that became safe since the last call, for the caller to delete."""
        safe, self._safe = self._safe, []
        return safe

    def _add(self, number: int, message: UMessage, now_s: float) -> None:
        self._waiting.append((number, message, now_s))
        self._bytes += size_of(message)

    def _give_up_oldest(self) -> None:
        """Drop the oldest waiting Updates."""
        enough = self.max_bytes * (1 - _SPARE)
        waiting, self._waiting = self._waiting, deque()
        count = 0
        for number, message, since_s in waiting:
            if self._bytes > enough and message.attributes.type is not UMessageType.REQUEST:
                self._bytes -= size_of(message)
                self._safe.append(number)
                count += 1
            else:
                self._waiting.append((number, message, since_s))
        logger.warning("usubscription_updates_given_up count=%d consequence=%s", count, "observers may miss a change")

    def _go_on(self, now_ms: int, now_s: float) -> None:
        if self._is_handing_over:  # called from the loop below, which continues
            return
        self._is_handing_over = True
        try:
            while self._waiting and self._open < self._max_unsafe:
                number, message, since_s = self._waiting.popleft()
                self._bytes -= size_of(message)
                if message.is_expired(now_ms, now_s - since_s):
                    self._safe.append(number)
                    continue
                self._open += 1
                self._transport.emit([message], lambda number=number: self._is_safe(number, now_ms, now_s))  # type: ignore[misc]  # mypy: default
        finally:
            self._is_handing_over = False

    def _is_safe(self, number: int, now_ms: int, now_s: float) -> None:
        self._open -= 1
        self._safe.append(number)
        self._go_on(now_ms, now_s)


def size_of(message: UMessage) -> int:
    """Return the bytes that a waiting message counts against the bound."""
    return _OVERHEAD_BYTES + len(message.payload or b"")
