"""Which entries one disk proves to another: whatever becomes of disks, what nobody has settled is not deleted."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.features.pair.disk import EVERYTHING, NO_CLAIM, CopyClaim, Disk, Origin
from streamer.journal.entries import Renumbering
from tests.examples import examples


@dataclass
class Files:
    """What is on a disk: entries by number, the facts, and the highest number that there is."""

    entries: dict[int, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "Files":
        return replace(self, entries=dict(self.entries), facts=dict(self.facts))

    def renumber(self, wanted: Renumbering) -> None:
        chosen = []
        for number in sorted(self.entries):
            first = (wanted.even_from, wanted.odd_from)[number % 2]
            if first is not None and number >= first:
                chosen.append(number)
        messages = [self.entries.pop(number) for number in chosen]
        assert wanted.first > max(self.entries, default=0)
        self.entries |= {wanted.first + 2 * at: message for at, message in enumerate(messages)}


class Side:
    """One of a pair: its files, and what its process knows."""

    def __init__(self, parity: int) -> None:
        self.parity = parity
        self.files = Files()
        self.backup = Files()
        self.seen: set[int] = set()
        self.numbered: list[int] = []  # numbers that were given, and not written yet
        self._names = 0
        self.start()

    def start(self) -> None:
        self._names += 1
        name = f"{self.parity}-{self._names}-{random.getrandbits(60)}"
        self.disk = Disk(self.files.facts, self.parity, name, max(self.files.entries, default=0))
        self.numbered = []
        self.beyond: list[tuple[int, int]] = []
        self.is_active = False

    def work(self, epoch: int) -> None:
        self.start()
        self.is_active = True
        self.disk.begin_run(f"run-{random.getrandbits(60)}", epoch, self.disk.top + 1)
        self.write_facts()
        top = self.disk.top + 1
        self.numbered = [top + at for at in range(400) if (top + at) % 2 == self.parity]

    def write_facts(self) -> None:
        self.files.facts |= self.disk.changed()


class Pair:
    """Two sides, as the active one's journal and the standby's replica use them."""

    def __init__(self, chosen: random.Random) -> None:
        self.sides = [Side(0), Side(1)]
        self.chosen = chosen
        self.messages = 0
        self.epoch = 0
        self.settled: set[int] = set()
        self.is_linked = False
        self.offered = 0

    @property
    def active(self) -> Side | None:
        return next((side for side in self.sides if side.is_active), None)

    def other_than(self, side: Side) -> Side:
        return self.sides[1 - side.parity]

    def waiting(self) -> set[int]:
        there = {message for side in self.sides for message in side.files.entries.values()}
        return there - self.settled

    def act(self, what: str) -> None:
        before = self.waiting()
        verb, *names = what.split()
        side = self.sides[int(names[0])] if names else self.sides[0]
        getattr(self, verb)(side)
        if verb not in ("wipe", "salvage", "restore"):
            assert before <= self.waiting() | self.settled, what
        active = self.active
        if active is not None and self.is_linked:
            copy = set(self.other_than(active).files.entries.values())
            assert set(active.files.entries.values()) <= copy, what
            assert self.waiting() <= set(active.files.entries.values()), what

    def work(self, side: Side) -> None:
        """A side takes over, alone; the other one is down."""
        self.crash(side)
        self.epoch += 1
        side.work(self.epoch)
        side.seen = set(side.files.entries.values())

    def crash(self, _: Side) -> None:
        """Both processes end, in the middle of nothing."""
        self.is_linked = False
        for side in self.sides:
            side.start()

    def write(self, _: Side) -> None:
        self._write(here=True, there=self.is_linked)

    def tear(self, _: Side) -> None:
        """Both lose power while a transaction is on one of the disks only."""
        here = self.chosen.random() < 0.5
        self._write(here=here, there=self.is_linked and not here)
        self.crash(self.sides[0])

    def _write(self, here: bool, there: bool) -> None:
        side = self.active
        if side is None:
            return
        disk, other = side.disk, self.other_than(side)
        gone = [number for number in side.files.entries if self.chosen.random() < 0.3]
        new: dict[int, int] = {}
        for _ in range(self.chosen.randrange(3)):
            self.messages += 1
            new[side.numbered.pop(self.chosen.randrange(min(3, len(side.numbered))))] = self.messages
        disk.wrote(max(new, default=0))
        if new:
            side.beyond.append((disk.position, min(new)))
            disk.lower(min(new))
        facts = disk.changed()
        for number in gone:
            self.settled.add(side.files.entries[number])
        if here:
            side.files.facts |= facts
            self._change(side.files, gone, new)
            side.seen |= set(new.values())
        if there:
            other.disk.saw(disk.position, disk.position, disk.runs[-1].epoch)
            other.write_facts()
            self._change(other.files, gone, new)
            side.beyond = []
            disk.given_to(other.disk.name, disk.position)

    def _change(self, files: Files, gone: list[int], new: dict[int, int]) -> None:
        for number in gone:
            files.entries.pop(number, None)
        files.entries |= new

    def cut(self, _: Side) -> None:
        self.is_linked = False

    def link(self, _: Side) -> None:
        """The other one is on standby, copies everything, and hands over what it alone has."""
        side = self.active
        if side is None:
            return
        other, disk = self.other_than(side), side.disk
        other.start()
        adopted = other.disk.copies(disk.origin(other.disk.claim), disk.position, f"run-{random.getrandbits(60)}")
        if adopted is not None:
            other.files.renumber(adopted)
        other.disk.saw(disk.position, None, disk.runs[-1].epoch)
        other.write_facts()
        named = dict(side.files.entries)
        if self.chosen.random() < 0.2:  # it breaks in the middle
            some = self.chosen.sample(sorted(named), len(named) // 2)
            other.files.entries |= {number: named[number] for number in some}
            self.is_linked = False
            return
        other.files.entries |= named
        for number in [number for number in other.files.entries if number not in named and not other.disk.is_own(number)]:
            del other.files.entries[number]
        other.disk.saw(disk.position, disk.position, disk.runs[-1].epoch)
        other.write_facts()
        disk.given_to(other.disk.name, disk.position)
        if (granted := other.disk.granted()).disk:
            disk.claim = granted
        side.beyond = []
        self.is_linked = True
        for number, message in sorted(other.files.entries.items()):
            if number not in named:
                self.offered += 1
                if message not in side.seen and message not in self.settled:
                    fresh = side.numbered.pop(0)
                    disk.wrote(fresh)
                    disk.lower(fresh)
                    side.files.facts |= disk.changed()
                    side.files.entries[fresh] = message
                    other.disk.saw(disk.position, disk.position, disk.runs[-1].epoch)
                    other.files.entries[fresh] = message
                    other.write_facts()
                    disk.given_to(other.disk.name, disk.position)
                    side.seen.add(message)
                elif message not in side.files.entries.values():
                    self.settled.add(message)
                del other.files.entries[number]

    def save(self, side: Side) -> None:
        side.backup = side.files.copy()

    def restore(self, side: Side) -> None:
        self.crash(side)
        side.files = side.backup.copy()
        side.start()

    def wipe(self, side: Side) -> None:
        self.crash(side)
        side.files = Files()
        side.start()

    def salvage(self, side: Side) -> None:
        self.crash(side)
        kept = {number: message for number, message in side.files.entries.items() if self.chosen.random() < 0.7}
        side.files = Files(kept)
        side.start()


DISASTERS = [f"{verb} {name}" for verb in ("restore", "wipe", "salvage") for name in "01"]
EVERYDAY = ["write", "write", "link", "cut", "crash", "tear", "save 0", "save 1"]
episodes = st.tuples(
    st.sampled_from(["work 0", "work 1"]),
    st.sampled_from(["link", "write"]),
    st.lists(st.sampled_from(EVERYDAY), max_size=5),
    st.lists(st.sampled_from([*DISASTERS, "crash", "tear"]), max_size=2),
    st.sampled_from(["work 0", "work 1"]),
    st.lists(st.sampled_from(EVERYDAY), max_size=3),
    st.just("link"),
)


def flat(acts: object) -> Iterator[str]:
    if isinstance(acts, str):
        yield acts
    elif isinstance(acts, list | tuple):
        for each in acts:
            yield from flat(each)


@given(st.lists(episodes, min_size=1, max_size=5), st.integers(0, 10_000))
@settings(max_examples=examples(1500))
def test_whatever_becomes_of_disks_only_what_is_settled_is_deleted(history: object, seed: int) -> None:
    pair = Pair(random.Random(seed))
    for act in flat(history):
        pair.act(act)


@pytest.mark.parametrize(
    ("seed", "acts"),
    [
        # A disk gets back, as a copy, entries with numbers of its own that a power failure took from it.
        (
            0,
            "work 0, write, work 0, link, work 0, link, work 0, write, link, work 0, write, work 1, link, save 0, tear,"
            " work 0, link, restore 0, work 0, link",
        ),
        # The same, and the copy breaks off in the middle.
        (
            8263,
            "work 0, write, crash, tear, cut, link, tear, work 0, link, write, write, link, work 1, write, cut, save 1,"
            " write, salvage 1, work 0, link, work 0, link, save 0, save 1, tear, tear, crash, work 1, cut, link, work 1,"
            " link, crash, tear, restore 1, work 1, save 0, write, link, link",
        ),
        # A claim as old as a copy that broke off comes back with a restored disk.
        (7038, "work 0, link, link, write, save 1, work 0, write, link, work 1, link, restore 1, work 1, link"),
    ],
)
def test_a_restored_disk_makes_no_claim_about_entries_that_came_after_it_was_saved(seed: int, acts: str) -> None:
    pair = Pair(random.Random(seed))
    for act in acts.split(", "):
        pair.act(act)


@given(
    st.lists(st.sampled_from(["write", "write", "link", "cut", "tear", "work 0", "work 1"]), max_size=30),
    st.integers(0, 999),
)
@settings(max_examples=examples(300))
def test_while_disks_are_sound_a_copy_that_was_whole_is_not_adopted(acts: list[str], seed: int) -> None:
    """What both have is not offered again after one of the two was killed and has come back."""
    pair = Pair(random.Random(seed))
    for act in ["work 0", "write", "link", "write", *acts]:
        pair.act(act)
    pair.act("work 1")
    pair.act("link")
    if not pair.is_linked:
        return
    pair.act("write")
    pair.act("write")
    pair.crash(pair.sides[0])  # and only the second one comes back at first
    pair.epoch += 1
    pair.sides[0].work(pair.epoch)
    before = pair.offered
    pair.act("link")
    assert pair.offered == before


def disk(position: int = 100, runs: int = 1) -> Disk:
    found = Disk({}, 0, "this", 0)
    for number in range(runs):
        found.begin_run(f"run{number}", number + 1, 1000 * number + 2)
        found.position += position
    return found


@pytest.mark.parametrize(
    ("claim", "below"),
    [
        (NO_CLAIM, 0),
        (CopyClaim("another", "run0", 50, 50), 0),
        (CopyClaim("this", "unknown", 50, 50), 0),
        (CopyClaim("this", "run0", 100), EVERYTHING),
        (CopyClaim("this", "run0", 101), 2),
        (CopyClaim("this", "run1", 200), EVERYTHING),
        (CopyClaim("this", "run1", 201), 1002),
    ],
)
def test_a_claim_is_proved_as_far_as_both_have_the_same_past(claim: CopyClaim, below: int) -> None:
    assert disk(runs=2).proves_below(claim) == below


@pytest.mark.parametrize(
    ("claim", "below"),
    [
        (NO_CLAIM, 0),
        (CopyClaim("another", "run0", 50, 50), 0),
        (CopyClaim("this", "run0", 50, -1), 0),
        (CopyClaim("this", "run0", 50, 50), 2),
        (CopyClaim("this", "run0", 100, 100), 1002),
        (CopyClaim("this", "run0", 130, 130), 1002),  # it has gone on, and so has this one
        (CopyClaim("this", "run1", 150, 150), 1002),
        (CopyClaim("this", "run1", 170, 170), 1500),
        (CopyClaim("this", "run1", 200, 200), EVERYTHING),
        (CopyClaim("this", "run1", 201, 201), EVERYTHING),  # a kill between two disks
    ],
)
def test_what_another_disk_has_is_known_by_its_claim(claim: CopyClaim, below: int) -> None:
    found = disk(runs=2)
    found.given_to("other", 160)
    found.lower(1500)
    assert found.shared_below(claim, "other") == below


def test_facts_that_cannot_be_read_are_those_of_a_new_disk() -> None:
    facts = disk().changed()
    assert Disk(facts, 0, "new", 7).name == "this"
    for name in facts:
        assert Disk(facts | {name: "{"}, 0, "new", 7).name == "new"
        assert Disk({key: value for key, value in facts.items() if key != name}, 0, "new", 7).runs == []


def test_facts_are_what_was_written_last() -> None:
    found = disk(runs=70)
    facts = found.changed()
    assert found.changed() == {}
    found.wrote(5000)
    facts |= found.changed()
    again = Disk(facts, 0, "new", 0)
    assert (again.position, again.top, again.runs, len(again.runs)) == (7001, 5000, found.runs, 64)
    assert again.shared_below(CopyClaim("this", "run69", 100, 100), "other") == 0  # of a run that is forgotten
    found.restate()
    assert found.changed() == facts


def test_the_later_one_has_worked_or_copied_last() -> None:
    worked, copied, empty = disk(runs=2), Disk({}, 1, "that", 0), Disk({}, 1, "new", 0)
    copied.copies(worked.origin(copied.claim), worked.position, "adopted")
    assert copied.content < worked.content
    copied.saw(150, 150, 2)
    assert empty.content < disk().content < copied.content < worked.content
    copied.saw(200, 200, 2)
    assert copied.content == worked.content


def test_what_an_earlier_version_names_proves_nothing() -> None:
    found = Disk({}, 1, "this", 40)
    assert found.copies(Origin(), 0, "adopted") == Renumbering(0, 0, 41)
    found.saw(0, 0, 0)
    assert found.claim == CopyClaim()
    assert found.is_own(43)
    assert not found.is_own(42)


def test_one_that_has_lost_more_than_a_kill_interrupts_is_behind() -> None:
    found = disk(runs=2)
    assert [found.is_behind(CopyClaim("this", "run0", seen)) for seen in (50, 100, 101, 102)] == [False, False, False, True]
    assert [found.is_behind(CopyClaim("this", "run1", seen)) for seen in (200, 201, 202)] == [False, False, True]
    assert not found.is_behind(CopyClaim("another", "run0", 900))
