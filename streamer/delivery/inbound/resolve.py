"""Determines once what to do with all messages that have the same attributes: validation, decision, permissions, lanes.

Nothing is counted, sent or rejected here. A new decision that denies something goes into the audit log, once for a flow and
not for each message.
"""

from collections.abc import Container, Iterable
from dataclasses import replace
from operator import itemgetter

from streamer.clock import Clock
from streamer.config.types import RateConfig
from streamer.delivery.inbound.refusals import invalid
from streamer.delivery.inbound.tokens import Tokens
from streamer.delivery.lanes.lane import Delivery, Hold, Lane
from streamer.delivery.lanes.queue import Room, RouteQueue
from streamer.delivery.outbound.egress import Egress
from streamer.delivery.seen import scope, tail_of
from streamer.logs.audit import DENIED, audit
from streamer.rate import ByKey, Pace
from streamer.routing.decide import Decision, Hop, decide, declined
from streamer.routing.interest import Interest, Sampler
from streamer.routing.outcome import Failure
from streamer.routing.permissions import Demand, Permit, denied
from streamer.routing.table import FlowKey, RoutingTable
from streamer.uprotocol.cache import BySource
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.uri import UUri

_MAX_SAMPLERS = 65_536
_MAX_PACES = 256
"""Source authorities with a rate of their own, for each rule with a rate. Further ones have one rate together."""

_Question = tuple[UMessageType, UUri, UUri | None, str | None]
"""Type, source, sink, and the sender's identity as far as the network proves it."""


class Leg:
    """One way out for messages with the same attributes: a lane, and the ``attributes`` with which they are sent there.

    ``is_changed``: these differ from the attributes that the messages arrived with. ``is_copy``: the leg gives messages
    without a sink one, whose authority differs in each leg. ``tail`` follows the id in the key under which a sent message is
    remembered; ``once`` does so for this route only: the leg removes the sink by which copies of a Publish differ.
    ``sampler`` drops messages beyond the sample period.
    """

    __slots__ = ("attributes", "egress", "is_changed", "is_copy", "key", "lane", "once", "queue", "sampler", "tail")

    def __init__(
        self, queue: RouteQueue, egress: Egress, attributes: Attributes, before: Attributes, sampler: Sampler | None = None
    ) -> None:
        self.queue = queue
        self.egress = egress
        self.attributes = attributes
        self.is_changed = attributes is not before
        self.is_copy = before.sink is None and attributes.sink is not None
        changes_sink = attributes.sink != before.sink
        self.tail = tail_of(attributes)
        self.once = self.tail + scope("route", queue.name) if changes_sink and before.sink is not None else None
        self.key: FlowKey = (attributes.source, attributes.sink)
        self.lane: Lane = queue.lane(self.key)
        self.sampler = sampler


def addressees(legs: Iterable[Leg]) -> frozenset[str]:
    """Return the authorities to which legs carry copies."""
    return frozenset(leg.attributes.sink.authority for leg in legs if leg.is_copy and leg.attributes.sink is not None)


