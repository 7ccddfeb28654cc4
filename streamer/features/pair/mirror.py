"""The journal of a pair: each transaction is on the standby's disk as well before it counts as written.

The active streamer has a `MirroredJournal`, the standby a `Replica`. One of the two gives even numbers, the other odd ones.
So journals that grew apart in a split can be merged.
"""

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import NamedTuple

from streamer.features.pair.disk import EVERYTHING, NO_CLAIM, CopyClaim, Disk, Origin
from streamer.features.pair.sending import Unsent, Window, size_of
from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch, CorruptEntryError, Facts, JournalError, Kept, Mark
from streamer.journal.journal import Journal
from streamer.journal.letters import LetterChange

_MOST_UNSENT_BYTES = 64 << 20
_SHARE_S = 10.0  # how long a change of letters waits for the standby
_PART_ENTRIES = 256
_MOST_BEYOND = 64
_ADOPTED = "what is here and not proved to have been there is kept, and offered after the copy"
_UNBOUNDED = LetterBounds(*[1 << 62] * 4)

logger = logging.getLogger("ustreamer.pair")


class Told(NamedTuple):
    """A batch on its way to the standby: the ``number``-th of this process. A link begins with a snapshot and its tail.

    ``is_first`` and ``is_last`` mark the ends of the snapshot, ``origin`` comes with the first batch (None: of an earlier
    version). With the last batch, the standby has all waiting messages.

    Nothing in a batch was written after ``position`` of the active streamer's disk. ``is_complete``: with this batch, the
    standby has everything up to ``position``.
    """

    number: int
    batch: Batch
    is_first: bool = False
    is_last: bool = False
    position: int = 0
    is_complete: bool = False
    origin: Origin | None = None


