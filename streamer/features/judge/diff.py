"""Compares what two configurations do with the messages of flows: the same judgement twice, and what differs. Pure.

The law of this file:
- A consequence is about the meaning: where messages go, whether they are refused, in which class, how fast. Names of rules
  and routes are none.
- Consequences are gathered: flows with the same one are counted together, weighted with their messages a day.
- The order of everything is fixed, whatever the order of the flows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from streamer.config.models import Config
from streamer.config.types import RateConfig
from streamer.features.flow import Flow
from streamer.features.judge.changed import renamed_endpoints
from streamer.features.judge.judge import Judgement, Known, UnclearQuestionError, as_text, as_waiting, judge
from streamer.routing.interest import EVERY_MESSAGE
from streamer.routing.permissions import Permit
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at

_NOBODY: Mapping[str, int] = {}

EXAMPLES = 5
"""Flows that are named for each consequence."""


class Kind(StrEnum):
    """The effects of a change on a flow, the most serious ones first."""

    DENIED = "denied"
    UNROUTED = "unrouted"
    MOVED = "moved"
    CLASS = "class"
    PACED = "paced"
    TOKEN = "token"  # noqa: S105  # no password
    LEVEL = "level"
    TTL = "ttl"
    SAMPLED = "sampled"
    WAITING = "waiting"
    REASON = "reason"
    UNPACED = "unpaced"
    ALLOWED = "allowed"
    ROUTED = "routed"

    @property
    def words(self) -> str:
        return _WORDS[self]

    @property
    def is_loss(self) -> bool:
        """Whether messages that went somewhere go nowhere then, or are newly refused."""
        return self in (Kind.DENIED, Kind.UNROUTED)

    @property
    def is_opening(self) -> bool:
        """Whether something is possible then that nobody can do today, so that no message that was seen shows it."""
        return self in (Kind.ALLOWED, Kind.ROUTED)


_WORDS = {
    Kind.DENIED: "would be denied",
    Kind.UNROUTED: "would no longer go anywhere",
    Kind.MOVED: "would go elsewhere",
    Kind.CLASS: "would have another priority class",
    Kind.PACED: "would be paced",
    Kind.TOKEN: "would need a token",
    Kind.LEVEL: "would have another permission level",
    Kind.TTL: "would have another TTL",
    Kind.SAMPLED: "would be sampled otherwise",
    Kind.WAITING: "would wait otherwise",
    Kind.REASON: "would fail for another reason",
    Kind.UNPACED: "would be paced less",
    Kind.ALLOWED: "would now be allowed",
    Kind.ROUTED: "would now go somewhere",
}
_ORDER = {kind: number for number, kind in enumerate(Kind)}


class Side(NamedTuple):
    """One of two configurations, with what is known beside it."""

    config: Config
    known: Known


class Consequence(NamedTuple):
    """The difference for a flow. Flows with equal ones are gathered."""

    kind: Kind
    text: str


@dataclass
class Gathered:
    """Flows with the same consequence; ``examples`` are those with the most messages, most first."""

    flows: int = 0
    messages_per_day: float = 0.0
    examples: list[Flow] = field(default_factory=list)

    def add(self, flow: Flow) -> None:
        self.flows += 1
        self.messages_per_day += flow.messages_per_day
        self.examples = sorted((*self.examples, flow), key=_by_weight)[:EXAMPLES]


def _by_weight(flow: Flow) -> tuple[Any, ...]:
    return (
        -flow.messages_per_day,
        flow.kind,
        str(flow.source),
        str(flow.sink),
        flow.ingress,
        str(flow.identity),
        flow.priority,
    )


class Comparison:
    """Two configurations, and what differs for the flows that were added."""

    def __init__(self, before: Side, after: Side, only_openings: bool = False) -> None:
        self.before, self.after = before, after
        self._only_openings = only_openings
        self.flows = 0
        self.messages_per_day = 0.0
        self.guessed = 0
        """Flows whose identity is not known and matters: one that may speak for the source was assumed."""
        self.unjudged = 0
        """Flows that come in through an endpoint of neither configuration."""
        self._renamed = renamed_endpoints(before.config, after.config)
        self._found: dict[Consequence, Gathered] = {}

    def add(self, flow: Flow) -> None:
        """Judge a flow by both configurations."""
        self.flows += 1
        self.messages_per_day += flow.messages_per_day
        for consequence in self._consequences(flow):
            if self._only_openings and not consequence.kind.is_opening:
                continue
            self._found.setdefault(consequence, Gathered()).add(flow)

    @property
    def found(self) -> list[tuple[Consequence, Gathered]]:
        """Return the consequences, the most serious ones first, of these the ones with the most messages."""
        return sorted(
            self._found.items(),
            key=lambda each: (_ORDER[each[0].kind], -each[1].messages_per_day, -each[1].flows, each[0].text),
        )

    @property
    def kinds(self) -> set[Kind]:
        return {consequence.kind for consequence in self._found}

    def _consequences(self, flow: Flow) -> Iterator[Consequence]:
        before, after = self._judged(flow)
        if before is None and after is None:
            self.unjudged += 1
            return
        if after is None:
            if before is not None and before.hops:
                yield Consequence(Kind.UNROUTED, f"there is no endpoint {flow.ingress} to come in through")
            return
        if before is None:
            if after.hops:
                yield Consequence(Kind.ROUTED, f"endpoint {after.flow.ingress} is new: {_ends(_ways(after, {}))}")
            return
        if after.hops and before.hops:
            yield from self._of_both(before, after)
        elif before.hops:
            yield Consequence(Kind.DENIED if after.is_denied else Kind.UNROUTED, _reason(after))
        elif after.hops:
            yield Consequence(Kind.ALLOWED if before.is_denied else Kind.ROUTED, _ends(_ways(after, {})))
        elif after.is_denied and not before.is_denied:
            yield Consequence(Kind.DENIED, _reason(after))
        elif _code(before) != _code(after):
            yield Consequence(Kind.REASON, f"{_reason(after)}; before: {_reason(before)}")

    def _judged(self, flow: Flow) -> tuple[Judgement | None, Judgement | None]:
        """Return both judgements; None where the flow does not come in at all."""
        before_flow, after_flow = self._identified(flow)
        before = _judged(before_flow, self.before.known)
        interested = {} if before is None else interest_of(before, self.before.config)
        if interested:
            before = _judged(before_flow, self.before.known, interested)
        return before, _judged(after_flow, self.after.known, interested)

    def _identified(self, flow: Flow) -> tuple[Flow, Flow]:
        """Return the flow for each configuration: with its ingress as named there, and the identity that is proven there."""
        before, after = flow, flow._replace(ingress=self._renamed.get(flow.ingress, flow.ingress))
        was_proven, is_proven = _proves_identity(before, self.before), _proves_identity(after, self.after)
        if not was_proven and not flow.identity:  # no network has proven any, which says nothing about one that does
            before, after = before._replace(identity=None), after._replace(identity=None)
        if before.identity is None:
            before_ones = _speakers(before, self.before) if was_proven else ()
            after_ones = _speakers(after, self.after) if is_proven else ()
            if before_ones or after_ones:
                self.guessed += 1
                in_both = (name for name in before_ones if name in after_ones)
                identity = next(in_both, (*before_ones, *after_ones)[0])
                before, after = before._replace(identity=identity), after._replace(identity=identity)
        return (before if was_proven else before._replace(identity=""), after if is_proven else after._replace(identity=""))

    def _of_both(self, before: Judgement, after: Judgement) -> Iterator[Consequence]:
        """Yield what differs for a flow that goes somewhere before and after."""
        was, is_now = _ways(before, self._renamed), _ways(after, {})
        if was != is_now:
            yield Consequence(Kind.MOVED, _moved(was, is_now))
        if before.priority != after.priority:
            by = _by(before.permit, after.permit, "ceiling_by", after.priority < before.priority)
            yield Consequence(Kind.CLASS, f"{after.priority.name} instead of {before.priority.name}{by}")
        yield from self._pace(before, after)
        if _needs_token(after) and not _needs_token(before):
            yield Consequence(Kind.TOKEN, str(after.permit.demand) if after.permit is not None else "")
        if _needs_token(before) and not _needs_token(after):
            yield Consequence(Kind.ALLOWED, "without a token")
        if before.level != after.level:
            by = _by(before.permit, after.permit, "level_by", (after.level or 0) < (before.level or 0))
            yield Consequence(Kind.LEVEL, f"{_number(after.level)} instead of {_number(before.level)}{by}")
        clocks = [self._ttl_clock(side, each) for side, each in ((self.before, before), (self.after, after))]
        if clocks[0] != clocks[1] and after.flow.has_ttl is not False:
            words = {"id": "the creation time in their ids", "arrival": "their arrival here"}
            yield Consequence(
                Kind.TTL, f"at {after.flow.ingress} it counts from {words[clocks[1]]} instead of {words[clocks[0]]}"
            )
        if after.flow.kind is UMessageType.PUBLISH:
            yield from self._waiting(before, after)
        periods = {hop.route.target: hop.period_ms for hop in after.hops}
        for hop in before.hops:
            name = self._renamed.get(hop.route.target, hop.route.target)
            if periods.get(name, hop.period_ms) != hop.period_ms:
                yield Consequence(Kind.SAMPLED, f"to {name} {_period(periods[name])} instead of {_period(hop.period_ms)}")

    def _waiting(self, before: Judgement, after: Judgement) -> Iterator[Consequence]:
        """Yield where messages of a topic wait in another way: all of them, or only the latest."""
        then = {hop.route.target: as_waiting(hop.route.policy, after.flow.source) for hop in after.hops}
        for hop in before.hops:
            name = self._renamed.get(hop.route.target, hop.route.target)
            was = as_waiting(hop.route.policy, before.flow.source)
            if then.get(name, was) != was:
                yield Consequence(Kind.WAITING, f"to {name} {then[name]} instead of {was}")

    def _ttl_clock(self, side: Side, judgement: Judgement) -> str:
        return side.config.endpoints[judgement.flow.ingress].ttl_clock

    def _pace(self, before: Judgement, after: Judgement) -> Iterator[Consequence]:
        """Yield rates that differ: of the routes to the same endpoints, and of the permission rule."""
        targets = {hop.route.target: hop.route for hop in after.hops}
        found = dict[Consequence, None]()
        for hop in before.hops:
            name = self._renamed.get(hop.route.target, hop.route.target)
            if name in targets:
                route = targets[name]
                pairs = (
                    (f"route {route.name}", hop.route.policy.rate, route.policy.rate),
                    (
                        f"each source authority on route {route.name}",
                        hop.route.policy.rate_per_authority,
                        route.policy.rate_per_authority,
                    ),
                )
                for what, was, is_now in pairs:
                    found |= dict.fromkeys(_rate(what, was, is_now))
        was, is_now = (None if each.permit is None else each.permit.rate for each in (before, after))
        rule = after.permit.name if after.permit is not None else "no rule"
        found |= dict.fromkeys(_rate(f"{rule}, beyond it they are rejected", was, is_now))
        yield from found


def _proves_identity(flow: Flow, side: Side) -> bool:
    """Whether the network that a flow comes in through proves the identities of senders."""
    endpoint = side.config.endpoints.get(flow.ingress)
    return endpoint is not None and bool(endpoint.options.proves_identity)


def _speakers(flow: Flow, side: Side) -> tuple[str, ...]:
    permissions = side.known.table.permissions
    return () if permissions is None else permissions.speakers(flow.ingress, flow.source.authority)


def interest_of(judgement: Judgement, config: Config) -> dict[str, int]:
    """Return the authorities that must be interested in a Publish that went where nothing else leads it."""
    if judgement.flow.kind is not UMessageType.PUBLISH:
        return {}
    reached, endpoints = {hop.route.target for hop in judgement.hops}, config.endpoints
    missing = (name for name in judgement.flow.went_to if name not in reached and name in endpoints)
    return {authority: EVERY_MESSAGE for name in missing for authority in endpoints[name].authorities}


def _judged(flow: Flow, known: Known, interested: Mapping[str, int] = _NOBODY) -> Judgement | None:
    """Return the judgement of a flow; None if its endpoint does not exist there."""
    if flow.ingress and flow.ingress not in known.table.authorities:
        return None
    try:
        return judge(flow, known, interested)
    except UnclearQuestionError:  # a source without authority at an endpoint with several
        return None


Ways = frozenset[tuple[str, str]]
"""Endpoints, each with the authority to which a Publish is addressed there; empty: none, or that of the message."""


def _ways(judgement: Judgement, renamed: Mapping[str, str]) -> Ways:
    sink = judgement.flow.sink
    return frozenset((renamed.get(hop.route.target, hop.route.target), _addressed(hop.sink, sink)) for hop in judgement.hops)


def _addressed(sink: UUri | None, before: UUri | None) -> str:
    if sink == before:
        return ""
    return "nobody" if sink is None else sink.authority if sink == everything_at(sink.authority) else str(sink)


def _moved(was: Ways, is_now: Ways) -> str:
    gone, come = was - is_now, is_now - was
    if gone and come:
        return f"{_ends(come)} instead of {_ends(gone)}"
    return f"also {_ends(come)}" if come else f"no longer {_ends(gone)}"


def _ends(ways: Iterable[tuple[str, str]]) -> str:
    ends = (f"to {name}" + (f", addressed to {_anybody(sink)}" if sink else "") for name, sink in sorted(ways))
    return " and ".join(ends)


def _anybody(authority: str) -> str:
    return '"*"' if authority == ANY_AUTHORITY else authority


def _reason(judgement: Judgement) -> str:
    failure = judgement.failure
    assert failure is not None
    if not failure.is_reported:
        return _generally(failure.text, judgement)
    return f"{_generally(failure.text, judgement)} ({failure.code.name})"


def _generally(text: str, judgement: Judgement) -> str:
    """Return a reason without the addresses of this very flow, so that flows with the same one are counted together."""
    flow = judgement.flow
    for address, word in ((flow.source, "it"), (flow.sink, "its sink")):
        if address is not None:
            text = text.replace(str(address), word)
    return text


def _code(judgement: Judgement) -> tuple[str, str]:
    failure = judgement.failure
    assert failure is not None
    return failure.outcome.value, failure.code.name


def _by(before: Permit | None, after: Permit | None, key: str, is_lower: bool) -> str:
    """Return the place of the key that lowers a class or level now, or lowered it before."""
    permit = after if is_lower else before
    return "" if permit is None else f", {'' if is_lower else 'no longer '}lowered by {getattr(permit, key)}"


def _needs_token(judgement: Judgement) -> bool:
    permit = judgement.permit
    return permit is not None and permit.demand is not None and permit.demand.needs_token


def _number(level: int | None) -> str:
    return "none" if level is None else str(level)


def _period(period_ms: int) -> str:
    return f"at most one in {period_ms} ms" if period_ms else "every message"


def _rate(what: str, was: RateConfig | None, is_now: RateConfig | None) -> Iterator[Consequence]:
    if was == is_now:
        return
    text = f"{what}: {_limit(is_now)}; before: {_limit(was)}"
    yield Consequence(Kind.PACED if _is_slower(was, is_now) else Kind.UNPACED, text)


def _limit(rate: RateConfig | None) -> str:
    return "no limit" if rate is None else as_text(rate)


def _is_slower(was: RateConfig | None, is_now: RateConfig | None) -> bool:
    """Whether a limit is new or lower in some respect."""
    if is_now is None or was is None:
        return is_now is not None
    pairs = ((was.messages, is_now.messages), (was.bytes, is_now.bytes))
    return any(new is not None and (old is None or new < old) for old, new in pairs)
