"""Messages that stay on disk until the router has them safely: Updates, and commands that nothing else remembers.

They are handed over in order and in portions: when many subscriptions end together, thousands of messages at once would
displace each other in the router's queues.

A uEntity that subscribes and unsubscribes for ever makes Updates for observers that may be away. So beyond a bound in bytes
the oldest Updates are given up. Commands are not: there are no more of them than subscriptions.
"""

import logging
from collections import deque
from collections.abc import Iterable

from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import UMessage, UMessageType

MAX_UNSAFE_MESSAGES = 500

MAX_BYTES = 128 * 1024 * 1024
"""What may wait: more than one Update for each of the subscriptions that there may be by default."""

_OVERHEAD_BYTES = 1000  # memory that a message takes besides its payload
_SPARE = 0.1  # of the bound: given up at once, so that not every message looks through all

logger = logging.getLogger("ustreamer.usubscription")

Entry = tuple[int, UMessage]
"""The number of a message on disk, and the message."""


class Outbox:
    """Hands messages to ``transport``, at most ``max_unsafe`` of them before the first is safe. ``max_bytes`` may wait."""

    def __init__(self, transport: LocalTransport, max_unsafe: int = MAX_UNSAFE_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._transport = transport
        self._max_unsafe = max_unsafe
        self._waiting: deque[Entry] = deque()
        self._bytes = 0
        self._open = 0
        self._safe: list[int] = []
        self._number = 0
        self._is_handing_over = False

    def __len__(self) -> int:
        """The number of messages that are not safe yet."""
        return len(self._waiting) + self._open

    def number(self) -> int:
        """The number of the next message."""
        self._number += 1
        return self._number

    def restore(self, entries: Iterable[Entry]) -> None:
        """Take over the messages that an earlier run has kept. They go out with the next `send`."""
        for number, message in entries:
            self._add(number, message)
            self._number = max(self._number, number)

    def send(self, entries: Iterable[Entry], now_ms: int) -> None:
        """Hand these over after all that wait. They are on disk. A message that has expired by its turn is not sent."""
        for number, message in entries:
            self._add(number, message)
        self._go_on(now_ms)
        if self._bytes > self.max_bytes:
            self._give_up_oldest()

    def take_safe(self) -> list[int]:
        """The numbers of messages that became safe since the last call, to be deleted."""
        safe, self._safe = self._safe, []
        return safe

    def _add(self, number: int, message: UMessage) -> None:
        self._waiting.append((number, message))
        self._bytes += size_of(message)

    def _give_up_oldest(self) -> None:
        """Give up Updates that are the first to be handed over."""
        enough = self.max_bytes * (1 - _SPARE)
        waiting, self._waiting = self._waiting, deque()
        count = 0
        for number, message in waiting:
            if self._bytes > enough and message.attributes.type is not UMessageType.REQUEST:
                self._bytes -= size_of(message)
                self._safe.append(number)
                count += 1
            else:
                self._waiting.append((number, message))
        logger.warning("usubscription_updates_given_up count=%d consequence=%s", count, "observers may miss a change")

    def _go_on(self, now_ms: int) -> None:
        if self._is_handing_over:  # called from within the loop below, which goes on
            return
        self._is_handing_over = True
        try:
            while self._waiting and self._open < self._max_unsafe:
                number, message = self._waiting.popleft()
                self._bytes -= size_of(message)
                if message.is_expired(now_ms):
                    self._safe.append(number)
                    continue
                self._open += 1
                self._transport.emit([message], lambda number=number: self._is_safe(number, now_ms))  # type: ignore[misc]  # mypy: default
        finally:
            self._is_handing_over = False

    def _is_safe(self, number: int, now_ms: int) -> None:
        self._open -= 1
        self._safe.append(number)
        self._go_on(now_ms)


def size_of(message: UMessage) -> int:
    """What a message that waits counts against the bound, in bytes."""
    return _OVERHEAD_BYTES + len(message.payload or b"")