class MirroredJournal(Journal):
    """A journal whose batches count as written once the standby has them as well, unless the journal works alone.

    It works alone at first. ``is_mirrored``: the standby was sent all waiting messages. ``disk`` is what the file can prove,
    once it is open. Its owner calls `arrange` before anything else, `met` and `other_came` once a standby is linked,
    `other_stored` with the standby's answers, `work_alone` when the standby is gone, and `check_file` now and then. All for
    the event loop's thread.
    """

    def arrange(
        self,
        is_even: bool,
        tell: Callable[[Told], bool],
        waits: bool = True,
        epoch: Callable[[], int] = int,
        disk_of: Callable[[Mapping[str, str], int], Disk] | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set which numbers this journal gives, and ``tell``, which sends a batch and returns whether there is a link.

        ``waits``: batches count as written only once the standby has them, too. ``disk_of`` makes a disk of the facts in
        the file and its highest number; ``epoch`` returns the epoch of this streamer. The journal's thread calls both.
        """
        self._epoch = epoch
        self._disk_of = disk_of or partial(disk_of_facts, parity=0 if is_even else 1)
        self.disk = self._disk_of({}, 0)
        self._is_open = False
        self._generation = 0
        self._is_unknown = False  # something was written without facts
        self._peer = ""  # the disk of the standby
        self._beyond: deque[tuple[int, int]] = deque()  # unconfirmed positions, with their lowest numbers
        self._claim = NO_CLAIM  # of the standby, about this disk
        self.problem_of_copy = ""
        self._waits = waits
        self._parity = 0 if is_even else 1
        self._tell = tell
        self.is_alone = True
        self.is_mirrored = False
        self._told = self._stored = 0
        self._whole = 0  # number of the last batch of the snapshot
        self._complete: deque[tuple[int, int]] = deque()  # numbers of batches that complete a position, and these positions
        self._needed = 0  # number that the standby has to store before the present batch counts as written
        self._waiting: list[Callable[[], None]] = []  # called back once the standby has everything
        self._done_here: Callable[[], None] | None = None  # of the batch that is on disk here, and maybe not at the standby
        self._is_asked_for_all = False
        self._snapshot: Iterator[Batch] | None = None  # the rest of it, and then its tail, while that is being sent
        self._unsent = Unsent()  # what was written since the snapshot began
        self._window = Window(monotonic_s)

    def number(self) -> int:
        """Return the next number that this journal may give."""
        number = super().number()
        return number if number % 2 == self._parity else super().number()

    def write(self, batch: Batch, done: Callable[[], None]) -> None:
        """Hand over a batch; ``done`` is posted once it is on disk here and, unless alone, at the standby."""
        if self._is_open:
            lowest = self._lowest(batch)
            self.disk.wrote(max(self._numbers_in(batch), default=0))
            if lowest != EVERYTHING:
                self._beyond.append((self.disk.position, lowest))
                if len(self._beyond) > _MOST_BEYOND:
                    _, first = self._beyond.popleft()
                    self._beyond[0] = self._beyond[0][0], min(first, self._beyond[0][1])
                self.disk.lower(lowest)
            batch.facts = Facts(self._generation, self.disk.changed())
        else:
            self._is_unknown = True
        self._pass_on(batch)
        super().write(batch, done)

    def check_file(self) -> None:
        """Give the disk a new name, and end the copy, if the file was salvaged, or written to before it was open."""
        if not self._is_open or (self.files_set_aside == self._generation and not self._is_unknown):
            return
        self._generation, self._is_unknown = self.files_set_aside, False
        self.disk = self._disk_of({}, 0)
        self.disk.begin_run(secrets.token_hex(4), self._epoch(), 0)
        self._beyond.clear()
        logger.error("pair_disk_renamed disk=%s reason=%s", self.disk.name, "its journal was salvaged")
        self.link_lost()

    def work_in(self, epoch: int) -> None:
        """Note the epoch of this streamer. A risen one is on disk soon; the standby gets it with another snapshot."""
        if self._is_open and self.disk.raise_epoch(epoch):
            self._work.put(partial(self._state_facts, Batch(facts=Facts(self._generation, self.disk.changed()))))
            self.link_lost()

    def change_letters(self, change: LetterChange) -> int:
        """Delete or mark letters; return how many existed, once that is on disk here and, unless alone, at the standby.

        Blocks, and raises, as `Journal.change_letters`. It waits for the standby for some seconds at most.
        """
        changed = super().change_letters(change)
        shared = threading.Event()
        self._call(self._when_shared, shared.set)
        if not shared.wait(_SHARE_S):
            consequence = "after a take-over, letters that were purged are there again, and redrives begin anew"
            logger.warning("letters_not_shared letters=%d consequence=%s", changed, consequence)
        return changed

    def met(self, disk: str, claim: CopyClaim) -> None:
        """Note the disk of the standby, and what it claims to have of the disk here."""
        self._peer, self._claim = disk, claim

    def other_came(self) -> None:
        """Send the standby a snapshot, once no batch is on its way to the disk."""
        self.check_file()
        self.link_lost()
        self._is_asked_for_all = True
        self._tell_all()

    def other_stored(self, number: int, granted: CopyClaim = NO_CLAIM) -> None:
        """Note that the standby has all batches of this link up to a number on its disk.

        ``granted``: what may be claimed about its disk now.
        """
        if granted.disk and granted.disk == self._peer:
            self.disk.claim = granted
        self._stored = max(self._stored, min(number, self._told))
        position = -1
        while self._complete and self._complete[0][0] <= self._stored:
            position = self._complete.popleft()[1]
        if position >= 0:
            while self._beyond and self._beyond[0][0] <= position:
                self._beyond.popleft()
            self.disk.given_to(self._peer, position)
            self.disk.lower(min((lowest for _, lowest in self._beyond), default=EVERYTHING))
        self._window.answered(self._stored)
        self._send_more()
        self._let_go()

    @property
    def silent_s(self) -> float:
        """Return for how long the standby has confirmed nothing, although something is on its way to it."""
        return self._window.silent_s

    @property
    def is_copied(self) -> bool:
        """Whether the standby was sent a snapshot, or is being sent one."""
        return self.is_mirrored or self._snapshot is not None or self._is_asked_for_all

    @property
    def is_whole(self) -> bool:
        """Whether the standby has all waiting messages on its disk, apart from batches on their way."""
        return self.is_mirrored and self._stored >= self._whole

    @property
    def is_stored(self) -> bool:
        """Whether the standby has every written batch on its disk."""
        return self._stored >= self._told and not self._unsent

    def work_alone(self) -> None:
        """Stop waiting for the standby, which is gone or does not answer."""
        self.link_lost()
        self.is_alone = True
        self._let_go()

    def stop_waiting(self) -> None:
        """Stop waiting for the standby until the present snapshot is complete. New batches follow it."""
        self.is_alone = True
        self._let_go()

    def _open(self) -> bool:
        """Open the file, on the journal's thread, and begin a run before anything is written."""
        if not super()._open():
            return False
        self._generation = self.files_set_aside
        early = self._numbered_from  # numbers were given before those in the file were known
        disk = self._disk_of(self.facts if early is None else {}, self._found_up_to)
        disk.begin_run(secrets.token_hex(4), self._epoch(), disk.top + 1 if early is None else 0)
        run = Batch(facts=Facts(self._generation, disk.changed()))
        if not self._attempt(lambda: self._store.apply(run)):
            disk.restate()  # with the first batch
        self.disk, self._is_open = disk, True
        return True

    def _state_facts(self, batch: Batch) -> bool:
        """Write facts alone, on the journal's thread."""
        if not self._attempt(lambda: self._store.apply(batch)):
            self._call(self.disk.restate)  # with the next batch
        return True

    def _above(self, facts: Mapping[str, str], top: int) -> int:
        return self._disk_of(facts, top).top

    def _written(self, committed_bytes: int, done: Callable[[], None]) -> None:
        self.check_file()
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
        """Call back once the standby has every batch that was sent until now, or need not have it."""
        self._waiting.append(call)
        self._let_go()

    def _pass_on(self, batch: Batch) -> None:
        """Send a batch to the standby, once there is room for it behind what was written before."""
        if self.is_mirrored or self._snapshot is not None:
            self._unsent.add(batch)
            self._send_more()

    def _lowest(self, batch: Batch) -> int:
        """Return the lowest number of this journal's own entries in a batch."""
        return min((number for number in self._numbers_in(batch) if number % 2 == self._parity), default=EVERYTHING)

    def _numbers_in(self, batch: Batch) -> Iterator[int]:
        return (each.number for entries in (batch.rows, batch.segments, batch.letters) for each in entries)

    def _tell_all(self) -> None:
        if self._is_asked_for_all and (not self.is_busy or self._done_here is not None):
            self._is_asked_for_all = False
            self._snapshot = self._parts()
            origin = self.disk.origin(self._claim) if self._is_open else Origin()
            self._claim = CopyClaim(origin.disk, origin.run, self.disk.position)  # of a second copy on this link
            self._send(Batch(), is_first=True, origin=origin)
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
            tail = self._unsent.take(self._window.part_bytes) if part is None else Batch()
            self._send(part or tail, is_last=part is None and tail.is_empty)  # the standby adds its deletions to that
        if self._unsent.bytes > _MOST_UNSENT_BYTES:
            self._give_up(f"the link is slower than this one writes: {_MOST_UNSENT_BYTES >> 20} MiB wait for it")

    def _give_up(self, problem: str) -> None:
        """Give the copy up. The owner of this journal finds `problem_of_copy`, and tries again."""
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

    def _send(self, batch: Batch, is_first: bool = False, is_last: bool = False, origin: Origin | None = None) -> None:
        self._told += 1
        self._needed = self._told
        if is_last:
            self._snapshot, self._whole = None, self._told
            self.is_mirrored, self.is_alone = True, False
        position, is_complete = self.disk.position, self.is_mirrored and not self._unsent
        if is_complete:
            self._complete.append((self._told, position))
        self._window.sent(self._told, size_of(batch))
        if not self._tell(Told(self._told, batch, is_first, is_last, position, is_complete, origin)):
            self.link_lost()

    def link_lost(self) -> None:
        """Forget the batches on their way to the standby, and the snapshot: they may not have arrived."""
        self._unsent.clear()
        self._complete.clear()
        self._window.forget()
        self._snapshot, self._is_asked_for_all, self.is_mirrored = None, False, False
        self._stored = self._told  # answers to what was told before prove nothing any more


def _batch_of(change: LetterChange) -> Batch:
    """Return the batch that changes the letters of a copy in the same way."""
    if change.redrive_ms is None:
        return Batch(letters_done=change.numbers)
    return Batch(letters_marked=[Mark(number, change.redrive_ms, change.ttl_ms) for number in change.numbers])


def disk_of_facts(facts: Mapping[str, str], top: int, parity: int) -> Disk:
    """Return what a file can prove by the facts in it; without any, it is a new disk. ``top`` is its highest number."""
    return Disk(facts, parity, secrets.token_hex(8), top)


class Replica:
    """The journal on standby: writes the batches of the active streamer in order, and confirms them.

    ``stored`` is called with each batch of the active streamer that is on disk. ``is_whole``: it has all waiting messages.
    ``disk`` is what the file can prove. ``is_void``: the file was salvaged, so it proves nothing any more, and a new replica
    is to replace this one.
    """

    def __init__(self, journal: Journal, disk: Disk, stored: Callable[[Told], object]) -> None:
        self.is_whole = False
        self.disk = disk
        self._journal = journal
        self._generation = journal.files_set_aside
        self._bounds = journal.bounds
        self._stored = stored
        self._waiting: deque[Told] = deque()
        self._named: dict[str, set[int]] | None = None  # the entries in the snapshot, while it is being told
        self._links = 0
        self._follows = False  # it has had the beginning
        self._origin = Origin()

    @property
    def is_void(self) -> bool:
        return self._journal.files_set_aside != self._generation

    def other_came(self) -> None:
        """Forget batches that are not written: a new link begins with a snapshot."""
        self._waiting.clear()
        self._named = None
        self.is_whole = self._follows = False
        self._links += 1

    def take(self, told: Told) -> None:
        """Write a batch after those before it. One that follows no beginning of a snapshot is ignored."""
        self._follows = self._follows or told.is_first
        if not self._follows:
            return
        self._waiting.append(told)
        self._write_next()

    def delete(self, batch: Batch) -> None:
        """Delete entries of this standby's own, after the batches that came before."""
        self._waiting.append(Told(0, batch))
        self._write_next()

    def _write_next(self) -> None:
        if self._journal.is_busy or not self._waiting or self.is_void:
            return
        told = self._waiting.popleft()
        batch = told.batch
        # During a snapshot letters have no bounds: letters that the active streamer has deleted must not evict new ones.
        self._journal.use(_UNBOUNDED if told.is_first or self._named is not None else self._bounds)
        if told.is_first:
            self.is_whole = False
            self._named = {"rows": set(), "segments": set(), "letters": set()}
            self._adopt(told, batch)
        if self._named is not None:
            for kind, numbers in self._named.items():
                numbers.update(entry.number for entry in getattr(batch, kind))
        if told.is_last and self._named is not None:
            kept = Kept(**self._named, parity=self.disk.parity, own_from=self.disk.given.below)
            batch, self._named = Batch(kept=kept), None
        if told.number:
            self.disk.saw(told.position, told.position if told.is_complete else None, self._origin.epoch)
        batch.facts = Facts(self._generation, self.disk.changed())
        self._journal.write(batch, partial(self._written, told, self._links))

    def _adopt(self, told: Told, batch: Batch) -> None:
        """Begin a snapshot: number entries anew of which it is not proved that the active streamer has had them."""
        self._origin = told.origin or Origin()
        self.disk.top = max(self.disk.top, self._journal.top)
        batch.renumbered = self.disk.copies(self._origin, told.position, secrets.token_hex(4))
        if batch.renumbered is not None and self._journal.bytes:
            logger.warning("pair_entries_adopted disk=%s consequence=%s", self._origin.disk, _ADOPTED)

    def _written(self, told: Told, link: int) -> None:
        if told.number and link == self._links and not self.is_void:  # else the number means something else by now
            self.is_whole = self.is_whole or told.is_last
            self._stored(told)
        self._write_next()
