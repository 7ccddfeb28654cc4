"""Dead letters that no transaction has taken yet."""

from collections.abc import Iterator

from streamer.delivery.queue import Tally
from streamer.journal.entries import ENTRY_BYTES, Letter

# Letters that wait while the disk is full. Of accepted messages the oldest go; those that anybody can cause come in no more.
_MAX_LETTERS = 10_000
_MAX_LETTER_BYTES = 64 * 1024 * 1024
_MAX_REJECTED = 1000
_MAX_REJECTED_BYTES = 8 * 1024 * 1024


class NewLetters:
    """Oldest first. ``dropped`` is how many had to go, because there were too many."""

    def __init__(self) -> None:
        self.dropped = 0
        self._letters: list[Letter] = []
        self._accepted, self._rejected = Tally(), Tally()

    def __bool__(self) -> bool:
        return bool(self._letters)

    def __iter__(self) -> Iterator[Letter]:
        return iter(self._letters)

    @property
    def accepted(self) -> int:
        """How many are of accepted messages. Beyond a bound the oldest are dropped."""
        return self._accepted.messages

    def add(self, letter: Letter) -> None:
        """Keep a letter until `take`."""
        letters = self._letters
        size = len(letter.body) + ENTRY_BYTES
        if letter.is_rejected:
            held, most, most_bytes = self._rejected, _MAX_REJECTED, _MAX_REJECTED_BYTES
        else:
            held, most, most_bytes = self._accepted, _MAX_LETTERS, _MAX_LETTER_BYTES
        while held.messages and (held.messages >= most or held.bytes + size > most_bytes):
            self.dropped += 1
            if letter.is_rejected:
                return
            at = next(at for at, each in enumerate(letters) if not each.is_rejected)
            held.add(-1, -len(letters.pop(at).body) - ENTRY_BYTES)
        held.add(1, size)
        letters.append(letter)

    def take(self) -> list[Letter]:
        """All of them, for a transaction."""
        letters, self._letters = self._letters, []
        self._accepted, self._rejected = Tally(), Tally()
        return letters
