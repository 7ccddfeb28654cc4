"""Explains what would happen to a message, and why: the result of `decide` as text, for `streamer explain` and the API.

No event loop, no clock, no logger in here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from streamer.config.models import QueuePolicy
from streamer.routing.decide import Decision, decide, declined
from streamer.routing.interest import Interest
from streamer.routing.outcome import Failure, Outcome
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import RoutingTable
from streamer.uprotocol.message import Attributes, UMessageType, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri
from streamer.uprotocol.uuid import new_id
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

TYPES = {kind.name.lower(): kind for kind in UMessageType if kind}

_LOCAL_SOURCE = (
    "a source without authority is local to its network, whose topics or keys name it: "
    "it needs one, or an endpoint that lists a single authority as the place where it arrives"
)


class UnclearQuestionError(ValueError):
    """The question is incomplete or wrong; the text says in what respect."""


@dataclass(frozen=True, slots=True)
class RoutingQuestion:
    """A message that somebody may send. ``ingress`` None: where its source lives; ``identity`` None: not proven."""

    kind: UMessageType
    source: UUri
    sink: UUri | None = None
    ingress: str | None = None
    identity: str | None = None
    permission_level: int | None = None


class Known(NamedTuple):
    """What a daemon knows about routing."""

    table: RoutingTable
    interest: Interest
    pause_rules: PauseRules


def explain(question: RoutingQuestion, known: Known, now_ms: int) -> dict[str, Any]:
    """Return the answer, in types of JSON. Raises `UnclearQuestionError`."""
    kind, source, sink = question.kind, question.source, question.sink
    table = known.table
    if kind is not UMessageType.PUBLISH and sink is None:
        raise UnclearQuestionError(f"a {kind.name.lower()} needs a sink")
    if question.ingress is not None and question.ingress not in table.authorities:
        raise UnclearQuestionError(f"no endpoint {question.ingress!r}; there are {', '.join(table.authorities)}")
    if not source.authority:
        names = table.authorities.get(question.ingress or "", ())
        if len(names) != 1 or ANY_AUTHORITY in names:
            raise UnclearQuestionError(_LOCAL_SOURCE)
        source = source._replace(authority=names[0])
    homes = table.homes(source.authority)
    ingress = question.ingress or (homes[0] if homes else next(iter(table.authorities)))
    attributes = _attributes(replace(question, source=source), now_ms)
    if attributes.problems:
        decision = _rejected(attributes.problems)
    else:
        interested = known.interest.of(source)
        decision = _as_claimed(decide(kind, source, sink, ingress, table, interested, question.identity), attributes)
    decision = _as_a_copy(decision, kind, source, sink, ingress, table)
    failure = decision.failure
    return {
        "message": {"type": kind.name.lower(), "source": str(source), "sink": None if sink is None else str(sink)},
        "from": ingress,
        "goes": bool(decision.hops),
        "why": list(decision.why),
        "hops": list(_hops(decision, source, known.pause_rules)),
        "failure": None
        if failure is None
        else {"outcome": failure.outcome.value, "code": failure.code.name, "text": failure.text},
    }


def _hops(decision: Decision, source: UUri, pause_rules: PauseRules) -> Iterator[dict[str, Any]]:
    for hop in decision.hops:
        rule = pause_rules.rule_for(source, hop.sink)
        is_ours = LOCAL_ENDPOINT in (hop.route.source, hop.route.target)
        yield {
            "route": hop.route.name,
            "endpoint": hop.route.target,
            "sink": None if hop.sink is None else str(hop.sink),
            "period_ms": hop.period_ms,
            "limits": list(_limits(hop.route.policy)),
            "paused_by": None if rule is None or is_ours else str(rule),
            "link": None,  # only a daemon that runs knows it
        }


def _limits(policy: QueuePolicy) -> Iterator[str]:
    """Yield the rates of a route as text."""
    for rate, whose in ((policy.rate, "the route"), (policy.rate_per_authority, "each source authority")):
        if rate is not None:
            each = [f"{rate.messages:g} messages"] if rate.messages is not None else []
            each += [f"{rate.bytes} bytes"] if rate.bytes is not None else []
            yield f"{whose} sends {' and '.join(each)} per second at most, after a burst of {rate.burst_s:g} s"


def _attributes(question: RoutingQuestion, now_ms: int) -> Attributes:
    """Return valid attributes of a message of that type, except for what the question may have wrong."""
    kind = question.kind
    is_call = kind in (UMessageType.REQUEST, UMessageType.RESPONSE)
    return Attributes(
        kind,
        question.source,
        question.sink,
        priority=UPriority.CS4 if is_call else UPriority.UNSPECIFIED,
        ttl=1000 if kind is UMessageType.REQUEST else None,
        reqid=new_id(now_ms) if kind is UMessageType.RESPONSE else None,
        permission_level=question.permission_level,
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


def _as_a_copy(
    decision: Decision, kind: UMessageType, source: UUri, sink: UUri | None, ingress: str, table: RoutingTable
) -> Decision:
    """Return the decision with what the router does with a message that another streamer may have forwarded."""
    if decision.failure is None:
        return decision
    failure, is_misrouted = declined(kind, source, sink, ingress, table, decision.failure)
    if failure is not decision.failure:
        return replace(decision, failure=failure, why=(*decision.why, failure.text))
    if is_misrouted:
        homes = " or ".join(table.homes(source.authority))
        return replace(decision, why=(*decision.why, f"it is a duplicate if the original arrives through {homes}"))
    return decision


def _rejected(problems: Sequence[str]) -> Decision:
    """Return the decision of an ingress on a message that breaks the rules of its type."""
    text = "invalid attributes: " + "; ".join(problems)
    return Decision(failure=Failure(Outcome.REJECTED, UCode.INVALID_ARGUMENT, text), why=tuple(problems))
