"""The journal of a pair: what one writes is written by the other, too, before anybody is told that it is safe.

The active one has a `MirroredJournal`, the standby a `Replica`. The numbers of their entries never meet: one of the
two gives even ones, the other odd ones. So journals that grew apart in a split can be put together.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch, CorruptEntryError, JournalError, Mark
from streamer.journal.journal import Journal
from streamer.journal.letters import LetterChange
from streamer.pair.sending import Unsent, Window, size_of

_MOST_UNSENT_BYTES = 64 << 20
_SHARE_S = 10.0  # how long whoever changes letters waits for the other one
_PART_ENTRIES = 256
_NONE = 1 << 63  # no number of an entry
_UNBOUNDED = LetterBounds(*[1 << 62] * 4)

logger = logging.getLogger("ustreamer.pair")


class Told(NamedTuple):
    """A batch on its way to the standby: the ``number``-th of this process. A link begins with a snapshot and its tail.

    ``is_first`` and ``is_last`` mark the ends of that. With the last one, the standby has everything that waits; what it has
    of this journal, and was not named in there, is gone.
    """

    number: int
    batch: Batch
    is_first: bool = False
    is_last: bool = False


class MirroredJournal(Journal):
    """A journal whose batches count as written once the other one has them as well, until it works alone.

    It works alone at first. ``is_mirrored``: the other one has had everything that waits. ``shared`` is the number up to
    which the other one has all entries. Its owner calls `arrange` before anything else, `other_came` when there is a link to
    a standby, `other_stored` with its answers, and `work_alone` when it is gone. All for the event loop's thread.
    """

    def arrange(
        self,
        is_even: bool,
        tell: Callable[[Told], bool],
        waits: bool = True,
        untold: Callable[[int], None] = lambda lowest: None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set which numbers it gives, and what sends a batch to the other one and returns whether there is a link.

        ``waits``: batches count as written only once the other one has them, too. ``untold`` is called before a batch counts
        as written that the other one may not have, with the lowest number in it: entries are not written in the order of
        their numbers.
        """
        self._untold = untold
        self.problem_of_copy = ""
        self._waits = waits
        self._parity = 0 if is_even else 1
        self._tell = tell
        self.is_alone = True
        self.is_mirrored = False
        self.shared = 0
        self._told = self._stored = 0
        self._whole = 0  # what ends with everything that waits
        self._highest = 0  # number of an entry that was told
        self._sharing: deque[tuple[int, int, int]] = deque()  # what was told, highest number until then, lowest in it
        self._needed = 0  # what has to be stored for the batch that is being written
        self._waiting: list[Callable[[], None]] = []  # called back once the other one has everything
        self._done_here: Callable[[], None] | None = None  # of the batch that is on disk here, and maybe not there
        self._is_asked_for_all = False
        self._snapshot: Iterator[Batch] | None = None  # the rest of it, and then its tail, while that is being sent
        self._is_tail = False
        self._unsent = Unsent()  # what was written since the snapshot began
        self._window = Window(monotonic_s)

    def number(self) -> int:
        """Return the next number of those that are this one's."""
        number = super().number()
        return number if number % 2 == self._parity else super().number()

    def write(self, batch: Batch, done: Callable[[], None]) -> None:
        """Hand over a batch; ``done`` is posted once it is on disk here and, unless it works alone, there."""
        self._pass_on(batch)
        super().write(batch, done)

    def change_letters(self, change: LetterChange) -> int:
        """Delete or mark letters; once that is on disk here and, unless it works alone, there, return how many existed.

        Blocks, and raises, as `Journal.change_letters`. It waits for the other one for some seconds at most.
        """
        changed = super().change_letters(change)
        shared = threading.Event()
        self._call(self._when_shared, shared.set)
        if not shared.wait(_SHARE_S):
            consequence = "after a take-over, letters that were purged are there again, and redrives begin anew"
            logger.warning("letters_not_shared letters=%d consequence=%s", changed, consequence)
        return changed

    def other_came(self) -> None:
        """Tell the standby everything that waits, from when no batch is on its way to the disk."""
        self._forget_link()
        self._is_asked_for_all = True
        self._tell_all()

    def other_stored(self, number: int) -> None:
        """Note that the other one has all batches of this link up to a number on its disk."""
        self._stored = max(self._stored, min(number, self._told))
        while self._sharing and self._sharing[0][0] <= self._stored:
            self.shared = max(self.shared, self._sharing.popleft()[1])
        self._window.answered(self._stored)
        self._send_more()
        self._let_go()

    def link_lost(self) -> None:
        """Forget what is on its way: it may not have arrived."""
        self._forget_link()

    @property
    def silent_s(self) -> float:
        """Return for how long the standby has confirmed nothing, although something is on its way to it."""
        return self._window.silent_s

    @property
    def is_copied(self) -> bool:
        """Whether the other one has had everything that waits, or is being told."""
        return self.is_mirrored or self._snapshot is not None or self._is_asked_for_all

    @property
    def is_whole(self) -> bool:
        """Whether the other one has everything that waits on its disk, apart from what is on its way."""
        return self.is_mirrored and self._stored >= self._whole

    @property
    def is_stored(self) -> bool:
        """Whether the other one has on disk what was written."""
        return self._stored >= self._told and not self._unsent

    def work_alone(self) -> None:
        """Wait for nobody: the other one is gone, or does not answer."""
        self._forget_link()
        self.is_alone = True
        self._let_go()

    def _written(self, committed_bytes: int, done: Callable[[], None]) -> None:
        self._done_here = partial(super()._written, committed_bytes, done)
        self._tell_all()
        self._let_go()

    def _let_go(self) -> None:
        if not (
            self.is_alone or not self._waits or (self.is_mirrored and not self._unsent and self._stored >= self._needed)
        ):
            return
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()
        if self._done_here is not None:
            done, self._done_here = self._done_here, None
            done()

    def _changed(self, change: LetterChange, committed_bytes: int) -> None:
        super()._changed(change, committed_bytes)
        self._pass_on(_batch_of(change))

    def _when_shared(self, call: Callable[[], None]) -> None:
        """Call back once the other one has everything that was told until now, or need not have it."""
        self._waiting.append(call)
        self._let_go()

    def _pass_on(self, batch: Batch) -> None:
        """Send a batch to the standby, once there is room for it behind what was written before."""
        is_followed = self.is_mirrored or self._snapshot is not None
        if self.is_alone or not self._waits or not is_followed:
            self._lower(self._lowest(batch))  # it counts as written before the other one has it
        if is_followed:
            self._unsent.add(batch)
            self._send_more()

    def _lowest(self, batch: Batch) -> int:
        """Return the lowest number of this one's entries in a batch."""
        numbers = (each.number for entries in (batch.rows, batch.segments, batch.letters) for each in entries)
        return min((number for number in numbers if number % 2 == self._parity), default=_NONE)

    def _lower(self, lowest: int) -> None:
        """Note that the other one may not have an entry."""
        if lowest != _NONE:
            self.shared = min(self.shared, lowest - 1)
            self._untold(lowest)

    def _tell_all(self) -> None:
        if self._is_asked_for_all and (not self.is_busy or self._done_here is not None):
            self._is_asked_for_all = False
            self._snapshot = self._parts()
            self._send(Batch(), is_first=True)
            self._send_more()

    def _send_more(self) -> None:
        """Send the next parts of the snapshot and then what was written meanwhile, as far as the window has room."""
        while self._window.has_room and (self._snapshot is not None or self._unsent):
            if self._snapshot is None:
                self._send(self._unsent.take(self._window.part_bytes))
                continue
            try:
                part = next(self._snapshot, None)
            except (JournalError, CorruptEntryError) as exc:  # what is left of it would be taken for its end
                self._give_up(f"the journal cannot be read: {exc}")
                return
            self._is_tail = part is None
            if part is None:
                part = self._unsent.take(self._window.part_bytes)
            self._send(part, is_last=self._is_tail and part.is_empty)  # the standby adds its deletions to that
        if self._unsent.bytes > _MOST_UNSENT_BYTES:
            self._give_up(f"the link is slower than this one writes: {_MOST_UNSENT_BYTES >> 20} MiB wait for it")

    def _give_up(self, problem: str) -> None:
        """Do without a copy. Its owner finds `problem_of_copy`, and tries again."""
        self.problem_of_copy = problem
        self.work_alone()

    def _parts(self) -> Iterator[Batch]:
        """Yield everything in parts. The marks of letters come after the letters."""
        part = Batch()
        entries: Iterable[tuple[str, object]] = chain(
            (("rows", each) for each in self.rows(everything=True)),
            (("segments", each) for each in self.segments(everything=True)),
            (("letters", each) for each in self.all_letters()),
            (("letters_marked", each) for each in self.letter_marks()),
        )
        for number, (kind, entry) in enumerate(entries, 1):
            getattr(part, kind).append(entry)
            if number % _PART_ENTRIES == 0 or part.bytes > self._window.part_bytes:
                yield part
                part = Batch()
        if not part.is_empty:
            yield part

    def _send(self, batch: Batch, is_first: bool = False, is_last: bool = False) -> None:
        self._told += 1
        self._needed = self._told
        numbers = (each.number for entries in (batch.rows, batch.segments, batch.letters) for each in entries)
        self._highest = max(self._highest, max(numbers, default=0))
        if self.is_mirrored or self._is_tail:
            self._sharing.append((self._told, self._highest, self._lowest(batch)))
        if is_last:
            self._snapshot, self._is_tail, self._whole = None, False, self._told
            self.is_mirrored, self.is_alone = True, False
        self._window.sent(self._told, size_of(batch))
        if not self._tell(Told(self._told, batch, is_first, is_last)):
            self._forget_link()

    def _forget_link(self) -> None:
        lowest = [*(lowest for _, _, lowest in self._sharing), *map(self._lowest, self._unsent.drain())]
        self._sharing.clear()
        self._window.forget()
        self._snapshot, self._is_asked_for_all, self.is_mirrored, self._is_tail = None, False, False, False
        self._stored = self._told  # answers to what was told before prove nothing any more
        self._lower(min(lowest, default=_NONE))


