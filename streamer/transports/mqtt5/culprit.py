"""Finds the message over which a broker ends the connection, or that it never confirms. Pure: times are passed in.

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
- A message is *overdue* once a connection was ended because it was the oldest and was not confirmed in time, although the
  broker answered a ping meanwhile. It is the culprit after three such connections that show that the broker works. The first
  one shows it if a message was confirmed that was sent after it; or, if it was overdue before, if any other was confirmed.
  So that others can be, they are sent before the flows of overdue messages. A broker that confirms nothing costs no message.
- A message behind which another one was confirmed counts as overdue also where the broker did not answer the ping.
"""

from collections.abc import Sequence
from typing import Final

STAND_S: Final = 2.0
"""The least time for which a connection has to stand before a suspect is sent on it."""

_SOON_S: Final = 30.0
_FRUITLESS_BEFORE: Final = 3
_ENDINGS: Final = 2
_UNCONFIRMED_BEFORE: Final = 3
_NOBODY: Final = b""
_OVERDUE_AT_MOST: Final = 100
_NEVER: Final = (-1, False)


class Search:
    """``suspects``: how many messages are still to be sent one at a time. ``is_suspended``: nothing may be sent yet.

    ``least_s``: for how long a connection has to stand at least.
    """

    __slots__ = (
        "_accused",
        "_endings",
        "_fruitless",
        "_lived_s",
        "_oldest",
        "_overdue",
        "is_fruitful",
        "is_suspended",
        "least_s",
        "suspects",
    )

    def __init__(self, least_s: float = STAND_S) -> None:
        self.least_s = least_s
        self.suspects = 0
        self.is_suspended = False
        self.is_fruitful = False  # whether anything was confirmed on this connection
        self._fruitless = 0
        self._oldest = _NOBODY  # that was unconfirmed when the last connection ended
        self._lived_s = 0.0  # the longest of the fruitless connections
        self._accused = _NOBODY
        self._endings = 0
        self._overdue: dict[bytes, tuple[int, bool]] = {}
        """By id: how many connections count against it, and whether another one behind it was ever confirmed."""

    @property
    def stand_s(self) -> float:
        """For how long a connection has to stand before a suspect is sent on it."""
        return max(self.least_s, 2 * self._lived_s)

    def connected(self, quota: int) -> int:
        """There is a connection on which ``quota`` messages may be unconfirmed. Returns how many may be now."""
        self.is_fruitful = False
        self.is_suspended = self.suspects > 0
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
        if self.is_suspended:
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

    def is_overdue(self, message_id: bytes) -> bool:
        """Whether a connection was ended because this message was not confirmed in time."""
        return message_id in self._overdue

    def timed_out(self, oldest: bytes, passed_over: Sequence[bytes], is_alive: bool) -> bool:
        """The oldest unconfirmed message was not confirmed in time. Returns whether it is the culprit.

        ``passed_over``: the unconfirmed ones after which something was sent that was confirmed on this connection.
        ``is_alive``: the broker has sent something in the second half of the time.
        """
        overdue = self._overdue
        for each in passed_over:
            overdue[each] = max(0, overdue.get(each, _NEVER)[0]), True
        connections, is_passed_over = overdue.pop(oldest, _NEVER)
        if is_passed_over or (is_alive and (connections > 0 or (connections == 0 and self.is_fruitful))):
            connections += 1
        elif is_alive:
            connections = max(0, connections)
        if connections == _UNCONFIRMED_BEFORE:
            self.suspects = max(0, self.suspects - 1)
            return True
        if connections >= 0:
            overdue[oldest] = connections, is_passed_over
        while len(overdue) > _OVERDUE_AT_MOST:
            del overdue[next(iter(overdue))]
        return False
