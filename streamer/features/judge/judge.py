"""Judges a flow: what a streamer does with its messages, by a routing table and the present interest. Pure.

`streamer explain`, `test` and `diff`, a careful reload and the API have this one judgement. It is made of what the router
uses: `decide`, the permit of a permission rule, and `declined`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from streamer.config.models import QueuePolicy
from streamer.config.types import RateConfig
from streamer.features.flow import Flow
from streamer.routing.decide import Decision, Hop, decide, declined
from streamer.routing.interest import Interest
from streamer.routing.outcome import Failure, Outcome
from streamer.routing.pause_rules import PauseRules
from streamer.routing.permissions import Permit
from streamer.routing.table import RoutingTable, TableRoute
from streamer.uprotocol.message import Attributes, UMessageType, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri
from streamer.uprotocol.uuid import new_id

_LOCAL_SOURCE = (
    "a source without authority is local to its network, whose topics or keys name it: "
    "it needs one, or an endpoint that lists a single authority as the place where it arrives"
)
_IN_ORDER = "all messages are kept in order"
_REQUEST_ID = new_id(0)
_TTL_MS = 1000
_NOBODY: Mapping[str, int] = {}


class UnclearQuestionError(ValueError):
    """The question is incomplete or wrong; the text says in what respect."""


class Known(NamedTuple):
    """The knowledge of a daemon about routing."""

    table: RoutingTable
    interest: Interest
    pause_rules: PauseRules


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement on a flow: ``hops``, or a ``failure``. ``why`` has one line for each rule that applied.

    ``flow`` has the ingress and the source's authority in any case. ``identity`` is the one by which it may come in, None
    where identities do not matter. ``permit`` is that of the rule that allows it. ``priority`` and ``level`` are the class
    and the permission level with which the messages go on.
    """

    flow: Flow
    hops: tuple[Hop, ...]
    failure: Failure | None
    why: tuple[str, ...]
    permit: Permit | None
    identity: str | None
    priority: UPriority
    level: int | None

    @property
    def is_denied(self) -> bool:
        """Whether it is refused, and its sender is told, or a dead letter made; not whether it is merely unwanted."""
        return self.failure is not None and self.failure.is_reported


def judge(flow: Flow, known: Known, also_interested: Mapping[str, int] = _NOBODY) -> Judgement:
    """Return what happens to the messages of a flow. Raises `UnclearQuestionError`.

    ``also_interested``: further authorities that are interested in its topic, each with its sample period in ms.
    """
    table = known.table
    flow = _located(flow, table)
    kind, source, sink, ingress = flow.kind, flow.source, flow.sink, flow.ingress
    attributes = _attributes(flow)
    identity = _identity(flow, table)
    if attributes.problems:
        decision = _rejected(attributes.problems)
    else:
        interested = {**also_interested, **known.interest.of(source)}
        decision = decide(kind, source, sink, ingress, table, interested, identity or None)
        decision = _as_claimed(decision, attributes)
    decision = _as_a_copy(decision, flow, table)
    lowered = list[str]()
    if decision.failure is None and decision.permit is not None:
        permit, claimed = decision.permit, attributes
        attributes = permit.applied(claimed)
        if attributes.priority_class < claimed.priority_class:
            lowered.append(f"{permit.ceiling_by} lowers its class to {UPriority(attributes.priority_class + 1).name}")
        if attributes.permission_level != claimed.permission_level:
            lowered.append(f"{permit.level_by} lowers its permission level to {attributes.permission_level}")
    return Judgement(
        flow,
        decision.hops,
        decision.failure,
        (*decision.why, *lowered),
        decision.permit,
        identity if table.permissions is not None and table.permissions.checks_identities(ingress) else None,
        UPriority(attributes.priority_class + 1),
        attributes.permission_level,
    )


def why_not(judgement: Judgement, route: TableRoute, known: Known) -> list[str]:
    """Return every reason why the messages of a judged flow do not go over a route; empty if they do."""
    if _goes_over(route, judgement):
        return []
    reasons, flow, permitted = [], judgement.flow, judgement
    if route.source != flow.ingress:
        reasons.append(f"route {route.name} begins at {route.source}, and the message comes in through {flow.ingress}")
    if known.table.permissions is not None and judgement.failure is not None:
        permitted = judge(flow, known._replace(table=replace(known.table, permissions=None)))
        if permitted.failure != judgement.failure:
            reasons.append(judgement.failure.text)
    about_it = [line for line in permitted.why if line.startswith(f"route {route.name}: ")]
    if _goes_over(route, permitted):
        return reasons
    reasons += about_it
    if about_it and flow.kind is UMessageType.PUBLISH:
        reasons += _nearest_pattern(flow, route)
    if not about_it and permitted.failure is not None:
        reasons.append(permitted.failure.text)
    if not about_it and permitted.hops and route.source == flow.ingress:
        reasons.append(_taken_instead(permitted, route, known.table))
    return reasons


def _goes_over(route: TableRoute, judgement: Judgement) -> bool:
    return any(hop.route.name == route.name for hop in judgement.hops)


def limits(policy: QueuePolicy, flow: Flow) -> Iterator[str]:
    """Yield the rates of a route as text, and how messages of a flow wait there if not in order."""
    for rate, whose in ((policy.rate, "the route"), (policy.rate_per_authority, "each source authority")):
        if rate is not None:
            yield f"{whose} sends {as_text(rate)}"
    if flow.kind is UMessageType.PUBLISH and (how := as_waiting(policy, flow.source)) != _IN_ORDER:
        yield f"of this topic, {how}"


