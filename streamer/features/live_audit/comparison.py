"""Compares the rows of this streamer with those of others: which messages were lost, came twice, or are still open. Pure.

What a streamer sent towards this one is compared with what came in from there, and the other way round, by class and minute.
The law:

    equal      the same messages, or the difference is exactly what ended in order, or came again, on its way
    open       the other one has not reported, or somebody between holds messages, or the last row is not `WAIT_S` old
    lost       more was sent than came in, even without those
    twice      more came in than the only streamer that reports the class has sent
    unknown    different, and one of the two may not have all rows: some were lost, or it began, or this one began to
               forward the class, less than `SETTLE_S` before; or nobody reports the class

The minute is that of the ids: no clock is compared with another. Of streamers in a row, each is compared with this one.
Several that share a class are compared together.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, combinations
from typing import Any, Final, NamedTuple

from streamer.features.live_audit import sums
from streamer.features.live_audit.rows import read
from streamer.features.live_audit.sums import NOTHING, FlowClass, IdCipher, Row, Sum, add
from streamer.journal.moments import as_moment
from streamer.routing.interest import Interest, InterestObserver
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id

EQUAL, LOST, TWICE, UNKNOWN = VERDICTS = ("equal", "lost", "twice", "unknown")

QUIET_S: Final = 15.0  # from the last message of a minute until it is closed
WAIT_S: Final = 20.0  # from the last row about a minute until it is judged
SETTLE_S: Final = 150.0
UNREPORTED_S: Final = 600.0  # how long rows of a class are kept that no streamer reports
OPEN_S: Final = 86_400.0
MAX_ENTRIES: Final = 100_000  # classes, and their minutes that are not equal; beyond that the oldest are unknown
MAX_STREAMERS: Final = 10_000
_MAX_ENDED = 6  # sums that are combined to explain a difference

Key = tuple[FlowClass, int]


class AuditFinding(NamedTuple):
    """A verdict on the messages between this streamer and another one. ``was``: the one that it replaces, if any."""

    streamer: str
    flow: FlowClass
    minute: int
    verdict: str
    messages: int = 0
    message_id: bytes | None = None
    was: str = ""

    def shown(self) -> dict[str, str | int]:
        """Return the finding as the page and the log show it."""
        names = ("minute", "verdict", "messages", "streamer", "class", "id", "was")
        shown_id = "" if self.message_id is None else format_id(self.message_id)
        found = self.verdict, self.messages, self.streamer, str(self.flow), shown_id, self.was
        return dict(zip(names, (as_moment(self.minute * sums.MINUTE_MS), *found), strict=True))


@dataclass(slots=True)
class Reporter:
    """A streamer that sends rows. Differences in entries that began before ``sure_s`` are unknown."""

    run: int
    number: int
    sure_s: float
    heard_s: float = 0.0
    endpoints: Collection[str] = ()


@dataclass(slots=True)
class _Entry:
    """One class and minute: our sums by endpoint and kind, those of others by kind, and in which run (0: in several)."""

    began_s: float
    changed_s: float
    ours: dict[tuple[str, int], Sum] = field(default_factory=dict)
    theirs: dict[str, dict[int, Sum]] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    told: dict[str, AuditFinding] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """The number of messages, as the one says who has counted most."""
        several = chain(self.ours.values(), *(each.values() for each in self.theirs.values()))
        return max((each.messages for each in several), default=0)

    def ours_at(self, endpoints: Collection[str], kind: int) -> Sum:
        """Return our sum of a kind at some endpoints."""
        return _total(each for (endpoint, of), each in self.ours.items() if of == kind and endpoint in endpoints)


class _Pair(NamedTuple):
    """This streamer and another one, or several that share a class: what was sent (up: to this one), and what came."""

    streamers: tuple[str, ...]
    is_up: bool
    sent: Sum
    came: Sum


class RowComparison(InterestObserver):
    """The minutes of classes that are not equal yet. ``counts``: messages by verdict; ``lost_rows``: messages with rows."""

    def __init__(self, cipher: IdCipher) -> None:
        self.counts = dict.fromkeys(VERDICTS, 0)
        self.lost_rows = 0
        self.streamers: OrderedDict[str, Reporter] = OrderedDict()
        self.entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._cipher = cipher
        self._due: dict[Key, None] = {}
        self._forwarded: OrderedDict[FlowClass, float] = OrderedDict()  # since when we have rows of a class
        self._reported: OrderedDict[FlowClass, set[str]] = OrderedDict()  # who has reported a class

    def changed(self) -> None:
        """Note that other messages may be forwarded from now on."""
        self._forwarded.clear()

    def interest_changed(self, topic: UUri, before: Mapping[str, int], is_new: bool) -> None:
        for flow in [flow for flow in self._forwarded if flow.resource and topic.matches(flow.topic)]:
            del self._forwarded[flow]

    def interest_used(self, interest: Interest) -> None:
        """Do nothing."""

    def ours(self, rows: Iterable[Row], now_s: float) -> None:
        """Take rows of this streamer."""
        for flow, minute, found in rows:
            self._forwarded.setdefault(flow, now_s)
            add(self._entry((flow, minute), now_s).ours, found)
        _shrink(self._forwarded, MAX_ENTRIES)

    def heard(self, streamer: str, endpoints: Collection[str], rows: pb.AuditRows, now_s: float, now_ms: int) -> None:
        """Take rows of another streamer, which lives behind ``endpoints`` (none: it is not compared). Raises IndexError."""
        run, number, parts = rows.run, rows.number, list(read(rows))
        reporter = self.streamers.pop(streamer, None)
        if reporter is None or reporter.run != run:
            reporter = Reporter(run, number - 1, now_s + SETTLE_S)
        self.streamers[streamer] = reporter
        _shrink(self.streamers, MAX_STREAMERS)
        reporter.heard_s, reporter.endpoints = now_s, endpoints
        if number <= reporter.number:
            return  # a copy
        if number > reporter.number + 1:
            self.lost_rows += number - reporter.number - 1
            reporter.sure_s = now_s + SETTLE_S
        reporter.number = number
        for flow, minute, found in parts:
            if abs(minute - now_ms // sums.MINUTE_MS) <= sums.DAY_MINUTES:
                entry = self._entry((flow, minute), now_s)
                add(entry.theirs.setdefault(streamer, {}), found)
                entry.runs[streamer] = run if entry.runs.get(streamer, run) == run else 0
                self._reported.setdefault(flow, set()).add(streamer)
        _shrink(self._reported, MAX_ENTRIES)

    def _entry(self, key: Key, now_s: float) -> _Entry:
        entry = self.entries.get(key)
        if entry is None:
            if len(self.entries) >= MAX_ENTRIES:
                self._end(next(iter(self.entries)), UNKNOWN)
            entry = self.entries[key] = _Entry(now_s, now_s)
        entry.changed_s = now_s
        self._due[key] = None
        return entry

    def judge(self, now_s: float) -> list[AuditFinding]:
        """Judge what has been quiet for long enough, and give up what has been open for too long. Called regularly."""
        due = [key for key in self._due if now_s - self.entries[key].changed_s >= WAIT_S]
        for key in due:
            del self._due[key]
        found = [finding for key in due for finding in self._judged(key)]
        for key, entry in list(self.entries.items()):
            age_s = now_s - entry.began_s
            if age_s < UNREPORTED_S:
                break
            if age_s >= OPEN_S or not (entry.theirs or key[0] in self._reported):
                self._end(key, UNKNOWN)
        return found

    def _end(self, key: Key, verdict: str) -> None:
        entry = self.entries.pop(key)
        self._due.pop(key, None)
        if verdict == EQUAL or all(each.verdict == EQUAL for each in entry.told.values()):
            self.counts[verdict] += entry.messages

    def _judged(self, key: Key) -> list[AuditFinding]:
        """Return what is new about an entry. One that is equal ends, as does one of a class that is not forwarded here."""
        entry = self.entries[key]
        if key[0] not in self._forwarded and not entry.ours:
            del self.entries[key]
            return []
        findings: list[AuditFinding] = []
        pairs = [self._pair(entry, streamer) for streamer in self._compared(key, entry)]
        if len(ups := [pair for pair in pairs if pair.is_up]) > 1:
            streamers = tuple(name for pair in ups for name in pair.streamers)
            together = _Pair(streamers, True, _total(pair.sent for pair in ups), ups[0].came)
            if self._explained(entry, together) or all(pair.sent.messages < pair.came.messages for pair in ups):
                pairs = [together, *(pair for pair in pairs if not pair.is_up)]
        verdicts = [self._verdict(key, entry, pair, is_only=len(pairs) == 1) for pair in pairs]
        for found in filter(None, verdicts):
            before = entry.told.get(found.streamer, found._replace(verdict=""))
            if before.verdict != found.verdict or before.messages != found.messages:
                entry.told[found.streamer] = found
                self.counts[found.verdict] += found.messages
                if found.verdict != EQUAL or before.verdict:
                    findings.append(found._replace(was=before.verdict))
        if pairs and all(found is not None and found.verdict == EQUAL for found in verdicts):
            self._end(key, EQUAL)
        return findings

    def _compared(self, key: Key, entry: _Entry) -> list[str]:
        """Return the streamers with which an entry can be compared: also one that took in nothing of what was sent there."""
        known = {name for name, each in entry.theirs.items() if sums.DELIVERED in each or sums.TAKEN_IN in each}
        for name in self._reported.get(key[0], set()) - entry.theirs.keys():
            reporter = self.streamers.get(name)
            if reporter is not None and entry.ours_at(reporter.endpoints, sums.DELIVERED).messages:
                if reporter.heard_s - entry.changed_s >= WAIT_S:
                    known.add(name)
                else:
                    self._due[key] = None  # until it is heard of
        return sorted(name for name in known if name in self.streamers and self.streamers[name].endpoints)

    def _pair(self, entry: _Entry, streamer: str) -> _Pair:
        theirs, endpoints = entry.theirs.get(streamer, {}), self.streamers[streamer].endpoints
        if sums.DELIVERED in theirs:
            came = _total(each for (_, kind), each in entry.ours.items() if kind == sums.TAKEN_IN)
            return _Pair((streamer,), True, theirs[sums.DELIVERED], came)
        return _Pair((streamer,), False, entry.ours_at(endpoints, sums.DELIVERED), theirs.get(sums.TAKEN_IN, NOTHING))

    def _verdict(self, key: Key, entry: _Entry, pair: _Pair, is_only: bool) -> AuditFinding | None:
        """Return the verdict on two streamers; None: open."""
        found = AuditFinding(" ".join(pair.streamers), *key, EQUAL)
        if self._explained(entry, pair):
            return found
        difference, ended = pair.sent.minus(pair.came), self._ended(entry, pair)
        excused = sum(each.messages for each in ended if each.messages > 0)
        held = sum(held for _, held in self._between(entry, pair))
        if held and 0 < difference.messages <= excused + held:
            return None
        sure_s = [self.streamers[name].sure_s for name in pair.streamers]
        found = found._replace(verdict=UNKNOWN, messages=abs(difference.messages) or 1)
        if entry.began_s < max(self._forwarded.get(key[0], float("inf")) + SETTLE_S, *sure_s):
            return found
        for each in _combined(ended):
            left = difference.minus(each)
            message_id = self._cipher.id_in(left, key[1])
            if message_id is not None and (left.messages > 0 or is_only):
                return found._replace(verdict=LOST if left.messages > 0 else TWICE, messages=1, message_id=message_id)
        if difference.messages > excused + held:
            return found._replace(verdict=LOST, messages=difference.messages - excused - held)
        if difference.messages == 0 and not excused:
            return found._replace(verdict=LOST)  # at least one, and as many came twice, or came another way
        return found._replace(verdict=TWICE) if is_only and -difference.messages > excused else found

    def _explained(self, entry: _Entry, pair: _Pair) -> bool:
        """Return whether the same messages came in, but for those that are accounted for."""
        difference = pair.sent.minus(pair.came)
        return any(difference == each for each in _combined(self._ended(entry, pair)))

    def _ended(self, entry: _Entry, pair: _Pair) -> list[Sum]:
        """Return what was sent and never counted as taken in: what ended in order where it came in, or between the two.

        What the sender itself has given up may have been counted as sent or not: with both signs.
        """
        theirs = [entry.theirs.get(name, {}) for name in pair.streamers]
        endpoints = {endpoint for name in pair.streamers for endpoint in self.streamers[name].endpoints}
        elsewhere = {endpoint for endpoint, _ in entry.ours} - endpoints
        ours = [entry.ours_at(endpoints, kind) for kind in sums.ENDED]
        reported = [_total(each.get(kind, NOTHING) for each in theirs) for kind in sums.ENDED]
        found = [*ours, entry.ours_at(elsewhere, sums.REJECTED)] if pair.is_up else reported
        given_up = (reported if pair.is_up else ours)[-1]
        found += [given_up, NOTHING.minus(given_up), *(ended for ended, _ in self._between(entry, pair))]
        return [each for each in found if each != NOTHING][:_MAX_ENDED]

    def _between(self, entry: _Entry, pair: _Pair) -> Iterator[tuple[Sum, int]]:
        """Yield what each streamer between the two has ended, and how many messages it holds: unknown after a restart."""
        came, went = (
            (sums.AWAY + sums.TAKEN_IN, sums.DELIVERED) if pair.is_up else (sums.TAKEN_IN, sums.AWAY + sums.DELIVERED)
        )
        for name in entry.theirs.keys() - pair.streamers:
            theirs, reporter = entry.theirs[name], self.streamers.get(name)
            taken = theirs.get(came, NOTHING)
            if taken.messages and (
                taken.messages <= pair.sent.messages if pair.is_up else taken.messages >= pair.came.messages
            ):
                ended = {what: each for what, each in theirs.items() if what % sums.AWAY in sums.ENDED}
                gone = _total(each for what, each in ended.items() if what // sums.AWAY == went // sums.AWAY)
                held = taken.minus(theirs.get(went, NOTHING)).minus(gone).messages
                is_same = reporter is not None and entry.runs[name] == reporter.run
                yield _total(ended.values()), max(0, held) if is_same else 0


def _combined(several: Sequence[Sum]) -> Iterator[Sum]:
    """Yield the total of each choice among some sums, none of them first."""
    return (_total(chosen) for number in range(len(several) + 1) for chosen in combinations(several, number))


def _total(several: Iterable[Sum]) -> Sum:
    return reduce(Sum.plus, several, NOTHING)


def _shrink(entries: OrderedDict[Any, Any], most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)
