"""Prove from the facts on a disk which entries it has had, and which the peer's disk has had. Pure.

No entry is deleted on standby only because the active streamer does not name it: the active streamer has to prove that its
disk has had it. The law of this file:

- A disk has a random name, which goes with its journal: a new or salvaged journal has another one. Its *position* counts
  the transactions that it has written as the active one. A *run* begins when it becomes active, or adopts entries. All
  entries of a run have higher numbers than those before it. A disk that was restored from an older copy begins its next run
  at an earlier position, so the others' claims about what is lost are recognized (as by Kafka's leader epochs).
- The standby has a *claim* in its journal, written in the transactions that copy: of which disk and run, up to which
  position it has seen any entry, and up to which it has all. If its folder is restored, so is the claim.
- The active one checks the claim against its own runs. It says below which number all of its entries that the standby has
  were on its own disk, too: `Disk.proves_below`. If it does not name one of these, it has settled it.
- A standby whose disk lacks transactions that the active one has seen of it gets their entries back as a copy, with numbers
  of its own. With the beginning of that copy it forgets its earlier runs, for no claim about them covers such entries.
- Its own claim about the standby's disk says below which number the entries of the standby are known to it, too:
  `Disk.shared_below`. It is renewed when the standby has copied everything: `Disk.granted`.
- The standby *adopts* everything else before it copies: such entries get new numbers of the standby's own, above all
  others. They are offered to the active one after the copy (`streamer.features.pair.handing`).
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from streamer.journal.entries import Renumbering

EVERYTHING = 1 << 62
"""Above the number of any entry."""

_MOST_RUNS = 64
_DISK, _RUNS, _AT, _CLAIM, _GIVEN = ("pair.disk", "pair.runs", "pair.at", "pair.claim", "pair.given")


class Run(NamedTuple):
    """A run of a disk. It began at a position, in an epoch; its entries have numbers from ``first`` on."""

    name: str
    position: int
    first: int
    epoch: int


class CopyClaim(NamedTuple):
    """The claim of one disk to a copy of another, which was in a run then (empty: no copy).

    The copy has no entries after the position ``seen``, and has all up to the position ``has`` (-1: it is not complete).
    """

    disk: str = ""
    run: str = ""
    seen: int = 0
    has: int = -1
    epoch: int = 0


NO_CLAIM = CopyClaim()


class Given(NamedTuple):
    """The copy of this disk on another: all entries written up to a position, with numbers below ``below``.

    ``is_copying``: this disk has only copied from the other disk since. Claims about runs before ``run`` are older.
    """

    disk: str = ""
    position: int = 0
    below: int = 0
    is_copying: bool = False
    run: str = ""


class Origin(NamedTuple):
    """The facts of the active streamer's disk that begin a snapshot.

    ``claim`` is about the disk of the standby, ``top`` above all numbers of the active one. See `Disk.proves_below`.
    """

    disk: str = ""
    run: str = ""
    epoch: int = 0
    proves_below: int = 0
    claim: CopyClaim = NO_CLAIM
    top: int = 0


class Disk:
    """The facts of one journal. ``parity``: its own entries have even (0) or odd (1) numbers.

    Its owner writes `changed` with every transaction. ``top`` is at least the highest number in the file.
    """

    def __init__(self, facts: Mapping[str, str], parity: int, name: str, top: int) -> None:
        """``name`` is that of a new disk, one without facts."""
        self.parity = parity
        self.name = name
        self.position = 0
        self.top = top
        self.runs: list[Run] = []
        self.claim = NO_CLAIM
        self.given = Given()
        self._runs_text = json.dumps(self.runs)
        self._written: Mapping[str, str] = {}
        try:
            self._load(facts)
        except (KeyError, ValueError, TypeError):
            self.name, self.position, self.top = name, 0, top
            self.runs, self._runs_text, self.claim, self.given = [], "[]", NO_CLAIM, Given()

    def _load(self, facts: Mapping[str, str]) -> None:
        if not facts:
            return
        found: dict[str, Any] = {key: json.loads(facts[key]) for key in (_DISK, _RUNS, _AT, _CLAIM, _GIVEN)}
        self.name = str(found[_DISK])
        self.position, top = found[_AT]
        self.top = max(self.top, top)
        self.runs = [Run(*each) for each in found[_RUNS]]
        self._runs_text = facts[_RUNS]
        self.claim, self.given = CopyClaim(*found[_CLAIM]), Given(*found[_GIVEN])
        self._written = dict(facts)

    def changed(self) -> dict[str, str]:
        """Return the facts that have changed since the last call: to be written with the next transaction."""
        facts = {
            _DISK: json.dumps(self.name),
            _RUNS: self._runs_text,
            _AT: json.dumps((self.position, self.top)),
            _CLAIM: json.dumps(self.claim),
            _GIVEN: json.dumps(self.given),
        }
        changed = {key: value for key, value in facts.items() if self._written.get(key) != value}
        self._written = facts
        return changed

    def restate(self) -> None:
        """Have `changed` return all facts again, because those that it has returned were not written."""
        self._written = {}

    @property
    def content(self) -> tuple[int, int]:
        """Return the epoch and the position up to which the disk has everything; the higher, the later."""
        worked = self._epoch, self.position
        return max(worked, (self.claim.epoch, self.claim.has)) if self.claim.has >= 0 else worked

    @property
    def _epoch(self) -> int:
        """Return the highest epoch that the disk worked in."""
        return max((run.epoch for run in self.runs), default=0)

    # -- of the active one

    def begin_run(self, name: str, epoch: int, first: int) -> None:
        """Begin a run as the active streamer; ``first``: no new entry has a lower number."""
        self._keep([*self.runs, Run(name, self.position, first, epoch)])
        self.given = self.given._replace(below=min(self.given.below, first), is_copying=False)

    def raise_epoch(self, epoch: int) -> bool:
        """Note that the run goes on in an epoch. Return whether that epoch is higher."""
        run = self.runs[-1]
        if epoch <= run.epoch:
            return False
        self._keep([*self.runs[:-1], run._replace(epoch=epoch)])
        return True

    def proves_below(self, claim: CopyClaim) -> int:
        """Return the number below which this disk has had all of its own entries that a disk with a claim has seen."""
        found = self._find(claim)
        if found is None:
            return 0
        run, following = found
        end = self.position if following is None else following.position
        return EVERYTHING if claim.seen <= end else run.first

    def is_behind(self, claim: CopyClaim) -> bool:
        """Return whether a disk with a claim has entries that are lost here: more than a kill's interrupted transaction."""
        found = self._find(claim)
        return found is not None and claim.seen > (self.position if found[1] is None else found[1].position) + 1

    def origin(self, claim: CopyClaim) -> Origin:
        """Return the origin of a snapshot for a standby that makes a claim."""
        run = self.runs[-1]
        return Origin(self.name, run.name, run.epoch, self.proves_below(claim), self.claim, self.top)

    def wrote(self, highest: int) -> None:
        """Count a transaction; ``highest`` is the highest number in it."""
        self.position += 1
        self.top = max(self.top, highest)

    def given_to(self, disk: str, position: int) -> None:
        """Note that another disk has all entries up to a position."""
        self.given = Given(disk, position, EVERYTHING, run=self.runs[-1].name)

    def lower(self, lowest: int) -> None:
        """Note the lowest number that was written beyond the copy on the other disk."""
        if lowest < self.given.below:
            self.given = self.given._replace(below=lowest)

    # -- of the standby

    def copies(self, origin: Origin, position: int, run: str) -> Renumbering | None:
        """Begin to copy; return which entries are adopted with that. ``run`` is a new name, for the adopted ones."""
        proved_below = origin.proves_below if origin.disk and self.claim.disk == origin.disk else 0
        is_proved = proved_below == EVERYTHING
        if is_proved and self.given.is_copying and self.given.disk == origin.disk:
            own_from, below = EVERYTHING, self.given.below  # what this disk alone has was adopted before
        else:
            own_from = below = self.shared_below(origin.claim, origin.disk)
        # whether the active one has seen transactions of this disk that are not on it
        has_lost = origin.claim.disk == self.name and self.proves_below(origin.claim) < EVERYTHING
        adopted = None
        if own_from < EVERYTHING or not is_proved:
            below = max(self.top, origin.top) + 1
            below += below % 2 != self.parity
            even_from, odd_from = (own_from, proved_below)[:: -1 if self.parity else 1]
            adopted = Renumbering(_bound(even_from), _bound(odd_from), below)
            self._keep([*self.runs, Run(run, self.position, below, self._epoch)])
            self.position += 1
            self.top = below
        since = self.given.position if self.given.is_copying and self.given.disk == origin.disk else self._has(origin.claim)
        if has_lost:
            self._keep([Run(run, min(since, self.position), 0, self._epoch)])
        self.given = Given(origin.disk, since, below, is_copying=True, run=self.runs[-1].name if self.runs else "")
        if is_proved:
            self.claim = self.claim._replace(run=origin.run, seen=max(self.claim.seen, position))
        else:
            self.claim = CopyClaim(origin.disk, origin.run, position)
        return adopted

    def saw(self, position: int, has: int | None, epoch: int) -> None:
        """Count a copied transaction of the active streamer; ``has``: with it, all entries up to there are here."""
        if not self.claim.disk:
            return  # an earlier version says nothing of its disk
        claim = self.claim._replace(seen=max(self.claim.seen, position))
        self.claim = claim if has is None else claim._replace(has=has, epoch=epoch)

    def granted(self) -> CopyClaim:
        """Return the claim that the active one may make about this disk, once it was copied whole.

        All entries of the active streamer that it still has are here.
        """
        if not self.runs:
            return NO_CLAIM
        has = self.given.position if self.given.position <= self.position else -1
        return CopyClaim(self.name, self.runs[-1].name, self.position, has)

    def is_own(self, number: int) -> bool:
        """Return whether an entry is this disk's own, and the active streamer need not name it."""
        return number % 2 == self.parity and number >= self.given.below

    def shared_below(self, claim: CopyClaim, disk: str) -> int:
        """Return the number below which another disk with a claim has, or has had, all entries of this disk."""
        found = self._find(claim)
        if found is None or claim.has < 0:
            return 0
        _, following = found
        if claim.has > (self.position if following is None else following.position):
            return EVERYTHING if following is None else following.first  # it has transactions that this disk has lost
        if claim.has == self.position:
            return EVERYTHING
        if claim.has < self.runs[0].position:
            return 0  # the claim is about a run that is forgotten
        ends = [each.position for each in self.runs[1:]] + [self.position]
        below = next(run.first for run, end in zip(self.runs, ends, strict=True) if end > claim.has)
        names = [run.name for run in self.runs]
        is_older = self.given.run in names[names.index(claim.run) + 1 :]
        if self.given.disk == disk and claim.has >= self.given.position and not is_older:
            below = max(below, self.given.below)
        return below

    def _has(self, claim: CopyClaim) -> int:
        """Return the position of this disk up to which another disk has all entries; `EVERYTHING` if unknown."""
        return EVERYTHING if self._find(claim) is None or claim.has < 0 else min(claim.has, self.position)

    def _find(self, claim: CopyClaim) -> tuple[Run, Run | None] | None:
        """Return the run of a claim, and the run after it; None if the claim is not about this disk."""
        if claim.disk == self.name:
            for run, following in zip(self.runs, [*self.runs[1:], None], strict=True):
                if run.name == claim.run:
                    return run, following
        return None

    def _keep(self, runs: list[Run]) -> None:
        self.runs = runs[-_MOST_RUNS:]
        self._runs_text = json.dumps(self.runs)


def _bound(first: int) -> int | None:
    return None if first == EVERYTHING else first
