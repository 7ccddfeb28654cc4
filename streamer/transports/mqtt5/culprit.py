"""Finds the message because of which a broker ends connections, or that it never confirms. Pure: times are passed in.

Some brokers react so to a message that is larger than an undeclared limit, or whose topic they do not allow. The message
would be sent again after each reconnect, and block all others. The law of this file:

- A connection is *fruitless* if the broker ended it soon, messages were sent on it, and none was confirmed. It is also
  fruitless if some were confirmed, but the oldest unconfirmed message is the same as on the connection before: other
  messages may be sent before it, and a broker that processes several at a time confirms messages behind it.
- After three fruitless connections in a row, all unconfirmed messages are *suspects*: they are sent one at a time, each on a
  connection that has stood without traffic for twice as long as the fruitless connections lived.
- If two of these connections end over the same message, it is the culprit.
- A bad link makes no culprit: if a connection ends before a suspect was sent on it, the search is over.
- A connection that the broker has not accepted does not count: a proxy ends connections while the broker is down.
- A message is *overdue* once a connection was ended because the message was the oldest and not confirmed in time, although
  the broker answered a ping meanwhile. It is the culprit after three such connections that show that the broker works. The
  first one shows that if a message was confirmed that was sent later; a connection on which the message was overdue before
  shows it if any other message was confirmed. For that, other flows are sent before the flows of overdue messages. A broker
  that confirms nothing costs no message.
- If a later message was confirmed, a message counts as overdue even if the broker did not answer the ping.
"""

from collections.abc import Sequence
from typing import Final

STAND_S: Final = 2.0
"""The shortest time in seconds for which a connection has to stand before a suspect is sent on it."""

_SOON_S: Final = 30.0
_FRUITLESS_BEFORE: Final = 3
_ENDINGS: Final = 2
_UNCONFIRMED_BEFORE: Final = 3
_NOBODY: Final = b""
_OVERDUE_AT_MOST: Final = 100
_NEVER: Final = (-1, False)


class Search:
    """``suspects``: how many messages are still to be sent one at a time. ``is_suspended``: no message may be sent yet.

    ``least_s``: the shortest time for which a connection has to stand before a suspect is sent.
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
        self._oldest = _NOBODY  # id of the oldest unconfirmed message when the last connection ended
        self._lived_s = 0.0  # the longest of the fruitless connections
        self._accused = _NOBODY
        self._endings = 0
        self._overdue: dict[bytes, tuple[int, bool]] = {}
        """By message id: how many connections count against it, and whether a later message was ever confirmed."""

    @property
    def stand_s(self) -> float:
        """The seconds for which a connection has to stand before a suspect is sent on it."""
        return max(self.least_s, 2 * self._lived_s)

    def connected(self, quota: int) -> int:
        """Begin a connection on which ``quota`` messages may be unconfirmed. Return how many may be unconfirmed now."""
        self.is_fruitful = False
        self.is_suspended = self.suspects > 0
        return 1 if self.suspects else quota

    def confirmed(self, quota: int) -> int:
        """Count a suspect as confirmed or refused. Return how many messages may be unconfirmed now."""
        self.suspects -= 1
        return 1 if self.suspects else quota

    def ended(self, unconfirmed: Sequence[bytes], waiting: int, lived_s: float) -> bool:
        """Evaluate a connection that the broker has ended. Return whether the first unconfirmed message is the culprit.

        ``unconfirmed``: the ids of the messages sent on this connection. ``waiting``: how many messages were still to be
        sent again on it. ``lived_s``: how long the connection lived.
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
        """Return whether a connection was ended because this message was not confirmed in time."""
        return message_id in self._overdue

    def timed_out(self, oldest: bytes, passed_over: Sequence[bytes], is_alive: bool) -> bool:
        """Evaluate a connection whose oldest message was not confirmed in time. Return whether that is the culprit.

        ``passed_over``: unconfirmed messages of which a later one was confirmed on this connection. ``is_alive``: the broker
        has sent a packet in the second half of the time.
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
