"""Estimates whether a broker has stopped sending because it waits for our acknowledgements.

In MQTT the receiver declares how many unacknowledged messages it accepts, but the sender does not declare how many it will
send: many brokers send 20, some only 1 to keep the order, others 65 535. So the bound is learned. A broker that falls silent
with as many unacknowledged messages as it has sent lately may be at its bound; one that has sent more a moment ago is not.
The number at which it last fell silent is its bound, until it sends more.
"""

_SILENT_S = 0.008
_LATELY_S = 1.0  # received messages count for at least this long, and for twice as long at most


class Pressure:
    """Learns the bound of the broker on one connection. ``at_most``: our receive maximum."""

    __slots__ = ("_at_most", "_before", "_most", "_most_from_s", "_silent_at", "_since_s", "_waiting")

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._most = 0  # the most unacknowledged messages at a time, since `_most_from_s`
        self._most_from_s = 0.0
        self._before = 0  # the same for the period before that
        self._silent_at = 0  # unacknowledged messages when the broker last fell silent; 0: it never has
        self._waiting = 0  # unacknowledged messages at the last call with a change, which was at `_since_s`
        self._since_s = 0.0

    def note_received(self, waiting: int) -> None:
        """Count received messages. ``waiting``: how many messages are unacknowledged, including these."""
        if waiting > self._most:
            self._most = waiting
        if waiting > self._silent_at:
            self._silent_at = 0

    def is_at_bound(self, waiting: int) -> bool:
        """Return whether the broker has stopped sending, or soon will: ``waiting`` is near the bound that was learned."""
        return self._silent_at > 0 and 4 * waiting >= 3 * self._silent_at

    def may_have_stopped(self, waiting: int, now_s: float) -> bool:
        """Return whether the broker may have stopped sending, or soon will. Call this at intervals to learn the bound."""
        if waiting != self._waiting:
            self._waiting, self._since_s = waiting, now_s
        elif waiting >= max(self._most, self._before) and now_s - self._since_s >= _SILENT_S:
            self._silent_at = waiting
        if now_s - self._most_from_s >= _LATELY_S:
            self._before, self._most, self._most_from_s = self._most, waiting, now_s
        bound = self._silent_at or self._at_most // 3
        return waiting > 0 and 4 * waiting >= 3 * bound