def as_waiting(policy: QueuePolicy, topic: UUri) -> str:
    """Return in words how Publishes of a topic wait on a route."""
    return "only the latest message is kept" if policy.of_topic(topic).keep == "latest" else _IN_ORDER


def as_text(rate: RateConfig) -> str:
    """Return a rate in words."""
    each = [f"{rate.messages:g} messages"] if rate.messages is not None else []
    each += [f"{rate.bytes} bytes"] if rate.bytes is not None else []
    return f"{' and '.join(each)} per second at most, after a burst of {rate.burst_s:g} s"


def _located(flow: Flow, table: RoutingTable) -> Flow:
    """Return a flow whose source has an authority, and which comes in somewhere."""
    source, ingress = flow.source, flow.ingress
    if flow.kind is not UMessageType.PUBLISH and flow.sink is None:
        raise UnclearQuestionError(f"a {flow.kind.name.lower()} needs a sink")
    if ingress and ingress not in table.authorities:
        raise UnclearQuestionError(f"no endpoint {ingress!r}; there are {', '.join(table.authorities)}")
    if not source.authority:
        names = table.authorities.get(ingress, ())
        if len(names) != 1 or ANY_AUTHORITY in names:
            raise UnclearQuestionError(_LOCAL_SOURCE)
        source = source._replace(authority=names[0])
    homes = table.homes(source.authority)
    return flow._replace(source=source, ingress=ingress or (homes[0] if homes else next(iter(table.authorities))))


def _identity(flow: Flow, table: RoutingTable) -> str | None:
    """Return the identity of the sender. If it is not known, one that may speak for the source, if there is one."""
    if flow.identity is not None or table.permissions is None:
        return flow.identity
    return next(iter(table.permissions.speakers(flow.ingress, flow.source.authority)), None)


def _attributes(flow: Flow) -> Attributes:
    """Return attributes of such messages that are valid, except for what the flow itself may have wrong."""
    kind = flow.kind
    has_ttl = kind is UMessageType.REQUEST or flow.has_ttl
    return Attributes(
        kind,
        flow.source,
        flow.sink,
        priority=flow.claimed,
        ttl=_TTL_MS if has_ttl else None,
        reqid=_REQUEST_ID if kind is UMessageType.RESPONSE else None,
        permission_level=flow.permission_level,
    )


def _as_claimed(decision: Decision, attributes: Attributes) -> Decision:
    """Return the decision with what the method demands of the caller."""
    permit = decision.permit
    if permit is None or permit.demand is None or decision.failure is not None:
        return decision
    refused = permit.refusal(attributes)
    if refused is None:
        return replace(decision, why=(*decision.why, str(permit.demand)))
    return Decision((), refused, (*decision.why, refused.text))


def _as_a_copy(decision: Decision, flow: Flow, table: RoutingTable) -> Decision:
    """Return the decision with what the router does with a message that another streamer may have forwarded."""
    if decision.failure is None:
        return decision
    failure, is_misrouted = declined(flow.kind, flow.source, flow.sink, flow.ingress, table, decision.failure)
    if failure is not decision.failure:
        return replace(decision, failure=failure, why=(*decision.why, failure.text))
    if is_misrouted:
        homes = " or ".join(table.homes(flow.source.authority))
        return replace(decision, why=(*decision.why, f"it is a duplicate if the original arrives through {homes}"))
    return decision


def _rejected(problems: Sequence[str]) -> Decision:
    """Return the decision of an ingress on a message that breaks the rules of its type."""
    text = "invalid attributes: " + "; ".join(problems)
    return Decision(failure=Failure(Outcome.REJECTED, UCode.INVALID_ARGUMENT, text), why=tuple(problems))


def _sink_authority(flow: Flow) -> str:
    return "" if flow.sink is None else flow.sink.authority


def _nearest_pattern(flow: Flow, route: TableRoute) -> list[str]:
    """Return in which parts the nearest publish pattern of a route differs from the topic, if none of them matches."""
    if not route.publish:
        return [f"route {route.name} has no publish patterns: it carries only what somebody has subscribed to"]
    different = {
        pattern: [part for part in UUri._fields if not _matches_in(part, pattern, flow.source)] for pattern in route.publish
    }
    nearest = min(route.publish, key=lambda pattern: len(different[pattern]))
    if not different[nearest]:
        return []
    return [f"its nearest pattern, {nearest}, has another {' and another '.join(different[nearest])}"]


def _matches_in(part: str, pattern: UUri, address: UUri) -> bool:
    return address._replace(**{part: getattr(pattern, part)}).matches(address)


def _taken_instead(judgement: Judgement, route: TableRoute, table: RoutingTable) -> str:
    """Return why a message with a sink has taken another route than this one, which begins at the same endpoint."""
    sink = _sink_authority(judgement.flow)
    if route.target not in table.homes(sink):
        return f"route {route.name}: {sink!r} does not live behind {route.target}"
    if route.target in table.homes(judgement.flow.source.authority):
        return f"route {route.name}: split horizon, the source lives behind {route.target} too"
    raise AssertionError("a route that leads there, too, has a line of its own")
