"""Derives from readings of a TCP socket which messages have arrived at the other end. Pure, time is passed in.

Each reading says how many bytes were written to the socket, how many of them the other host has acknowledged, and how many
were received from it. Messages that were put before a moment have arrived after these three steps:

1. *Written.* Two readings in a row find the socket far from full, so Zenoh's own queue in front of it is empty. What was put
   before the first reading is among the bytes written by the second one, if the readings are at least `_SETTLE_S` apart. If
   they are further apart than `_LONGEST_S`, the whole process may have been suspended, and they do not count.
2. *Acknowledged.* The other host has acknowledged these bytes.
3. *Heard.* After that, bytes were received from there. So the other process is alive: the kernel of a suspended process goes
   on acknowledging. Zenoh's keep-alives come every quarter of the other side's lease, by default every 2.5 s.

These steps do not show whether the process has read what its host has acknowledged, nor what becomes of messages behind a
router. A process that was suspended while its host still had much to send to us is heard for a while.
"""

from typing import NamedTuple

_SETTLE_S = 0.04
_LONGEST_S = 0.5
_NEVER = -float("inf")


class Reading(NamedTuple):
    """One reading of a socket. ``has_room``: it is far from full. ``is_open``: neither end has closed it.

    ``unacknowledged`` is the number of bytes written and not acknowledged. It is read before ``acknowledged`` and
    ``received``, which count bytes since the connection was opened.
    """

    is_open: bool
    has_room: bool
    unacknowledged: int
    acknowledged: int
    received: int


class Arrival:
    """The evidence about one connection: everything that was put on it before ``until_s`` has arrived.

    Nothing was put on the connection before it was opened, so ``until_s`` begins with that time.
    """

    __slots__ = ("_acknowledged", "_received", "_room_s", "_waiting_s", "_written", "is_over", "until_s")

    def __init__(self, opened_s: float) -> None:
        self.until_s = opened_s
        self.is_over = False  # the connection was closed: later readings say nothing
        self._room_s = _NEVER  # time of the last reading that found room
        self._waiting_s = _NEVER  # step 2: what was put before this time waits until `_written` bytes are acknowledged
        self._written = 0
        self._acknowledged = _NEVER  # step 3: what was put before this time waits until more than `_received` bytes came
        self._received = 0

    def look(self, reading: Reading, now_s: float) -> None:
        """Update ``until_s`` and ``is_over`` from a reading at ``now_s``."""
        if self.is_over:
            return
        fin = 0 if reading.is_open else 1  # the end of the stream counts as a byte, and comes from a killed process as well
        if reading.received > self._received + fin:
            self.until_s = max(self.until_s, self._acknowledged)
            self._acknowledged = _NEVER
        if self._waiting_s > _NEVER:
            self._end_waiting(reading)
        self.is_over = not reading.is_open
        if self.is_over or not reading.has_room:
            self._room_s = _NEVER
        elif now_s - self._room_s >= _SETTLE_S:
            if now_s - self._room_s <= _LONGEST_S and self._waiting_s == _NEVER:
                self._waiting_s, self._written = self._room_s, reading.acknowledged + reading.unacknowledged
                self._end_waiting(reading)
            self._room_s = now_s

    def _end_waiting(self, reading: Reading) -> None:
        if not reading.unacknowledged or reading.acknowledged >= self._written:
            self._acknowledged, self._received = self._waiting_s, reading.received
            self._waiting_s = _NEVER
