"""Tells what has certainly arrived at the other end of a TCP connection, from looks at its socket. Pure, time is passed in.

Each look says how many bytes were written to the socket, how many of them the other host has acknowledged, and how many have
come from it. What was put before a moment has arrived after these three steps:

1. *Written.* Two looks in a row find the socket far from full, so Zenoh's own queue in front of it does not wait. What was
   put before the first one is among the bytes that were written by the second one, if they are `_SETTLE_S` apart or more.
   If they are further apart than `_LONGEST_S`, the whole process may have stood still, and they do not count.
2. *Acknowledged.* The other host has acknowledged these bytes.
3. *Heard.* After that, something came from there. So the process lives: the kernel of a process that was stopped goes on
   acknowledging. Zenoh's keep-alives come every quarter of the other side's lease, so every 2.5 s by default.

What it does not tell: whether the process has already read what its host has acknowledged, and what becomes of it behind a
router. A process that was stopped while its host still had much to send to us is heard for a while.
"""

from typing import NamedTuple

_SETTLE_S = 0.04
_LONGEST_S = 0.5
_NEVER = -float("inf")


class Reading(NamedTuple):
    """One look at a socket. ``has_room``: it is far from full. ``is_open``: neither end has closed it.

    ``unacknowledged`` counts the bytes that were written and not acknowledged, read before the two others, which count all
    since the connection was opened.
    """

    is_open: bool
    has_room: bool
    unacknowledged: int
    acknowledged: int
    received: int


class Arrival:
    """One connection. Everything that was put on it before ``until_s`` has arrived.

    It cannot have got anything that was put before it was opened, so ``until_s`` begins with that time.
    """

    __slots__ = ("_acknowledged", "_received", "_room_s", "_waiting_s", "_written", "is_over", "until_s")

    def __init__(self, opened_s: float) -> None:
        self.until_s = opened_s
        self.is_over = False  # it was closed: later looks say nothing
        self._room_s = _NEVER  # the last look that found room
        self._waiting_s = _NEVER  # step 2: what was put before that waits until so many written bytes are acknowledged
        self._written = 0
        self._acknowledged = _NEVER  # step 3: what was put before that waits until more is received
        self._received = 0

    def look(self, reading: Reading, now_s: float) -> None:
        """Take a look into account."""
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
