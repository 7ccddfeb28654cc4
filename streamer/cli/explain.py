"""``streamer explain``: the route that a message would take, and why. Connects to nothing.

What a daemon with this configuration remembers (who has subscribed, and what is paused) is read from its state file.
"""

import argparse
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from streamer.cli.text import EX_CONFIG, complain
from streamer.clock import SystemClock
from streamer.config.load import load
from streamer.config.models import Config, QueuePolicy
from streamer.routing.decide import Decision, decide
from streamer.routing.interest import Interest
from streamer.routing.outcome import Failure, Outcome
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import FlowKey, RoutingTable
from streamer.services.host import ServiceHost, entities
from streamer.services.state import StateError
from streamer.transports.base import TransportContext
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import Attributes, UMessageType, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import ANY_AUTHORITY, UriError, UUri
from streamer.uprotocol.uuid import new_id
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

_LOCAL_SOURCE = (
    "a --source without authority is local to its network, whose topics or keys name it: "
    "it needs one, or --from with an endpoint that lists a single authority"
)

_TYPES = {kind.name.lower(): kind for kind in UMessageType if kind}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Show the route that a message would take, and why. Connects to nothing."
    explain = commands.add_parser("explain", help=text, description=text)
    explain.set_defaults(command=_explain)
    explain.add_argument("--config", type=Path, required=True, metavar="FILE", help="the configuration file")
    explain.add_argument("--source", type=_uri, required=True, metavar="URI", help="such as //veh1/A8000/2/8A50")
    explain.add_argument("--sink", type=_uri, metavar="URI", help="not for a Publish")
    explain.add_argument("--type", choices=sorted(_TYPES), required=True, help="the message's type")
    explain.add_argument("--identity", metavar="NAME", help="who sends it, as the network proves it; default: nobody")
    explain.add_argument("--permission-level", type=int, metavar="N", help="what a Request claims; default: nothing")
    explain.add_argument(
        "--from", dest="ingress", metavar="ENDPOINT", help="where it arrives; default: where its source lives"
    )


def _uri(text: str) -> UUri:
    try:
        return UUri.parse(text)
    except UriError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


class Remembered:
    """The interest and the pause rules that a daemon remembers; stands in for its router."""

    def __init__(self) -> None:
        self.interest = Interest()
        self.pause_rules = PauseRules()

    def set_interest(self, topic: UUri, interested: Mapping[str, int], owner: str) -> None:
        self.interest.change(topic, interested, owner)

    def apply_pause_rules(self) -> None:
        """Nothing to do: no lane exists."""

    def paused_flows(self) -> Iterable[tuple[FlowKey, int]]:
        return ()


def _explain(arguments: argparse.Namespace) -> int:
    config = load(arguments.config)
    remembered = Remembered()
    table, service_host = _table(config, remembered)
    logger = logging.getLogger("ustreamer")
    level = logger.level
    logger.setLevel(logging.ERROR)  # without what a start would log about the file
    try:
        service_host.look()
    except StateError as exc:
        if exc.is_newer:
            return complain(str(exc), EX_CONFIG)
        print(f"subscriptions and pause rules are unknown: {exc}", file=sys.stderr)
    finally:
        logger.setLevel(level)
    kind = _TYPES[arguments.type]
    if (kind is not UMessageType.PUBLISH) and arguments.sink is None:
        print(f"a {arguments.type} needs --sink", file=sys.stderr)
        return 2
    if arguments.ingress is not None and arguments.ingress not in table.authorities:
        print(f"no endpoint {arguments.ingress!r}; there are {', '.join(table.authorities)}", file=sys.stderr)
        return 2
    if not arguments.source.authority:
        names = table.authorities.get(arguments.ingress, ())
        if len(names) != 1 or ANY_AUTHORITY in names:
            print(_LOCAL_SOURCE, file=sys.stderr)
            return 2
        arguments.source = arguments.source._replace(authority=names[0])
    homes = table.homes(arguments.source.authority)
    ingress = arguments.ingress or (homes[0] if homes else next(iter(table.authorities)))
    attributes = _attributes(kind, arguments)
    if attributes.problems:
        decision = _rejected(attributes.problems)
    else:
        interested = remembered.interest.of(arguments.source)
        decision = decide(kind, arguments.source, arguments.sink, ingress, table, interested, arguments.identity)
        decision = _as_claimed(decision, attributes)
    sink = "" if arguments.sink is None else f" → {arguments.sink}"
    print(f"{arguments.type} {arguments.source}{sink} from {ingress}")
    _print_decision(decision, arguments.source, remembered.pause_rules)
    return 0 if decision.hops else 1


