"""``streamer explain``: shows the route that a message would take, and why. Connects to nothing without ``--running``.

The daemon's subscriptions and pause rules are read from its journal; or with ``--running`` the daemon answers, which may
use another configuration than the file has by now.
"""

import argparse
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

from streamer.clock import SystemClock
from streamer.config.models import Config
from streamer.features.flow import TYPES, Flow
from streamer.features.host.host import ServiceHost, entities, table_of
from streamer.features.host.state import StateError
from streamer.features.judge.explain import explain
from streamer.features.judge.judge import Known, UnclearQuestionError
from streamer.features.record import Kinds
from streamer.routing.interest import Interest
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import FlowKey
from streamer.tools.running import DaemonAddress, DaemonRefusedError, add_options, answered, ask, daemon_of, loaded
from streamer.tools.text import EX_CONFIG, add_json, complain, document_out, lines_out, uri
from streamer.transports.base import TransportContext
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

_UNCLEAR = 400


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    text = "Show the route that a message would take, and why. Without --running it connects to nothing."
    sub = commands.add_parser("explain", help=text, description=text)
    sub.set_defaults(command=answered(_explain))
    add_options(sub)
    add_json(sub)
    sub.add_argument("--running", action="store_true", help="let the running daemon answer")
    sub.add_argument("--source", type=uri, required=True, metavar="URI", help="the source, such as //veh1/A8000/2/8A50")
    sub.add_argument("--sink", type=uri, metavar="URI", help="the sink; a Publish has none")
    sub.add_argument("--type", choices=sorted(TYPES), required=True, help="its type")
    sub.add_argument("--identity", metavar="NAME", help="the sender's identity, as proven by the network; default: none")
    sub.add_argument("--permission-level", type=int, metavar="N", help="the permission level in a Request; default: none")
    text = "the endpoint where it arrives; default: the one where its source lives"
    sub.add_argument("--from", dest="ingress", metavar="ENDPOINT", help=text)
    text = "say every reason why it does not go over this route; exit code 0 if it does"
    sub.add_argument("--why-not", metavar="ROUTE", help=text)


class Remembered:
    """The interest and the pause rules from a daemon's journal; takes the place of the router for the services."""

    def __init__(self) -> None:
        self.interest = Interest()
        self.pause_rules = PauseRules()

    def set_interest(self, topic: UUri, interested: Mapping[str, int], owner: str, is_new: bool = False) -> None:
        self.interest.change(topic, interested, owner)

    def apply_pause_rules(self) -> None:
        """Do nothing: there are no lanes."""

    def paused_flows(self) -> Iterable[tuple[FlowKey, int]]:
        return ()


def _explain(arguments: argparse.Namespace) -> int:
    kind = TYPES[arguments.type]
    flow = Flow(
        kind,
        arguments.source,
        arguments.sink,
        arguments.ingress or "",
        arguments.identity,
        permission_level=arguments.permission_level,
    )
    if kind is not UMessageType.PUBLISH and arguments.sink is None:
        return complain(f"a {arguments.type} needs --sink", 2)
    config = loaded(arguments)
    if arguments.running or config is None:
        return _ask(daemon_of(arguments, config), flow, arguments.why_not, arguments.as_json)
    try:
        known = known_of(config, arguments.features)
    except StateError as exc:
        return complain(str(exc), EX_CONFIG)
    try:
        return _print(explain(flow, known, arguments.why_not), arguments.as_json)
    except UnclearQuestionError as exc:
        return complain(str(exc), 2)


def known_of(config: Config, kinds: Kinds) -> Known:
    """Return what a daemon with this configuration and these kinds of features would know, by its journal.

    Says so if that cannot be read. Raises `StateError` for a file of a newer version.
    """
    remembered = Remembered()
    clock = SystemClock()
    features = [kind(config, clock) for kind in kinds]
    local_transport = LocalTransport(TransportContext(LOCAL_ENDPOINT, config.authority), entities(config, kinds))
    service_host = ServiceHost(config, local_transport, remembered, clock, features)
    logger = logging.getLogger("ustreamer")
    level = logger.level
    logger.setLevel(logging.ERROR)  # suppresses the start's warnings about the file
    try:
        if config.journal is not None:
            service_host.look(config.journal.path)
    except StateError as exc:
        if exc.is_newer:
            raise
        complain(f"subscriptions and pause rules are unknown: {exc}", 0)
    finally:
        logger.setLevel(level)
    return Known(table_of(config, kinds), remembered.interest, remembered.pause_rules)


def _ask(daemon: DaemonAddress, flow: Flow, why_not: str | None, as_json: bool) -> int:
    """Print the running daemon's explanation; return the exit status."""
    asked = {
        "type": flow.kind.name.lower(),
        "source": str(flow.source),
        "sink": flow.sink,
        "from": flow.ingress or None,
        "identity": flow.identity,
        "permission_level": flow.permission_level,
        "why_not": why_not,
    }
    query = urlencode({name: str(value) for name, value in asked.items() if value is not None})
    try:
        return ask(daemon, f"/explain?{query}", partial(_print, as_json=as_json))
    except DaemonRefusedError as exc:
        return complain(str(exc), 2 if exc.code == _UNCLEAR else exc.status)


def _print(explanation: dict[str, Any], as_json: bool) -> int:
    """Print an explanation; return the exit status."""
    asked = explanation.get("why_not")  # an earlier daemon does not answer it
    status = 0 if (explanation if asked is None else asked)["goes"] else 1
    if as_json:
        document_out(explanation)
        return status
    message, failure = explanation["message"], explanation["failure"]
    sink = "" if message["sink"] is None else f" → {message['sink']}"
    lines = [f"{message['type']} {message['source']}{sink} from {explanation['from']}"]
    lines += [f"  {reason}" for reason in explanation["why"]]
    for hop in explanation["hops"]:
        sink = "" if hop["sink"] is None else f", sink {hop['sink']}"
        period = f", at most one in {hop['period_ms']} ms" if hop["period_ms"] else ""
        lines.append(f"goes over route {hop['route']} to endpoint {hop['endpoint']}{sink}{period}")
        lines += [f"  {limit}" for limit in hop["limits"]]
        if hop["paused_by"] is not None:
            lines.append(f"  and waits there: it is paused (streamer pause) by {hop['paused_by']}")
        if (link := hop["link"]) is not None and link["why"] is not None:
            again = f"; next attempt {link['next_attempt']}" if link["next_attempt"] else ""
            lines.append(f"  and waits there: {hop['endpoint']} {link['why']}{again}")
    if failure is not None:
        lines.append(f"goes nowhere: {failure['outcome']} ({failure['code']}), {failure['text']}")
    if asked is not None and asked["reasons"]:
        lines.append(f"does not go over route {asked['route']}:")
        lines += [f"  {reason}" for reason in asked["reasons"]]
    lines_out(lines)
    return status