class Resolved:
    """The decision for all messages with the same attributes.

    ``is_misrouted``: see `MisroutedCopies`; ``wants_token``: the method that demands a valid token of each of them;
    ``paces``: the rates of the rule that allows them; ``copied``: how many legs carry copies. ``messages`` counts those that
    arrived since it was decided, at ``since_s`` (monotonic).
    """

    __slots__ = (
        "_last_copied",
        "addressees",
        "copied",
        "copies",
        "failure",
        "is_misrouted",
        "legs",
        "messages",
        "paces",
        "since_s",
        "wants_token",
    )

    def __init__(
        self,
        legs: tuple[Leg, ...],
        failure: Failure | None,
        is_misrouted: bool = False,
        wants_token: Demand | None = None,
        paces: ByKey[Pace] | None = None,
    ) -> None:
        self.legs = legs
        self.failure = failure
        self.is_misrouted = is_misrouted
        self.wants_token = wants_token
        self.paces = paces
        self.messages = 0
        self.since_s = 0.0
        self.addressees = addressees(legs)
        self.copied = sum(leg.is_copy for leg in legs)
        self._last_copied: frozenset[str] = frozenset()
        self.copies: dict[RouteQueue, int] = {}  # how many legs lead into a queue
        for leg in legs:
            self.copies[leg.queue] = self.copies.get(leg.queue, 0) + 1

    def where_it_failed(self, route: str, target: str, to: str) -> "Resolved | None":
        """Return only the legs on a route, or if there is none, those to the endpoint ``target``, or else all.

        Of these, only the copies to the sink ``to``; an empty text selects all. None: no leg leads to that sink now.
        """
        legs = tuple(leg for leg in self.legs if leg.queue.name == route)
        legs = legs or tuple(leg for leg in self.legs if leg.queue.target == target) or self.legs
        if to:
            legs = tuple(leg for leg in legs if str(leg.attributes.sink) == to)
        if not legs:
            return None
        return self if len(legs) == len(self.legs) else Resolved(legs, None)

    def only_to(self, authorities: Container[str], endpoints: Container[str]) -> "Resolved | None":
        """Return only the legs to a sink at one of the ``authorities``, and those without sink to one of the ``endpoints``.

        None: there are none.
        """
        legs = tuple(
            leg
            for leg in self.legs
            for sink in (leg.attributes.sink,)
            if (leg.queue.target in endpoints if sink is None else sink.authority in authorities)
        )
        return Resolved(legs, None) if legs else None

    def has_room(self, message: UMessage) -> bool:
        """Whether every leg's queue has room for the message, without an eviction."""
        size, authority = message.size, message.attributes.source.authority
        for queue, copies in self.copies.items():
            if queue.room_for(size * copies, copies) is not Room.YES:
                return False
            if queue.quotas.has_quotas and queue.exceeds_quota(authority, size * copies, copies):
                return False
        for leg in self.legs:
            if leg.lane.retired:
                leg.lane = leg.queue.lane(leg.key)
            if leg.lane.hold & Hold.PAUSED and not leg.queue.has_room_for_paused(size):
                return False
        return True

    def replaceable(self, queue: RouteQueue) -> list[Delivery]:
        """Return the deliveries in a queue that a new message replaces."""
        return [each for leg in self.legs if leg.queue is queue for each in leg.lane.replaceable()]

    def addressees_of(self, copied: list[Leg]) -> tuple[frozenset[str], bool]:
        """Return the authorities of the legs that copies have taken, and whether another message has the same set."""
        if len(copied) == self.copied:
            return self.addressees, True
        to = addressees(copied)
        is_shared = to == self._last_copied
        if not is_shared:
            self._last_copied = to
        return self._last_copied, is_shared


