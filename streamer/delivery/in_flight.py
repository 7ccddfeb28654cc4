"""Bounds the messages in flight to a destination that confirms in order: enough to keep it busy, and not many more.

Further ones would only wait at the destination, where nothing urgent can overtake them, and so long that the journal has to
store them as well. How many are enough depends on the round trip to the destination, for which the shortest confirmation
time of late is taken: a near destination is busy with a few, one behind a slow network needs the whole window.

A turn of the event loop that sends one message costs nearly as much as one that sends many. So nothing is sent before a
quarter of the window is free.
"""

from collections.abc import Callable
from typing import Final

LEAST_MESSAGES: Final = 128
CONTESTED_MESSAGES: Final = 16
"""`LEAST_MESSAGES` while messages of different priority classes wait."""

MESSAGES_PER_S: Final = 20_000.0
"""How many messages a second have to fit into the window, beyond `LEAST_MESSAGES`, however far the destination is."""

FEW_WAITING_MESSAGES: Final = 16
"""At or below this number of waiting messages, `InFlight.call_waiters` is called."""

ROUND_TRIP_MEMORY_S: Final = 10.0  # how long a time counts at least, and twice as long at most
_CONTESTED_S: Final = 1.0
_LONG_S: Final = 10.0  # a time for which every window is too small


class InFlight:
    """One more bound on the window of an egress, beside those of the configuration and the transport."""

    __slots__ = ("_contested_until_s", "_on_few", "_period_start_s", "_previous_shortest_s", "_shortest_s")

    def __init__(self) -> None:
        self._shortest_s = self._previous_shortest_s = _LONG_S
        self._period_start_s = 0.0
        self._contested_until_s = 0.0
        self._on_few: dict[Callable[[], None], None] = {}

    def confirmed_after(self, seconds: float) -> None:
        """A message was confirmed so long after it was sent."""
        if seconds < self._shortest_s:
            self._shortest_s = seconds

    def forget_times(self) -> None:
        """The destination is another one from now on: its round trip is measured anew."""
        self._shortest_s = self._previous_shortest_s = _LONG_S

    def contested(self, now_s: float) -> None:
        """Messages of a lower class wait while one of a higher class is sent, or the other way round."""
        self._contested_until_s = now_s + _CONTESTED_S

    def is_contested(self, now_s: float) -> bool:
        """Whether messages of several classes have waited lately."""
        return now_s < self._contested_until_s

    def room(self, in_flight: int, most: int, now_s: float) -> int:
        """How many more messages may be sent. ``most``: the window by configuration and transport."""
        if now_s - self._period_start_s >= ROUND_TRIP_MEMORY_S:
            self._previous_shortest_s, self._shortest_s, self._period_start_s = self._shortest_s, _LONG_S, now_s
        shortest_s = min(self._shortest_s, self._previous_shortest_s)
        least = CONTESTED_MESSAGES if now_s < self._contested_until_s else LEAST_MESSAGES
        window = min(most, least + int(MESSAGES_PER_S * shortest_s))
        room = window - in_flight
        return room if in_flight == 0 or 4 * room >= window else 0

    # -- those who wait until few messages do

    @property
    def has_waiters(self) -> bool:
        """Whether somebody is to be told by `call_waiters`."""
        return bool(self._on_few)

    def call_when_few_wait(self, call: Callable[[], None]) -> None:
        """Call a function once, when few messages wait."""
        self._on_few[call] = None

    def cancel_call(self, call: Callable[[], None]) -> None:
        """Do not call it."""
        self._on_few.pop(call, None)

    def call_waiters(self) -> None:
        """Few messages wait."""
        calls, self._on_few = self._on_few, {}
        for call in calls:
            call()
