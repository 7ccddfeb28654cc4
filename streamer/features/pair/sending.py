"""Batches that the active streamer has written and not yet sent to the standby, and how many may be on their way.

The law of this file:
- The batches that `Unsent.take` returns, applied in order, leave what the batches that were added would have left. An entry
  that is deleted before it was sent is never sent.
- A part has an entry before the deletions that were written with it: if the rest never arrives, the standby has too much.
- Heartbeats queue behind what is on its way, so that is as much as the standby answers within half a second or so.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from streamer.journal.entries import ENTRY_BYTES, Batch, Letter, Row, Segment

MOST_BYTES = 1 << 20
"""The most bytes that are on their way without an answer, but for a single larger part."""

_FIRST_BYTES = 64 << 10
_LEAST_BYTES = 16 << 10
_LATE_S = 0.3
_GROWS, _SHRINKS = 1.5, 0.5
_PARTS = 4  # that fit into the window
_NUMBER_BYTES = 9  # of an entry that is to be deleted
LONGEST_PAUSE_S = 60.0
"""Between two attempts to make a copy."""

_FIRST_PAUSE_S = 1.0
_MOST_REST_BYTES = 256 << 10  # of the letters in one part

Entry = TypeVar("Entry", Row, Segment)


class Window:
    """Numbered parts that were sent and are not answered, and whether more may be sent.

    The window grows while answers come about as fast as the fastest one, and shrinks while they are later.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._sent: deque[tuple[int, int, float]] = deque()  # number, bytes, when
        self._bytes = 0
        self._most_bytes = _FIRST_BYTES
        self._fastest_s = math.inf
        self._judged = 0  # the last part that was sent before the window changed
        self._answered_s = -math.inf

    @property
    def has_room(self) -> bool:
        """Whether another part may be sent."""
        return self._bytes < self._most_bytes

    @property
    def part_bytes(self) -> int:
        """Return how large the next part may be."""
        return max(1, self._most_bytes // _PARTS)

    @property
    def silent_s(self) -> float:
        """Return for how long the standby has answered nothing, although something is on its way to it."""
        return self._monotonic_s() - max(self._sent[0][2], self._answered_s) if self._sent else 0.0

    def sent(self, number: int, size: int) -> None:
        """Note that a part was sent. Numbers rise."""
        self._sent.append((number, size, self._monotonic_s()))
        self._bytes += size

    def answered(self, number: int) -> None:
        """Note that the standby has all parts up to a number."""
        now_s = self._monotonic_s()
        while self._sent and self._sent[0][0] <= number:
            answered, size, sent_s = self._sent.popleft()
            self._bytes -= size
            self._answered_s = now_s
            self._fastest_s = min(self._fastest_s, now_s - sent_s)
            if answered > self._judged:
                self._judged = self._sent[-1][0] if self._sent else answered
                is_late = now_s - sent_s > self._fastest_s + _LATE_S
                wanted = int(self._most_bytes * (_SHRINKS if is_late else _GROWS))
                self._most_bytes = max(_LEAST_BYTES, min(MOST_BYTES, wanted))

    def forget(self) -> None:
        """Expect no answer to the sent parts, because the link is gone, or the snapshot begins anew."""
        self._sent.clear()
        self._bytes = 0


class Attempts:
    """Decides when a failed copy is begun again: after a second, and after twice as long with each failure."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._next_s = -math.inf
        self._whole_since_s: float | None = None

    def failed(self, now_s: float) -> None:
        """Note that a copy has failed, or that a whole one has been given up."""
        self._next_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def look(self, is_whole: bool, now_s: float) -> None:
        """Note whether there is a whole copy now. One that lasts for longer than the next pause ends the failures."""
        self._whole_since_s = (self._whole_since_s or now_s) if is_whole else None
        if self._whole_since_s is not None and now_s - self._whole_since_s > self._pause_s:
            self._pause_s = _FIRST_PAUSE_S

    def is_due(self, now_s: float) -> bool:
        """Whether another attempt may begin."""
        return now_s >= self._next_s


class _Entries(Generic[Entry]):
    """Rows, or segments, to be written, and the numbers of those to be deleted. No entry is in both."""

    def __init__(self) -> None:
        self.bytes = 0
        self._new: dict[int, Entry] = {}
        self._done: set[int] = set()

    def __bool__(self) -> bool:
        """Return whether there are entries to be written."""
        return bool(self._new)

    def add(self, new: Sequence[Entry], done: Sequence[int]) -> None:
        """Add entries, after the deletion of others. A new entry replaces the one with its number, also on the standby."""
        for number in done:
            self._drop(number)
            self._done.add(number)
            self.bytes += _NUMBER_BYTES
        for entry in new:
            self._drop(entry.number)
            self._new[entry.number] = entry
            self.bytes += _size(entry)

    def take(self, most_bytes: int) -> list[Entry]:
        """Remove and return the oldest entries that fill about ``most_bytes``; at least one."""
        found: list[Entry] = []
        while self._new and (most_bytes > 0 or not found):
            entry = self._new.pop(next(iter(self._new)))
            found.append(entry)
            self.bytes -= _size(entry)
            most_bytes -= _size(entry)
        return found

    def take_done(self) -> list[int]:
        """Remove and return the numbers of the entries to be deleted."""
        done, self._done = sorted(self._done), set()
        self.bytes -= _NUMBER_BYTES * len(done)
        return done

    def _drop(self, number: int) -> None:
        if (entry := self._new.pop(number, None)) is not None:
            self.bytes -= _size(entry)
        elif number in self._done:
            self._done.remove(number)
            self.bytes -= _NUMBER_BYTES


class _Part:
    """Batches merged into one. In a `Batch`, deletions come first, and marks of letters last."""

    def __init__(self) -> None:
        self.rows = _Entries[Row]()
        self.segments = _Entries[Segment]()
        self.rest = Batch()  # what concerns letters
        self._rest_bytes = 0

    @property
    def bytes(self) -> int:
        return self.rows.bytes + self.segments.bytes + self._rest_bytes

    def has_room_for(self, batch: Batch) -> bool:
        """Return whether this part and a batch, merged, have the same effect as one after the other."""
        rest, changes = self.rest, batch.letters_done or batch.letters_unmarked
        if (changes and rest.letters) or (rest.letters_marked and (changes or batch.letters)):
            return False
        return self._rest_bytes < _MOST_REST_BYTES or not batch.letters

    def add(self, batch: Batch) -> None:
        self.rows.add(batch.rows, batch.rows_done)
        self.segments.add(batch.segments, batch.segments_done)
        rest = self.rest
        rest.letters += batch.letters
        rest.letters_done += batch.letters_done
        rest.letters_unmarked += batch.letters_unmarked
        rest.letters_marked += batch.letters_marked
        changed = len(batch.letters_done) + len(batch.letters_unmarked) + len(batch.letters_marked)
        self._rest_bytes += sum(map(_size, batch.letters)) + _NUMBER_BYTES * changed

    def take(self, most_bytes: int) -> tuple[Batch, bool]:
        """Remove and return a batch of this part, and whether it was the last one, which has the deletions."""
        segments = self.segments.take(most_bytes)
        rows = self.rows.take(most_bytes - sum(map(_size, segments)))
        if self.segments or self.rows:
            return Batch(segments=segments, rows=rows), False
        segments_done, rows_done = self.segments.take_done(), self.rows.take_done()
        return replace(self.rest, segments=segments, rows=rows, segments_done=segments_done, rows_done=rows_done), True


class Unsent:
    """Batches that were written and not sent, merged. ``bytes``: how much there is to send."""

    def __init__(self) -> None:
        self._parts: deque[_Part] = deque()

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self._parts)

    def add(self, batch: Batch) -> None:
        """Add a batch that was written after the others."""
        if not self._parts or not self._parts[-1].has_room_for(batch):
            self._parts.append(_Part())
        self._parts[-1].add(batch)

    def take(self, most_bytes: int) -> Batch:
        """Remove and return the next batch to send, of about ``most_bytes``, or the rest of a part."""
        if not self._parts:
            return Batch()
        batch, is_rest = self._parts[0].take(most_bytes)
        if is_rest:
            self._parts.popleft()
        return batch

    def clear(self) -> None:
        """Remove all batches."""
        self._parts.clear()


def size_of(batch: Batch) -> int:
    """Return about how many bytes a batch has when it is sent."""
    done = len(batch.rows_done) + len(batch.segments_done) + len(batch.letters_done) + len(batch.letters_unmarked)
    return batch.bytes + _NUMBER_BYTES * (done + len(batch.letters_marked))


def _size(entry: Row | Segment | Letter) -> int:
    return len(entry.body) + ENTRY_BYTES