class Resolver:
    """Resolves messages that arrive through ``endpoint``, which receives ``flows``."""

    def __init__(self, endpoint: str, flows: Flows, interest: Interest, clock: Clock, tokens: Tokens) -> None:
        self.flows = flows
        self._endpoint = endpoint
        self._interest = interest
        self._clock = clock
        self._tokens = tokens
        self._paces: dict[str, tuple[RateConfig, ByKey[Pace]]] = {}
        self._samplers: dict[tuple[str, FlowKey], Sampler] = {}
        self._decisions: BySource[_Question, Decision] = BySource(itemgetter(1))
        self._table: RoutingTable
        self._queues: dict[str, tuple[RouteQueue, Egress]] = {}

    def use(self, table: RoutingTable, queues: dict[str, tuple[RouteQueue, Egress]]) -> None:
        """Use a new routing table, with the queue and egress of each route by name."""
        self._table = table
        self._queues = queues
        self._decisions.clear()
        self.flows.changed()

    def forget(self, topics: Iterable[UUri]) -> None:
        """Forget what was resolved for topics in which the interest has changed. Samplers with the same period stay."""
        for topic in topics:
            if topic.has_wildcard:
                self._decisions.clear()
            else:
                self._decisions.forget(topic)
            self.flows.changed(topic)

    def resolve(self, attributes: Attributes) -> Resolved:
        """Determine what to do with a message, and verify the token that its method demands.

        The caller checks whether its carried attributes are valid (`Attributes.carried_problems`).
        """
        resolved = self.decided(attributes)
        if resolved.wants_token is None:
            return resolved
        refused = self.refusal_of_token(resolved.wants_token, attributes)
        return resolved if refused is None else Resolved((), refused)

    def decided(self, attributes: Attributes) -> Resolved:
        """Determine what to do with a message whatever its token is. This is found out once for a flow."""
        shared = attributes.shared
        flow = shared if shared.flows is self.flows else self.flows.of(shared)
        resolved: Resolved | None = flow.resolved
        if resolved is None:
            resolved = flow.resolved = self._decide(flow)
            resolved.since_s = self._clock.monotonic_s()
        return resolved

    def refusal_of_token(self, demand: Demand, attributes: Attributes) -> Failure | None:
        """Return why a message may not call its method with its token; None if it may. A new token is expensive."""
        refused = self._tokens.refusal(attributes, self._clock.wall_ms() / 1000)
        if refused is None:
            return None
        failure = denied(refused.code, f"{demand}: {refused.because}")
        self._audit(attributes, failure)
        return failure

    def leads_elsewhere(self, attributes: Attributes, queue: RouteQueue) -> bool:
        """Whether messages that were accepted before no longer go into a queue. Cheap, however their attributes vary."""
        decision = self._decision(attributes)
        return decision.failure is not None or all(self._queues[hop.route.name][0] is not queue for hop in decision.hops)

    def _decide(self, attributes: Attributes) -> Resolved:
        if attributes.shared_problems:
            return Resolved((), invalid(attributes.shared_problems))
        decision = self._decision(attributes)
        if decision.failure is not None:
            return self._decline(attributes, decision.failure)
        permitted, wants_token, paces = attributes, None, None
        if decision.permit is not None:
            refused = decision.permit.refusal(attributes)
            if refused is not None:
                self._audit(attributes, refused)
                return Resolved((), refused)
            permitted = decision.permit.applied(attributes)
            demand = decision.permit.demand
            wants_token = demand if demand is not None and demand.needs_token else None
            paces = self._paces_of(decision.permit)
        legs = []
        for hop in decision.hops:
            queue, egress = self._queues[hop.route.name]
            outgoing = permitted if hop.sink == permitted.sink else replace(permitted, sink=hop.sink)
            legs.append(Leg(queue, egress, outgoing, attributes, self._sampler(hop, outgoing)))
        return Resolved(tuple(legs), None, wants_token=wants_token, paces=paces)

    def _decision(self, attributes: Attributes) -> Decision:
        flow = (attributes.type, attributes.source, attributes.sink, attributes.provenance.identity)
        try:
            decision = self._decisions[flow]
        except KeyError:
            kind, source, sink, identity = flow
            decision = decide(kind, source, sink, self._endpoint, self._table, self._interest.of(source), identity)
            self._decisions.remember(flow, decision)
            if decision.is_denied and decision.failure is not None:
                self._audit(attributes, decision.failure)
        return decision

    def _paces_of(self, permit: Permit) -> ByKey[Pace] | None:
        """Return the rates of a rule, the same ones after a reload that does not change the rule's place and rate."""
        rate = permit.rate
        if rate is None:
            return None
        known, paces = self._paces.get(permit.name, (None, None))
        if paces is None or known != rate:
            paces = ByKey(lambda: Pace(rate.messages, rate.bytes, rate.burst_s), _MAX_PACES)
            self._paces[permit.name] = rate, paces
        return paces

    def _audit(self, attributes: Attributes, failure: Failure) -> None:
        sink = {} if attributes.sink is None else {"sink": attributes.sink}
        by = {} if attributes.provenance.identity is None else {"identity": attributes.provenance.identity}
        kind = attributes.type.name.lower()
        audit(DENIED, who=attributes.source, where=self._endpoint, type=kind, **sink, **by, because=failure.text)

    def _sampler(self, hop: Hop, outgoing: Attributes) -> Sampler | None:
        """Return the sampler for a hop, the same one as before if the period is the same."""
        key = (hop.route.name, (outgoing.source, outgoing.sink))
        before = self._samplers.pop(key, None)
        if not hop.period_ms:
            return None
        if len(self._samplers) >= _MAX_SAMPLERS:
            del self._samplers[next(iter(self._samplers))]
        sampler = before if before is not None and before.period_ms == hop.period_ms else Sampler(hop.period_ms)
        self._samplers[key] = sampler
        return sampler

    def _decline(self, attributes: Attributes, failure: Failure) -> Resolved:
        """Determine what to do with messages that no route takes."""
        kind, source, sink = attributes.type, attributes.source, attributes.sink
        return Resolved((), *declined(kind, source, sink, self._endpoint, self._table, failure))
