"""Decides what became of messages, from the streamers that saw them. Pure: no Spark here.

Messages of one *flow* take the same way. Those of a flow that were seen by the same streamers with the same outcomes share a
*signature*, and therefore a verdict. The rules:

* A streamer is *expected* after a delivery by another one over an egress if some messages of the flow got there that way;
  for a Publish, half of them: a message from before a streamer subscribed is not lost.
* Only streamers that the kinds of networks can lead to are expected. Two streamers side by side do not hand over to each
  other.
* Delivered, and none of the expected streamers has it: lost. Delivered, and none is expected: it arrived.
* Seen before and after a streamer that other messages of the flow went through, but not by it: untraced.
* The status is the best result: arrived, otherwise lost, otherwise the outcome at the furthest streamer. A message with two
  destinations is delivered if one of them has it; the failure of the other is still a finding.
* A failure that the same streamer made good over the same egress (a redrive) is not a finding. In a broadcast (`wide`)
  it is, because which streamer has made it good is not known.
* A message of which only set-aside copies were recorded is delivered: the streamer had it before.

The order of the streamers comes from their clocks if these are known well enough; otherwise from the kinds of networks, if
only one can hand over to the other; from where messages stopped; and from who saw most, or if each of them lacks some, from
clocks that show one order in every message.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import NamedTuple

from spark_jobs.schema import FAILURES


class Sighting(NamedTuple):
    """One record of a message. Of several that are alike, two are enough.

    `egress` includes the authority that a copy of a Publish is for; `at_us` is by the corrected clock. The kind of a network
    is its transport; None is unknown and fits every kind. `seen_at`: which one it was of those for which `streamer` stands
    (`wide`).
    """

    streamer: str
    route: str
    egress: str | None
    outcome: str
    ucode: str
    at_us: int
    ingress_kind: str | None = None
    egress_kind: str | None = None
    seen_at: str | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """A number of messages with the same records; the times are those of one of them."""

    key: int
    messages: int
    sightings: tuple[Sighting, ...]

    @property
    def streamers(self) -> frozenset[str]:
        return frozenset(each.streamer for each in self.sightings)


class AuditFinding(NamedTuple):
    finding: str
    streamers: str
    last_streamer: str
    last_route: str
    missing_at: str | None
    ucode: str


@dataclass(frozen=True, slots=True)
class Verdict:
    key: int
    status: str
    findings: tuple[AuditFinding, ...]
    missing_at: tuple[tuple[str, ...], ...] = field(default=())
    """Of each hand-over, the streamers behind it, none of which has it. Lost if all records of that time are there."""


Trust = Callable[[str, str], bool]


Leads = tuple[str, str | None, str]
"""A streamer, an egress, and a streamer beyond that egress."""


def judge(
    signatures: Sequence[Signature], order: Mapping[str, int], is_publish: bool, proven: Set[Leads] = frozenset()
) -> list[Verdict]:
    """The verdict on each signature of one flow. `order`: see `rank`. `proven`: see `leads`, of all flows together."""
    expected = _expected(signatures, _beyond(signatures, order), order, is_publish, proven)
    return [_verdict(signature, order, expected) for signature in signatures]


def judge_crowded(signatures: Sequence[Signature], order: Mapping[str, int]) -> list[Verdict]:
    """The verdict on each signature of flows that are not told apart: nobody can say where their messages were expected."""
    return [_verdict(signature, order, {}) for signature in signatures]


def leads(signatures: Sequence[Signature], order: Mapping[str, int]) -> set[Leads]:
    """Where egresses are certain to lead: known from messages that left a streamer by one egress only."""
    proven: set[Leads] = set()
    possible = _beyond(signatures, order)
    for signature in signatures:
        ways = {(each.streamer, each.egress) for each in signature.sightings if each.outcome == "delivered"}
        left = Counter(streamer for streamer, _ in ways)
        proven.update((x, e, y) for x, e in ways if left[x] == 1 for y in signature.streamers if (x, e, y) in possible)
    return proven


def _beyond(signatures: Sequence[Signature], order: Mapping[str, int]) -> set[Leads]:
    """Which streamers can be behind each egress, directly or through others, by the kinds of the networks.

    A streamer receives the flow from where those messages come that it delivers. Copies may reach it from the other side.
    """
    every = [each for signature in signatures for each in signature.sightings]
    kinds: dict[tuple[str, str | None], set[str | None]] = defaultdict(set)
    passed: dict[str, set[str | None]] = defaultdict(set)
    other: dict[str, set[str | None]] = defaultdict(set)
    for each in every:
        if each.outcome == "delivered":
            kinds[each.streamer, each.egress].add(each.egress_kind)
        (passed if each.outcome == "delivered" else other)[each.streamer].add(each.ingress_kind)
    taken = other | passed
    beyond: dict[tuple[str, str | None], set[str]] = {}
    for x, egress in sorted(kinds, key=lambda way: order[way[0]], reverse=True):
        next_to = {y for y in taken if order[y] > order[x] and _fit(kinds[x, egress], taken[y])}
        beyond[x, egress] = next_to.union(*(far for (y, _), far in beyond.items() if y in next_to))
    return {(x, egress, y) for (x, egress), far in beyond.items() for y in far}


def _fit(left: Set[str | None], entered: Set[str | None]) -> bool:
    return None in left or None in entered or bool(left & entered)


def rank(signatures: Sequence[Signature], source: str | None, trust: Trust) -> dict[str, int]:
    """The place of each streamer on the way of a flow, from 0. `source`: its authority. `trust`: can clocks tell?"""
    later: Counter[tuple[str, str]] = Counter()
    stopped: Counter[tuple[str, str]] = Counter()
    alone: Counter[tuple[str, str]] = Counter()
    everyone = sorted({name for signature in signatures for name in signature.streamers})
    for signature in signatures:
        first: dict[str, int] = {}
        passed = {each.streamer for each in signature.sightings if each.outcome == "delivered"}
        for each in signature.sightings:
            first[each.streamer] = min(each.at_us, first.get(each.streamer, each.at_us))
        for x, at_us in first.items():
            for y in everyone:
                if y not in first:
                    alone[x, y] += signature.messages
                elif first[y] > at_us:
                    later[x, y] += signature.messages
                if y in first and y != x and y not in passed:
                    stopped[x, y] += signature.messages  # what stops at Y came from X
                elif y not in first and x not in passed:
                    stopped[x, y] += signature.messages  # what stops at X does not get to Y

    left, entered = _networks(signatures)

    def hands_over(x: str, y: str) -> bool:
        return _fit(left[x], entered[y]) and not _fit(left[y], entered[x])

    def compare(x: str, y: str) -> int:
        if source in (x, y):
            return -1 if source == x else 1
        if trust(x, y):
            evidence = [later, stopped, alone]
        elif hands_over(x, y) or hands_over(y, x):
            return -1 if hands_over(x, y) else 1
        else:
            # Both lack some: one of them by a gap in its traces, and their numbers do not tell which. Clocks that show one
            # order in every message do.
            has_gap = alone[x, y] and alone[y, x] and not (later[x, y] and later[y, x])
            evidence = [stopped, later, alone] if has_gap else [stopped, alone, later]
        for votes in evidence:
            if votes[x, y] != votes[y, x]:
                return -1 if votes[x, y] > votes[y, x] else 1
        return -1 if x < y else 1

    wins = {x: sum(compare(x, y) < 0 for y in everyone if y != x) for x in everyone}

    def place(x: str, y: str) -> int:
        return wins[y] - wins[x] or compare(x, y)

    return {name: number for number, name in enumerate(sorted(everyone, key=cmp_to_key(place)))}


def _networks(signatures: Iterable[Signature]) -> tuple[Mapping[str, set[str | None]], Mapping[str, set[str | None]]]:
    """The kinds of networks into which each streamer passed messages, and those from which it passed them."""
    left: dict[str, set[str | None]] = defaultdict(set)
    entered: dict[str, set[str | None]] = defaultdict(set)
    for each in (each for signature in signatures for each in signature.sightings):
        if each.outcome == "delivered":
            left[each.streamer].add(each.egress_kind)
            entered[each.streamer].add(each.ingress_kind)
    return left, entered


def rank_crowded(signatures: Iterable[Signature]) -> dict[str, int]:
    """A place for each streamer of flows that are not told apart, from 0: by its mean place in the messages."""
    places: dict[str, list[int]] = defaultdict(list)
    for signature in signatures:
        for place, name in enumerate(dict.fromkeys(each.streamer for each in signature.sightings)):
            places[name].append(place)
    ordered = sorted(places, key=lambda name: (sum(places[name]) / len(places[name]), name))
    return {name: number for number, name in enumerate(ordered)}


Expected = Mapping[tuple[str, str | None], list[str]]


def _expected(
    signatures: Iterable[Signature], beyond: Set[Leads], order: Mapping[str, int], is_publish: bool, proven: Set[Leads]
) -> Expected:
    """For each streamer and egress, the streamers that receive what is delivered there, nearest first.

    If a message left by two egresses, the one that is proven to lead to the other streamer counts.
    """
    handed: Counter[tuple[str, str | None]] = Counter()
    seen: dict[tuple[str, str | None], Counter[str]] = defaultdict(Counter)
    for signature in signatures:
        ways = {(each.streamer, each.egress) for each in signature.sightings if each.outcome == "delivered"}
        for streamer, egress in ways:
            handed[streamer, egress] += signature.messages
            for other in signature.streamers:
                elsewhere = any(x == streamer and e != egress and (x, e, other) in proven for x, e in ways)
                leading = (streamer, egress, other)
                if leading in beyond and (leading in proven or not elsewhere):
                    seen[streamer, egress][other] += signature.messages
    expected = {}
    for way, others in seen.items():
        enough = [name for name, messages in others.items() if not is_publish or 2 * messages >= handed[way]]
        expected[way] = sorted(enough, key=order.__getitem__)
    return expected


def _verdict(signature: Signature, order: Mapping[str, int], expected: Expected) -> Verdict:
    seen = sorted(signature.streamers, key=order.__getitem__)
    path = ",".join(seen)
    delivered = [each for each in signature.sightings if each.outcome == "delivered"]
    after = {(each.streamer, each.egress): expected.get((each.streamer, each.egress), []) for each in delivered}
    arrived = any(not others for others in after.values())
    lost = [each for each in delivered if after[each.streamer, each.egress] and not _any(after, each, seen)]
    lost.sort(key=lambda each: order[each.streamer])
    missing = tuple(dict.fromkeys(tuple(after[each.streamer, each.egress]) for each in lost))
    findings = []
    if lost:
        findings.append(_finding("lost", path, lost[-1], ",".join(dict.fromkeys(names[0] for names in missing))))
    made_good = {(each.seen_at or each.streamer, each.egress) for each in delivered}
    failed = [each for each in signature.sightings if each.outcome in FAILURES]
    failed = [each for each in failed if (each.seen_at or each.streamer, each.egress) not in made_good]
    failed.sort(key=lambda each: order[each.streamer])
    # of several failures of one kind, the furthest is shown
    findings += {each.outcome: _finding(each.outcome, path, each) for each in failed}.values()
    ways = Counter((each.streamer, each.route, each.egress) for each in delivered)
    if twice := [each for each in delivered if ways[each.streamer, each.route, each.egress] > 1]:
        findings.append(_finding("delivered_twice", path, twice[0]))
    if aside := [each for each in signature.sightings if each.outcome == "duplicate"]:
        findings.append(_finding("duplicate", path, aside[-1]))
    if untraced := _untraced(seen, order, after, expected):
        furthest = max(signature.sightings, key=lambda each: order[each.streamer])
        findings.append(_finding("untraced", path, furthest, ",".join(untraced)))
    others = [each for each in signature.sightings if each.outcome not in ("delivered", "duplicate")]
    others = failed or [each for each in others if each.outcome not in FAILURES]
    if arrived or not (lost or others):
        status = "delivered"
    elif lost:
        status = "lost"
    else:
        status = max(others, key=lambda each: order[each.streamer]).outcome
    return Verdict(signature.key, status, tuple(findings), missing)


def _any(after: Expected, each: Sighting, seen: Sequence[str]) -> bool:
    return any(name in seen for name in after[each.streamer, each.egress])


def _untraced(seen: Sequence[str], order: Mapping[str, int], after: Expected, expected: Expected) -> list[str]:
    """Streamers without a record between one that delivered it and one that saw it."""
    through: dict[str, set[str]] = defaultdict(set)
    for (streamer, _), others in expected.items():
        through[streamer].update(others)
    gaps = {name for others in after.values() for name in others if name not in seen}
    reached = {name for others in after.values() for name in others if name in seen}
    return sorted((name for name in gaps if through[name] & reached), key=order.__getitem__)


def _finding(name: str, path: str, at: Sighting, missing_at: str | None = None) -> AuditFinding:
    return AuditFinding(name, path, at.seen_at or at.streamer, at.route, missing_at, at.ucode)