def _batch_of(change: LetterChange) -> Batch:
    """Return the batch that changes the letters of a copy in the same way."""
    if change.redrive_ms is None:
        return Batch(letters_done=change.numbers)
    return Batch(letters_marked=[Mark(number, change.redrive_ms, change.ttl_ms) for number in change.numbers])


class Replica:
    """The journal on standby: writes what the other one tells, in order, and says what is on disk.

    ``stored`` is called with each batch of the other one that is on disk. ``is_mine``: whether the entry with a number is
    this side's own, and the other one has never had it. ``is_whole``: it has everything that waits.
    """

    def __init__(self, journal: Journal, is_mine: Callable[[int], bool], stored: Callable[[Told], object]) -> None:
        self.is_whole = False
        self._journal = journal
        self._bounds = journal.bounds
        self._is_mine = is_mine
        self._stored = stored
        self._waiting: deque[Told] = deque()
        self._named: dict[str, set[int]] | None = None  # the entries in what waits there, while that is being told
        self._links = 0
        self._follows = False  # it has had the beginning

    def other_came(self) -> None:
        """Forget what has not been written: a new link begins with everything."""
        self._waiting.clear()
        self._named = None
        self.is_whole = self._follows = False
        self._links += 1

    def take(self, told: Told) -> None:
        """Write a batch after those that came before. Without the beginning of everything, it is nothing."""
        self._follows = self._follows or told.is_first
        if not self._follows:
            return
        self._waiting.append(told)
        self._write_next()

    def delete(self, batch: Batch) -> None:
        """Delete entries that are not the other one's, after what came before."""
        self._waiting.append(Told(0, batch))
        self._write_next()

    def _write_next(self) -> None:
        if self._journal.is_busy or not self._waiting:
            return
        told = self._waiting.popleft()
        batch = told.batch
        # Until what has gone there is deleted here, old letters must not evict those that are told.
        self._journal.use(_UNBOUNDED if told.is_first or self._named is not None else self._bounds)
        if told.is_first:
            self.is_whole = False
            self._named = {"rows": set(), "segments": set(), "letters": set()}
        if self._named is not None:
            for kind, numbers in self._named.items():
                numbers.update(entry.number for entry in getattr(batch, kind))
        if told.is_last and self._named is not None:
            batch, self._named = self._gone(self._named), None
        self._journal.write(batch, partial(self._written, told, self._links))

    def _gone(self, named: dict[str, set[int]]) -> Batch:
        """Return the deletions of what is here, was there, and does not wait there any more."""
        batch = Batch()
        for kind, numbers in named.items():
            gone = [each for each in self._journal.numbers(kind) if each not in numbers and not self._is_mine(each)]
            getattr(batch, f"{kind}_done").extend(gone)
        return batch

    def _written(self, told: Told, link: int) -> None:
        if told.number and link == self._links:  # else the number means something else by now
            self.is_whole = self.is_whole or told.is_last
            self._stored(told)
        self._write_next()
