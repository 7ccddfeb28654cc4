"""Where does a message go, or why does it go nowhere? A pure function of type, source, sink and the routing table.

The rules, in order:

1. A source must live behind the endpoint that its message came from (else UNAUTHENTICATED).
2. A message with a sink goes to the endpoint where the sink's authority lives, exact names before `*`, if a route
   leads there (else PERMISSION_DENIED). If that is where it came from, it has arrived already.
3. A Publish without sink goes over every route one of whose patterns matches its topic.
4. Split horizon: nothing goes back to an endpoint where the source's authority lives.
"""

from dataclasses import dataclass

from streamer.router.outcome import Failure, Outcome
from streamer.router.table import RoutingTable, TableRoute
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at


@dataclass(frozen=True, slots=True)
class Hop:
    """One way on: the route, and the sink that the message carries on it (a Publish may be given one, or lose it)."""

    route: TableRoute
    sink: UUri | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Either hops or a failure. ``why`` explains it to people, one line per rule that spoke."""

    hops: tuple[Hop, ...] = ()
    failure: Failure | None = None
    why: tuple[str, ...] = ()


def decide(kind: UMessageType, source: UUri, sink: UUri | None, ingress: str, table: RoutingTable) -> Decision:
    """Decide for a valid message of type ``kind`` that came in through endpoint ``ingress``."""
    if source.authority == table.authority:
        return _nowhere(Outcome.LOCAL, UCode.OK, f"{source} is ours: a message of our own came back")
    homes = table.homes(source.authority)
    if ingress not in homes:
        lives = f"lives behind {' and '.join(homes)}" if homes else "lives behind no endpoint"
        return _nowhere(
            Outcome.REJECTED,
            UCode.UNAUTHENTICATED,
            f"source authority {source.authority!r} {lives}, not behind {ingress}",
        )
    if kind is UMessageType.PUBLISH and (sink is None or sink.authority in (ANY_AUTHORITY, table.authority)):
        return _forward_publish(source, ingress, homes, table)
    if sink is None:
        raise AssertionError("only a Publish may be without sink; validation comes first")
    return _forward_to_sink(kind, sink, ingress, homes, table)


def _forward_publish(source: UUri, ingress: str, homes: tuple[str, ...], table: RoutingTable) -> Decision:
    hops: list[Hop] = []
    why: list[str] = []
    for route in table.routes_from(ingress):
        pattern = next((pattern for pattern in route.publish if pattern.matches(source)), None)
        if pattern is None:
            why.append(f"route {route.name}: none of its publish patterns matches {source}")
        elif route.target in homes:
            why.append(f"route {route.name}: split horizon, {source.authority!r} lives behind {route.target}")
        elif route.target in table.addressed:
            hops += [Hop(route, everything_at(authority)) for authority in route.publish_to]
            why.append(f"route {route.name}: pattern {pattern} matches; addressed to {', '.join(route.publish_to)}")
        else:
            hops.append(Hop(route, None))
            why.append(f"route {route.name}: pattern {pattern} matches")
    if hops:
        return Decision(tuple(hops), why=tuple(why))
    text = f"no route forwards {source} from {ingress}"
    return Decision(failure=Failure(Outcome.UNWANTED, UCode.OK, text), why=(*why, text))


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
    why: list[str] = []
    for route in table.routes_from(ingress):
        if route.target not in homes:
            why.append(f"route {route.name}: {sink.authority!r} does not live behind {route.target}")
        elif route.target in source_homes:
            why.append(f"route {route.name}: split horizon, the source lives behind {route.target} too")
        else:
            strip = kind is UMessageType.PUBLISH and route.target not in table.addressed
            why.append(f"route {route.name}: {sink.authority!r} lives behind {route.target}")
            return Decision((Hop(route, None if strip else sink),), why=tuple(why))
    text = f"no route leads from {ingress} to {sink.authority!r}"
    return Decision(failure=Failure(Outcome.REJECTED, UCode.PERMISSION_DENIED, text), why=(*why, text))


def _nowhere(outcome: Outcome, code: UCode, text: str) -> Decision:
    return Decision(failure=Failure(outcome, code, text), why=(text,))
