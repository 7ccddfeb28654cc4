"""Custody: when the source of a message that cannot be delivered at once is told that it need not keep it any longer.

A message that is confirmed within `FLUSH_S` is acknowledged then, and nobody else hears of it. What is still on its way
at the next flush is taken into custody as a batch, and its source acknowledged: else one flow whose receiver is away
would use up the source's window and hold up all others.

Here custody is the process's memory. What a kill of the process would lose is said when the daemon starts.
"""

from collections.abc import Callable

from streamer.transports.base import Received

FLUSH_S = 0.01

Later = Callable[[float, Callable[[], None]], object]
"""Calls a function after so many seconds; `asyncio`'s ``call_later``."""


class Custody:
    """Takes received messages that have no outcome yet at the flush after their arrival."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._recent: list[Received] = []

    def watch(self, received: Received) -> None:
        """A message has entered its lanes."""
        recent = self._recent
        if not recent:
            self._later(FLUSH_S, self.flush)
        recent.append(received)

    def flush(self) -> None:
        """Take what is still on its way."""
        recent, self._recent = self._recent, []
        for received in recent:
            received.keep()
