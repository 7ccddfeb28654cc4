"""Guesses whether a broker has stopped sending because it waits for our acknowledgements.

In MQTT the receiver says how many messages it takes without an acknowledgement, but not the sender how many it will send: 20
for many brokers, 1 where order counts, 65 535 for others. So the bound is learned. A broker that falls silent with as many
unacknowledged messages as it has sent lately may be at its bound; one that has sent more a moment ago is not. The number at
which it last fell silent is the bound, until it sends more.
"""

_SILENT_S = 0.008
_LATELY_S = 1.0  # how long what was sent counts at least, and twice as long at most


class Pressure:
    """What one connection shows of its broker's bound. ``at_most``: what we have said that we take."""

    __slots__ = ("_at_most", "_before", "_most", "_most_from_s", "_silent_at", "_since_s", "_waiting")

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._most = 0  # unacknowledged at a time, since then
        self._most_from_s = 0.0
        self._before = 0  # the same of the time before that
        self._silent_at = 0  # how many were unacknowledged when it fell silent; 0: it never has
        self._waiting = 0  # how many were when we last looked and there was a change, and when that was
        self._since_s = 0.0

    def note_received(self, waiting: int) -> None:
        """Messages have come. ``waiting``: how many are unacknowledged, these included."""
        if waiting > self._most:
            self._most = waiting
        if waiting > self._silent_at:
            self._silent_at = 0

    def is_at_bound(self, waiting: int) -> bool:
        """Whether the broker is about to stop sending, or has, since it did so before with not many more unacknowledged."""
        return self._silent_at > 0 and 4 * waiting >= 3 * self._silent_at

    def may_have_stopped(self, waiting: int, now_s: float) -> bool:
        """Whether the broker may have stopped sending, or is about to, with so many unacknowledged. Ask now and then."""
        if waiting != self._waiting:
            self._waiting, self._since_s = waiting, now_s
        elif waiting >= max(self._most, self._before) and now_s - self._since_s >= _SILENT_S:
            self._silent_at = waiting
        if now_s - self._most_from_s >= _LATELY_S:
            self._before, self._most, self._most_from_s = self._most, waiting, now_s
        bound = self._silent_at or self._at_most // 3
        return waiting > 0 and 4 * waiting >= 3 * bound
