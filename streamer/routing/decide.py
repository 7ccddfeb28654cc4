"""Decides where a message goes, or why it goes nowhere: a pure function of type, source, sink, routing table and interest.

The rules, in order:

1. A message of one of the streamer's services goes to every endpoint where its sink's authority lives. A Publish of a
   service goes to the networks inside the device where its source's authority lives (all, if that is the streamer's), and
   to interested authorities.
2. A source must live behind the endpoint that its message arrived through (else UNAUTHENTICATED).
3. A message to one of the streamer's services goes there; if the sink has no authority, the source's is used.
4. A message with a sink goes to the endpoint where the sink's authority lives, exact names before `*`, if a route
   leads there (else PERMISSION_DENIED). If it arrived from that endpoint, it is there already.
5. A Publish without sink goes over every route that has a pattern for its topic, or behind whose target an authority is
   interested in it. One that is addressed to the streamer is meant for interested authorities behind it.
6. Split horizon: nothing goes back to an endpoint where the source's authority lives.
7. Transient mark: a multicast that arrived from a network that connects devices is not published to another such one.
8. A message that would be forwarded, or answered, has to be permitted (`streamer.routing.permissions`). One that has arrived
   already, or is dropped without a report, needs no permission.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from streamer.routing.interest import EVERY_MESSAGE
from streamer.routing.outcome import Failure, Outcome
from streamer.routing.permissions import Permit
from streamer.routing.table import RoutingTable, TableRoute
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USTREAMER

_NOBODY: Mapping[str, int] = {}
_ARRIVED = Failure(Outcome.LOCAL, UCode.OK, "another streamer has carried it to where its sink lives")
_MARKED = "is multicast and came from a network that connects devices already"


@dataclass(frozen=True, slots=True)
class Hop:
    """One route to take, with the sink that the message has on it and the sample period in ms (0: every message).

    A Publish may be given a sink, or lose it.
    """

    route: TableRoute
    sink: UUri | None
    period_ms: int = EVERY_MESSAGE


@dataclass(frozen=True, slots=True)
class Decision:
    """Either hops or a failure. ``why`` explains it to people, one line per rule that applied.

    Where permissions are configured, ``permit`` is the permit of the rule that allows it; ``is_denied``: they deny it.
    """

    hops: tuple[Hop, ...] = ()
    failure: Failure | None = None
    why: tuple[str, ...] = ()
    permit: Permit | None = None
    is_denied: bool = False


def decide(
    kind: UMessageType,
    source: UUri,
    sink: UUri | None,
    ingress: str,
    table: RoutingTable,
    interested: Mapping[str, int] = _NOBODY,
    identity: str | None = None,
) -> Decision:
    """Decide for a valid message of type ``kind`` that came in through endpoint ``ingress``.

    ``interested`` are the authorities that have subscribed to the topic ``source``, each with its sample period in ms;
    ``identity`` is the sender's identity, as far as the network proves it.
    """
    if ingress == LOCAL_ENDPOINT:
        if sink is None:
            return _publish_of_service(source, table, interested)
        return _from_service(sink, table)
    if sink is not None and not sink.authority:  # clients leave it out for services of their own device
        local = sink._replace(authority=source.authority)
        sink = local if local[:3] in table.services else sink
    is_asking = kind is UMessageType.REQUEST and sink is not None and sink[:3] in table.services
    if source.authority == table.authority or (source[:3] in table.services and not is_asking):
        return _nowhere(Outcome.LOCAL, UCode.OK, f"{source} is ours: a message of our own came back")
    homes = table.homes(source.authority)
    if ingress not in homes:
        lives = f"lives behind {' and '.join(homes)}" if homes else "lives behind no endpoint"
        return _nowhere(
            Outcome.REJECTED, UCode.UNAUTHENTICATED, f"source authority {source.authority!r} {lives}, not behind {ingress}"
        )
    decision = _route(kind, source, sink, ingress, homes, table, interested)
    if table.permissions is None or (decision.failure is not None and not decision.failure.is_reported):
        return decision
    verdict = table.permissions.judge(kind, source, sink, ingress, identity)
    if isinstance(verdict, Failure):
        return Decision((), verdict, (verdict.text,), is_denied=True)
    return replace(decision, why=(str(verdict), *decision.why), permit=verdict)


def declined(
    kind: UMessageType, source: UUri, sink: UUri | None, ingress: str, table: RoutingTable, failure: Failure
) -> tuple[Failure, bool]:
    """Return the failure of messages that no route takes, and whether they may be copies forwarded by another streamer.

    They are not copies if their source lives behind ``ingress`` (only the sender is unauthenticated), behind no endpoint, or
    on the network of their sink, because then no original would arrive. Dead letters and status messages of another streamer
    do not count as copies, because their failure is not reported anyway. A copy that has reached the network of its sink has
    arrived.
    """
    homes = table.homes(source.authority)
    is_report = source[1:3] == USTREAMER and kind is UMessageType.PUBLISH
    if failure.code is not UCode.UNAUTHENTICATED or is_report or not homes or ingress in homes:
        return failure, False
    if sink is None or sink.authority in (ANY_AUTHORITY, table.authority):
        return failure, True
    sink_homes = table.homes(sink.authority)
    if ingress in sink_homes:
        return _ARRIVED, True
    return failure, not set(homes) <= set(sink_homes)


def _route(
    kind: UMessageType,
    source: UUri,
    sink: UUri | None,
    ingress: str,
    homes: tuple[str, ...],
    table: RoutingTable,
    interested: Mapping[str, int],
) -> Decision:
    """Decide for a message whose source lives behind ``ingress`` and is not this streamer."""
    if sink is not None and sink[:3] in table.services:
        inner = table.to_services(ingress)
        assert inner is not None
        return Decision((Hop(inner, sink),), why=(f"{sink} is a service of this streamer",))
    if kind is UMessageType.PUBLISH and (sink is None or sink.authority in (ANY_AUTHORITY, table.authority)):
        return _forward_publish(source, ingress, homes, table, interested)
    if sink is None:
        raise AssertionError("only a Publish may be without sink; validation comes first")
    decision = _forward_to_sink(kind, sink, ingress, homes, table)
    if kind is UMessageType.PUBLISH and any(_is_marked(source, ingress, hop.route.target, table) for hop in decision.hops):
        return _nowhere(Outcome.UNWANTED, UCode.OK, f"{source} {_MARKED}, also if it is addressed to another")
    return decision


def _is_marked(source: UUri, ingress: str, target: str, table: RoutingTable) -> bool:
    return source in table.multicast and {ingress, target} <= table.connecting


def _forward_publish(
    source: UUri, ingress: str, homes: tuple[str, ...], table: RoutingTable, interested: Mapping[str, int]
) -> Decision:
    hops: list[Hop] = []
    why: list[str] = []
    for route in table.routes_from(ingress):
        pattern = next((pattern for pattern in route.publish if pattern.matches(source)), None)
        asking = {authority: period for authority, period in interested.items() if route.target in table.homes(authority)}
        if pattern is None and not asking:
            why.append(f"route {route.name}: none of its publish patterns matches {source}, nobody there is interested")
        elif route.target in homes:
            why.append(f"route {route.name}: split horizon, {source.authority!r} lives behind {route.target}")
        elif _is_marked(source, ingress, route.target, table):
            why.append(f"route {route.name}: {source} {_MARKED}")
        else:
            hops += _hops(route, route.target in table.addressed, pattern is not None, asking)
            why.append(f"route {route.name}: {_because(pattern, asking)}{_addressed(route, hops)}")
    if hops:
        return Decision(tuple(hops), why=tuple(why))
    text = f"no route forwards {source} from {ingress}"
    return Decision(failure=Failure(Outcome.UNWANTED, UCode.OK, text), why=(*why, text))


def _hops(route: TableRoute, addressed: bool, is_listed: bool, asking: Mapping[str, int]) -> list[Hop]:
    """Return one hop, or where the network needs an authority, one for each. Topics that a pattern lists are not sampled."""
    if not addressed:
        return [Hop(route, None, EVERY_MESSAGE if is_listed else min(asking.values()))]
    listed = dict.fromkeys(route.publish_to, EVERY_MESSAGE) if is_listed else {}
    return [Hop(route, everything_at(authority), period_ms) for authority, period_ms in ({**asking, **listed}).items()]


def _because(pattern: UUri | None, asking: Mapping[str, int]) -> str:
    asked = f"{', '.join(sorted(asking))} {'is' if len(asking) == 1 else 'are'} interested" if asking else ""
    return " and ".join(part for part in (f"pattern {pattern} matches" if pattern else "", asked) if part)


def _addressed(route: TableRoute, hops: list[Hop]) -> str:
    sinks = [hop.sink.authority for hop in hops if hop.route is route and hop.sink is not None]
    return f"; addressed to {', '.join(sinks)}" if sinks else ""


def _forward_to_sink(
    kind: UMessageType, sink: UUri, ingress: str, source_homes: tuple[str, ...], table: RoutingTable
) -> Decision:
    if not sink.authority:
        return _nowhere(Outcome.LOCAL, UCode.OK, f"sink {sink} names no authority: it lives where the message came from")
    if sink.authority == table.authority:
        return _nowhere(Outcome.REJECTED, UCode.UNAVAILABLE, f"this streamer has no uEntity {sink}")
    homes = table.homes(sink.authority)
    if ingress in homes:
        return _nowhere(Outcome.LOCAL, UCode.OK, f"sink authority {sink.authority!r} lives behind {ingress} itself")
    hops: list[Hop] = []
    why: list[str] = []
    for route in table.routes_from(ingress):
        leads = route.target in homes and route.target not in source_homes
        if leads and hops:
            why.append(f"route {route.name}: it leads there, too, and route {hops[0].route.name} comes first in the file")
        elif leads:
            strip = kind is UMessageType.PUBLISH and route.target not in table.addressed
            why.append(f"route {route.name}: {sink.authority!r} lives behind {route.target}")
            hops.append(Hop(route, None if strip else sink))
        elif not hops and route.target in homes:
            why.append(f"route {route.name}: split horizon, the source lives behind {route.target} too")
        elif not hops:
            why.append(f"route {route.name}: {sink.authority!r} does not live behind {route.target}")
    if hops:
        return Decision(tuple(hops), why=tuple(why))
    text = f"no route leads from {ingress} to {sink.authority!r}"
    return Decision(failure=Failure(Outcome.REJECTED, UCode.PERMISSION_DENIED, text), why=(*why, text))


def _from_service(sink: UUri, table: RoutingTable) -> Decision:
    """Decide for a message of a service: all networks of the sink's authority, any of which may have sent the Request."""
    if sink.authority == table.authority:
        return _nowhere(Outcome.REJECTED, UCode.UNAVAILABLE, f"this streamer has no uEntity {sink}")
    homes = table.homes(sink.authority)
    hops = tuple(Hop(route, sink) for route in table.routes_from(LOCAL_ENDPOINT) if route.target in homes)
    if hops:
        return Decision(hops, why=(f"{sink.authority!r} lives behind {' and '.join(homes)}",))
    return _nowhere(Outcome.REJECTED, UCode.PERMISSION_DENIED, f"{sink.authority!r} lives behind no endpoint")


def _publish_of_service(source: UUri, table: RoutingTable, interested: Mapping[str, int]) -> Decision:
    """Decide for a Publish of a service. Inside the device nobody has to subscribe: dispatchers and loggers only listen."""
    homes = tuple(table.authorities) if source.authority == table.authority else table.homes(source.authority)
    inside = [name for name in homes if name not in table.connecting and name not in table.addressed]
    hops: list[Hop] = []
    why: list[str] = []
    for route in table.routes_from(LOCAL_ENDPOINT):
        asking = {authority: period for authority, period in interested.items() if route.target in table.homes(authority)}
        if route.target in inside or asking:
            hops += _hops(route, route.target in table.addressed, route.target in inside, asking)
            because = f"{route.target} is inside the device" if route.target in inside else _because(None, asking)
            why.append(f"route {route.name}: {because}{_addressed(route, hops)}")
    if hops:
        return Decision(tuple(hops), why=tuple(why))
    return _nowhere(Outcome.UNWANTED, UCode.OK, f"{source} has no network inside the device, and nobody is interested")


def _nowhere(outcome: Outcome, code: UCode, text: str) -> Decision:
    return Decision(failure=Failure(outcome, code, text), why=(text,))
