"""Judges flows by their *kind*: those that are alike in all but the names of their streamers are judged once. Pure.

A fleet has more flows than gateways, and few kinds of them. A kind has numbers for names, in their order; and of how many
messages there are, what `verdict` can compare. A message that left a streamer by two egresses at once is judged by where
other flows prove that these lead: there the proofs belong to the kind, too.
"""

import datetime as dt
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from spark_jobs.clocks import ClockEstimate
from spark_jobs.verdict import Leads, Sighting, Signature, Trust, Verdict, judge, judge_crowded, leads, rank, rank_crowded
from spark_jobs.wide import Shown

_seen = attrgetter(
    "route", "egress", "address", "outcome", "ucode", "ingress_transport", "egress_transport", "times", "places"
)


class FlowVerdict(NamedTuple):
    """`extra`: of each message, copies that were delivered again over the same way; `aside`: those that were set aside."""

    date: dt.date
    flow: int
    source: str | None
    sink: str | None
    type: str
    extra: int
    aside: int
    verdict: Verdict


class _Kind:
    """Flows in which all is alike that the verdicts depend on. `trust`: see `verdict.rank`."""

    def __init__(self, first: Shown, trust: Trust, weights: Sequence[int], seen: Sequence[Sequence[Shown]]) -> None:
        self.copies = [_copies(of_message) for of_message in seen]
        self._signatures = [Signature(place, weights[place], _sightings(of)) for place, of in enumerate(seen)]
        self._is_crowded, self._is_publish = first.src_authority is None, first.sink_authority is None
        ranked = rank_crowded(self._signatures) if self._is_crowded else rank(self._signatures, first.src_authority, trust)
        self._order = ranked
        self.leads = set[Leads]() if self._is_crowded else leads(self._signatures, ranked)
        sightings = [each.sightings for each in self._signatures]
        ways = [{(at.streamer, at.egress) for at in each if at.outcome == "delivered"} for each in sightings]
        ends = [Counter(streamer for streamer, _ in of_message) for of_message in ways]
        self.parting = {streamer for each in ends for streamer, several in each.items() if several > 1}
        """The streamers that a message left by several egresses."""
        self._judged: dict[frozenset[Leads], list[Verdict]] = {}

    def verdicts(self, proven: frozenset[Leads]) -> list[Verdict]:
        """One for each signature. `proven`: see `verdict.judge`."""
        if proven not in self._judged:
            about = self._signatures, self._order
            self._judged[proven] = judge_crowded(*about) if self._is_crowded else judge(*about, self._is_publish, proven)
        return self._judged[proven]


class _Flow(NamedTuple):
    """`names`: of its streamers. `keys`: of its signatures, in the order of the kind."""

    about: tuple[Any, ...]
    names: tuple[str, ...]
    keys: tuple[int, ...]
    kind: _Kind


def judged(shown: Iterable[Shown], clock: Mapping[dt.date, Mapping[str, ClockEstimate]]) -> Iterator[FlowVerdict]:
    """The verdict on each signature. `shown`: the records of its example; those of a flow follow each other."""
    kinds: dict[Any, _Kind] = {}
    flows = [_flow(list(rows), clock, kinds) for _, rows in groupby(shown, attrgetter("flow"))]
    parting = {(each.about[0], each.names[int(place)]) for each in flows for place in each.kind.parting}
    proven: dict[tuple[dt.date, str], set[Leads]] = defaultdict(set)
    for date, names, leading in ((each.about[0], each.names, each.kind.leads) for each in flows if parting):
        for x, egress, y in leading:
            if (at := (date, names[int(x)])) in parting:
                proven[at].add((at[1], egress, names[int(y)]))
    for (date, *about), names, keys, kind in flows:
        place = _places(names)
        here = {each for at in kind.parting for each in proven[date, names[int(at)]] if each[2] in place}
        verdicts = kind.verdicts(frozenset((place[x], egress, place[y]) for x, egress, y in here))
        for key, copies, verdict in zip(keys, kind.copies, verdicts, strict=True):
            yield FlowVerdict._make((date, *about, *copies, _named(verdict, key, names)))


def _places(names: Sequence[str]) -> dict[str, str]:
    return {name: f"{number:09}" for number, name in enumerate(names)}  # the texts are in the order of the names, too


