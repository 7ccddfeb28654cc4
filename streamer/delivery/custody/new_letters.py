"""Dead letters that are not in a transaction yet, and sources that are acknowledged once their dead letter is on disk."""

from collections import deque
from collections.abc import Iterator

from streamer.delivery.lanes.queue import Tally
from streamer.delivery.seen import SeenIds
from streamer.journal.entries import ENTRY_BYTES, Letter
from streamer.journal.journal import Journal, JournalState
from streamer.transports.received import Received

# Letters that wait while the disk is full. Beyond the bounds the oldest of accepted messages are dropped, and new ones of
# messages that were never accepted, which anybody can cause.
_MAX_LETTERS = 10_000
_MAX_LETTER_BYTES = 64 * 1024 * 1024
_MAX_REJECTED = 1000
_MAX_REJECTED_BYTES = 8 * 1024 * 1024
_MAX_SOURCES = 500
_MAX_SOURCE_BYTES = 16 * 1024 * 1024
_LONGEST_S = 1.0


class NewLetters:
    """New dead letters, oldest first. ``dropped`` counts those that were dropped because there were too many."""

    def __init__(self) -> None:
        self.dropped = 0
        self._letters: list[Letter] = []
        self._accepted, self._rejected = Tally(), Tally()

    def __bool__(self) -> bool:
        return bool(self._letters)

    def __iter__(self) -> Iterator[Letter]:
        return iter(self._letters)

    def are_many(self, many: int) -> bool:
        """Whether letters of accepted messages are at least ``many``, or half of the bytes that may wait."""
        return self._accepted.messages >= many or self._accepted.bytes >= _MAX_LETTER_BYTES // 2

    def add(self, letter: Letter) -> None:
        """Keep a letter until `take`, or drop it or older ones beyond the bounds."""
        letters = self._letters
        size = len(letter.body) + ENTRY_BYTES
        if letter.is_rejected:
            waiting, most, most_bytes = self._rejected, _MAX_REJECTED, _MAX_REJECTED_BYTES
        else:
            waiting, most, most_bytes = self._accepted, _MAX_LETTERS, _MAX_LETTER_BYTES
        while waiting.messages and (waiting.messages >= most or waiting.bytes + size > most_bytes):
            self.dropped += 1
            if letter.is_rejected:
                return
            at = next(at for at, each in enumerate(letters) if not each.is_rejected)
            waiting.add(-1, -len(letters.pop(at).body) - ENTRY_BYTES)
        waiting.add(1, size)
        letters.append(letter)

    def take(self) -> list[Letter]:
        """Remove and return all letters: the caller puts them into a transaction."""
        letters, self._letters = self._letters, []
        self._accepted, self._rejected = Tally(), Tally()
        return letters


class WaitingSources:
    """Received messages whose dead letter is not on disk yet: their sources are acknowledged when it is.

    MQTT is acknowledged in order, so a message that waits holds up its endpoint. So none waits while the journal cannot be
    written, nor longer than `_LONGEST_S`. Beyond the bounds the oldest is acknowledged.
    """

    def __init__(self, seen: SeenIds, journal: Journal | None) -> None:
        self._seen = seen
        self._journal = journal
        self._since_s = 0.0  # the oldest began to wait then, or earlier
        self._waiting: deque[tuple[Received, int]] = deque()  # with its size
        self._in_transaction: list[Received] = []
        self._bytes = 0

    def add(self, received: Received, now_s: float) -> None:
        """Acknowledge the source of a message only with its dead letter, unless it was acknowledged already."""
        if received.is_acknowledged or self._journal is None or self._journal.state is not JournalState.OK:
            return
        if not self._waiting and not self._in_transaction:
            self._since_s = now_s
        size = received.message.size
        received.holders += 1
        self._waiting.append((received, size))
        self._bytes += size
        while len(self._waiting) > _MAX_SOURCES or self._bytes > _MAX_SOURCE_BYTES:
            received, size = self._waiting.popleft()
            self._bytes -= size
            self._seen.release(received)

    def take(self) -> None:
        """Record that the dead letters of all waiting messages are in a transaction now."""
        self._in_transaction += [received for received, _ in self._waiting]
        self._waiting.clear()
        self._bytes = 0

    def committed(self, now_s: float) -> None:
        """Acknowledge the sources, because the transaction is on disk."""
        done, self._in_transaction = self._in_transaction, []
        self._since_s = now_s
        for received in done:
            self._seen.release(received)

    def tick(self, now_s: float) -> None:
        """Acknowledge all sources if they have waited too long or the journal cannot be written; called regularly."""
        if self._waiting or self._in_transaction:
            is_ok = self._journal is not None and self._journal.state is JournalState.OK
            if not is_ok or now_s - self._since_s > _LONGEST_S:
                self.take()
                self.committed(now_s)
