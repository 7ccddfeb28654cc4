"""Bounds the messages in flight to a destination that confirms in order: enough to keep it busy, and not many more.

Further messages would only wait at the destination, where nothing urgent can overtake them, and so long that the journal has
to store them as well. How many are enough depends on the round trip, which is estimated by the shortest confirmation time of
the last `ROUND_TRIP_MEMORY_S`: a few keep a near destination busy, one behind a slow network needs the whole window.

A slow link stores what it cannot carry yet, and confirms it late: then the shortest time is no round trip, and what was sent
cannot be replaced, overtaken or expire any more. So the window also shrinks to what is confirmed within `LATE_S`,
and grows again as long as it confirms earlier.

A cycle of the event loop that sends one message costs nearly as much as one that sends many. So nothing is sent before a
quarter of the window is free.
"""

from collections.abc import Callable
from typing import Final

LEAST_MESSAGES: Final = 128
CONTESTED_MESSAGES: Final = 16
"""`LEAST_MESSAGES` while messages of different priority classes wait."""

MESSAGES_PER_S: Final = 20_000.0
"""The rate, in messages/s, that the window allows beyond `LEAST_MESSAGES`, however long the round trip is."""

FEW_WAITING_MESSAGES: Final = 16
"""At or below this number of waiting messages, the egress calls `InFlight.call_waiters`."""

ROUND_TRIP_MEMORY_S: Final = 10.0  # a measured time counts for at least so long, and at most twice as long
LATE_S: Final = 1.0
"""A message that is confirmed later than this has waited on its way, unless the round trip is more than half of it."""

_GROWTH: Final = 0.25  # of the window, for each window of messages that is confirmed in time
_LEAST_CUT: Final = 0.125  # of the window: a link that was away, or a process that stood still, is no slow link
_CONTESTED_S: Final = 1.0
_LONG_S: Final = 10.0  # not measured: longer than any window needs


class InFlight:
    """A bound on the window of one egress, in addition to those of the configuration and the transport."""

    __slots__ = (
        "_contested_until_s",
        "_cut_s",
        "_limit",
        "_on_few",
        "_period_start_s",
        "_previous_shortest_s",
        "_round_trip_s",
        "_shortest_s",
    )

    def __init__(self) -> None:
        self._shortest_s = self._previous_shortest_s = self._round_trip_s = _LONG_S
        self._limit = float(LEAST_MESSAGES)
        self._cut_s = 0.0
        self._period_start_s = 0.0
        self._contested_until_s = 0.0
        self._on_few: dict[Callable[[], None], None] = {}

    def confirmed_after(self, seconds: float, messages: int, in_flight: int, now_s: float) -> None:
        """Record that the last one of ``messages`` was confirmed ``seconds`` after it was sent, as one of ``in_flight``."""
        if seconds < self._shortest_s:
            self._shortest_s = seconds
            if seconds < self._round_trip_s:
                self._round_trip_s = seconds
        late_s = max(LATE_S, 2 * self._round_trip_s)
        if seconds <= late_s:
            if 2 * in_flight >= self._limit:  # a window that is not used proves nothing
                self._limit += _GROWTH * messages
        elif now_s - seconds >= self._cut_s:  # what was sent before the last cut says nothing about the smaller window
            self._limit = max(1.0, min(self._limit, in_flight) * max(late_s / seconds, _LEAST_CUT))
            self._cut_s = now_s

    def forget_times(self) -> None:
        """Forget the measured times, because the destination is another one from now on."""
        self._shortest_s = self._previous_shortest_s = self._round_trip_s = _LONG_S
        self._limit = float(LEAST_MESSAGES)

    def contested(self, now_s: float) -> None:
        """Record that messages of several priority classes wait."""
        self._contested_until_s = now_s + _CONTESTED_S

    def is_contested(self, now_s: float) -> bool:
        """Whether messages of several priority classes waited within the last second."""
        return now_s < self._contested_until_s

    def room(self, in_flight: int, most: int, now_s: float) -> int:
        """Return how many more messages may be sent. ``most`` is the window that configuration and transport allow."""
        if now_s - self._period_start_s >= ROUND_TRIP_MEMORY_S:
            self._previous_shortest_s, self._shortest_s, self._period_start_s = self._shortest_s, _LONG_S, now_s
        shortest_s = min(self._shortest_s, self._previous_shortest_s)
        least = CONTESTED_MESSAGES if now_s < self._contested_until_s else LEAST_MESSAGES
        window = min(most, least + int(MESSAGES_PER_S * shortest_s), int(self._limit))
        room = window - in_flight
        return room if in_flight == 0 or 4 * room >= window else 0

    # -- calls for when few messages wait

    @property
    def has_waiters(self) -> bool:
        """Whether `call_waiters` has anything to call."""
        return bool(self._on_few)

    def call_when_few_wait(self, call: Callable[[], None]) -> None:
        """Have `call_waiters` call a function, once."""
        self._on_few[call] = None

    def cancel_call(self, call: Callable[[], None]) -> None:
        """Cancel a call that `call_when_few_wait` has asked for."""
        self._on_few.pop(call, None)

    def call_waiters(self) -> None:
        """Call the registered functions, because few messages wait now."""
        calls, self._on_few = self._on_few, {}
        for call in calls:
            call()