def _flow(rows: Sequence[Shown], clock: Mapping[dt.date, Mapping[str, ClockEstimate]], kinds: dict[Any, _Kind]) -> _Flow:
    first = rows[0]
    names = tuple(sorted({name for row in rows for name in (row.streamer, row.seen_at) if name is not None}))
    place = _places(names)
    of_message: dict[int, list[Shown]] = defaultdict(list)
    for row in sorted(rows, key=attrgetter("at_us")):
        of_message[row.id].append(row)
    found = []
    for of_id in of_message.values():
        times = {at_us: number for number, at_us in enumerate(dict.fromkeys(row.at_us for row in of_id))}
        seen = [(place[row.streamer], times[row.at_us], place.get(row.seen_at or ""), *_seen(row)) for row in of_id]
        found.append((tuple(sorted(seen, key=hash)), of_id))
    found.sort(key=lambda each: hash(each[0]))
    groups: dict[str, int] = {}
    own = [clock[first.date].get(name) for name in names]
    trusted = tuple(None if each is None else groups.setdefault(each.group, len(groups)) for each in own)
    weights = _weights([of_id[0].messages for _, of_id in found])
    source = place.get(first.src_authority or "", first.src_authority and "")
    key = (source, first.sink_authority is None, trusted, weights, *(seen for seen, _ in found))
    if (kind := kinds.get(key)) is None:

        def trust(x: str, y: str) -> bool:
            return trusted[int(x)] is not None and trusted[int(x)] == trusted[int(y)]

        def numbered(row: Shown) -> Shown:
            return row._replace(streamer=place[row.streamer], seen_at=place.get(row.seen_at or ""))

        alike = [list(map(numbered, of_id)) for _, of_id in found]
        kind = kinds[key] = _Kind(first._replace(src_authority=source), trust, weights, alike)
    about = (first.date, first.flow, first.src_authority, first.sink_authority, first.msg_type)
    return _Flow(about, names, tuple(of_id[0].signature for _, of_id in found), kind)


def _weights(messages: Sequence[int]) -> tuple[int, ...]:
    """Numbers whose sums compare as those of `messages`: the same ones if each of these is more than all smaller ones."""
    total = 0
    for each in sorted(messages):
        if each <= total:
            divisor = math.gcd(*messages)
            return tuple(each // divisor for each in messages)
        total += each
    return tuple(1 << sorted(messages).index(each) for each in messages)


def _named(verdict: Verdict, key: int, names: Sequence[str]) -> Verdict:
    def named(text: str) -> str:
        return ",".join(names[int(each)] for each in text.split(","))

    findings = tuple(
        each._replace(
            streamers=named(each.streamers),
            last_streamer=named(each.last_streamer),
            missing_at=named(each.missing_at) if each.missing_at else None,
        )
        for each in verdict.findings
    )
    missing = tuple(tuple(names[int(each)] for each in way) for way in verdict.missing_at)
    return Verdict(key, verdict.status, findings, missing)


def _sightings(records: Iterable[Shown]) -> tuple[Sighting, ...]:
    """Those of one message, in the order of corrected clocks. What was delivered again over the same way is there twice."""
    found = []
    for row in records:
        egress = row.egress if row.address is None else f"{row.egress} to {row.address}"
        ends = row.ingress_transport, row.egress_transport, row.seen_at
        found += [Sighting(row.streamer, row.route, egress, row.outcome, row.ucode, row.at_us, *ends)] * (
            1 + row.is_repeated
        )
    return tuple(sorted(found, key=attrgetter("at_us")))


def _copies(records: Sequence[Shown]) -> tuple[int, int]:
    """How many copies were delivered again over the same way, and how many were set aside."""
    delivered: Counter[tuple[Any, ...]] = Counter()
    extra = 0
    for row in records:
        if row.outcome != "delivered":
            continue
        if row.places is None:
            delivered[row.streamer, row.route, row.egress, row.address, row.ucode] += row.times
        else:
            extra += row.times - row.places
    aside = sum(row.times for row in records if row.outcome == "duplicate")
    return extra + sum(times - 1 for times in delivered.values()), aside