def _limits(policy: QueuePolicy) -> Iterator[str]:
    """The rates of a route."""
    for rate, whose in ((policy.rate, "the route"), (policy.rate_per_authority, "each source authority")):
        if rate is not None:
            each = [f"{rate.messages:g} messages"] if rate.messages is not None else []
            each += [f"{rate.bytes} bytes"] if rate.bytes is not None else []
            yield f"{whose} sends {' and '.join(each)} per second at most, after a burst of {rate.burst_s:g} s"


def _attributes(kind: UMessageType, arguments: argparse.Namespace) -> Attributes:
    """A message of that type with these addresses. Only what was given can be wrong: it has everything else."""
    is_call = kind in (UMessageType.REQUEST, UMessageType.RESPONSE)
    return Attributes(
        kind,
        arguments.source,
        arguments.sink,
        priority=UPriority.CS4 if is_call else UPriority.UNSPECIFIED,
        ttl=1000 if kind is UMessageType.REQUEST else None,
        reqid=new_id(SystemClock().wall_ms()) if kind is UMessageType.RESPONSE else None,
        permission_level=arguments.permission_level,
    )


def _as_claimed(decision: Decision, attributes: Attributes) -> Decision:
    """The decision with what its method demands of the caller."""
    permit = decision.permit
    if permit is None or permit.demand is None or decision.failure is not None:
        return decision
    refused = permit.refusal(attributes)
    if refused is None:
        return replace(decision, why=(*decision.why, str(permit.demand)))
    return Decision((), refused, (*decision.why, refused.text))


def _rejected(problems: Sequence[str]) -> Decision:
    """The decision of an ingress on a message that breaks the rules of its type."""
    text = "invalid attributes: " + "; ".join(problems)
    return Decision(failure=Failure(Outcome.REJECTED, UCode.INVALID_ARGUMENT, text), why=tuple(problems))


def _print_decision(decision: Decision, source: UUri, pause_rules: PauseRules) -> None:
    for reason in decision.why:
        print(f"  {reason}")
    for hop in decision.hops:
        sink = "" if hop.sink is None else f", sink {hop.sink}"
        period = f", at most one in {hop.period_ms} ms" if hop.period_ms else ""
        print(f"goes over route {hop.route.name} to endpoint {hop.route.target}{sink}{period}")
        for limit in _limits(hop.route.policy):
            print(f"  {limit}")
        rule = pause_rules.rule_for(source, hop.sink)
        if rule is not None and LOCAL_ENDPOINT not in (hop.route.source, hop.route.target):
            print(f"  and waits there: it is paused (streamer pause) by {rule}")
    if decision.failure is not None:
        print(f"goes nowhere: {decision.failure.outcome.value} ({decision.failure.code.name}), {decision.failure.text}")


def _table(config: Config, remembered: Remembered) -> tuple[RoutingTable, ServiceHost]:
    """The routing table and the services as the daemon would have them, without connecting anything."""
    local_transport = LocalTransport(TransportContext(LOCAL_ENDPOINT, config.authority), entities(config))
    service_host = ServiceHost(config, local_transport, remembered, SystemClock())
    return RoutingTable.from_config(config, config.addressed, entities(config), config.catalogue.topics), service_host
