"""Finds the message over which a broker ends the connection. Pure: how long connections lived is passed in.

Some brokers answer so to a message that is larger than they take and did not say, or whose topic they do not allow. It would
be sent again after each reconnect, and nothing else would get through. The law of this file:

- A connection is *fruitless* if the broker ended it soon, something was sent on it, and nothing was confirmed. So it is if
  something was, but the oldest message that was not is the same as on the connection before: others may be sent before it,
  and a broker that works on several at a time confirms others behind it.
- After three in a row, what is unconfirmed is *suspect*: it is sent one message at a time, on connections that have stood
  with nothing sent for twice as long as the fruitless ones lived.
- The message over which two of these end is the culprit.
- A bad link makes no culprit: if a connection ends while nothing is sent yet, there are no suspects any more.
- A connection that the broker has not accepted does not count: a proxy ends those that come before the broker is back.
"""

from collections.abc import Sequence
from typing import Final

STAND_S: Final = 2.0
"""The least time for which a connection has to stand before a suspect is sent on it."""

_SOON_S: Final = 30.0
_FRUITLESS_BEFORE: Final = 3
_ENDINGS: Final = 2
_NOBODY: Final = b""


class Search:
    """``suspects``: how many messages are still to be sent one at a time. ``is_held``: nothing may be sent yet.

    ``least_s``: for how long a connection has to stand at least.
    """

    __slots__ = (
        "_accused",
        "_endings",
        "_fruitless",
        "_lived_s",
        "_oldest",
        "is_fruitful",
        "is_held",
        "least_s",
        "suspects",
    )

    def __init__(self, least_s: float = STAND_S) -> None:
        self.least_s = least_s
        self.suspects = 0
        self.is_held = False
        self.is_fruitful = False  # whether anything was confirmed on this connection
        self._fruitless = 0
        self._oldest = _NOBODY  # that was unconfirmed when the last connection ended
        self._lived_s = 0.0  # the longest of the fruitless connections
        self._accused = _NOBODY
        self._endings = 0

    @property
    def stand_s(self) -> float:
        """For how long a connection has to stand before a suspect is sent on it."""
        return max(self.least_s, 2 * self._lived_s)

    def connected(self, quota: int) -> int:
        """There is a connection on which ``quota`` messages may be unconfirmed. Returns how many may be now."""
        self.is_fruitful = False
        self.is_held = self.suspects > 0
        return 1 if self.suspects else quota

    def confirmed(self, quota: int) -> int:
        """A suspect was confirmed or refused. Returns how many messages may be unconfirmed now."""
        self.suspects -= 1
        return 1 if self.suspects else quota

    def ended(self, unconfirmed: Sequence[bytes], waiting: int, lived_s: float) -> bool:
        """The broker has ended the connection. Returns whether the first unconfirmed message is the culprit.

        ``unconfirmed`` are the ids of what was sent on this connection, ``waiting`` is how many it was not sent on yet.
        """
        if self.suspects:
            return self._ended_in_search(unconfirmed)
        before = self._oldest
        if unconfirmed or self.is_fruitful:
            self._oldest = unconfirmed[0] if unconfirmed else _NOBODY
        is_past_it = self.is_fruitful and (not unconfirmed or self._oldest != before)
        if is_past_it or lived_s > _SOON_S:
            self._fruitless = 0
        elif unconfirmed:
            self._lived_s = max(lived_s, self._lived_s) if self._fruitless else lived_s
            self._fruitless += 1
            if self._fruitless == _FRUITLESS_BEFORE:
                self._fruitless = 0
                self.suspects = len(unconfirmed) + waiting
        return False

    def _ended_in_search(self, unconfirmed: Sequence[bytes]) -> bool:
        if self.is_held:
            self.suspects = 0
            self._accused = _NOBODY
        elif unconfirmed:
            accused = unconfirmed[0]
            self._endings = self._endings + 1 if accused == self._accused else 1
            self._accused = accused
            if self._endings == _ENDINGS:
                self._accused = _NOBODY
                self.suspects -= 1
                return True
        return False
