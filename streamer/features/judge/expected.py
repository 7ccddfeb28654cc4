"""Holds the judgement of a message against what is expected, and makes expectations out of judgements. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streamer.config.checks import nearest
from streamer.features.flow import TYPES, Flow
from streamer.features.judge.expectations import Expectation, ExpectedMessage
from streamer.features.judge.judge import Judgement
from streamer.routing.interest import EVERY_MESSAGE
from streamer.routing.table import RoutingTable
from streamer.uprotocol.message import UPriority

_NUMBERED = re.compile(r"\[\d+\]")
"""The place of a rule in its list."""

NO_SINK = "none"
"""The sink of a Publish that has none."""


class Difference(NamedTuple):
    """One key of an expectation that does not hold: what was expected, and what is. ``hint`` may follow."""

    key: str
    expected: str
    found: str
    hint: str = ""


def flow_of(message: ExpectedMessage) -> Flow:
    """Return the flow of an expected message. An identity that is not given is not proven."""
    return Flow(
        TYPES[message.type],
        message.source,
        message.sink,
        message.from_ or "",
        message.identity or "",
        UPriority.UNSPECIFIED if message.priority is None else UPriority[message.priority],
        message.permission_level,
    )


def interest_of(message: ExpectedMessage) -> dict[str, int]:
    """Return the authorities that have subscribed to the topic of an expected message, with their sample periods."""
    return dict.fromkeys(message.subscribed, EVERY_MESSAGE)


def outcomes_of(judgement: Judgement) -> dict[str, Any]:
    """Return what happens, by the keys of an expectation."""
    failure = judgement.failure
    if failure is not None:
        return {"denied": f"{failure.text} ({failure.code.name})"} if failure.is_reported else {"dropped": failure.text}
    found: dict[str, Any] = {
        "routes": sorted({hop.route.name for hop in judgement.hops}),
        "endpoints": sorted({hop.route.target for hop in judgement.hops}),
        "sinks": sorted(NO_SINK if hop.sink is None else str(hop.sink) for hop in judgement.hops),
        "priority": judgement.priority.name,
    }
    return found if judgement.identity is None else {**found, "identity": judgement.identity}


def differences(expectation: Expectation, judgement: Judgement, table: RoutingTable) -> list[Difference]:
    """Return what does not hold; empty if all that is expected does."""
    found, wrong = outcomes_of(judgement), []
    known = {"routes": [route.name for route in table.routes], "endpoints": list(table.authorities)}
    for key, expected in expectation.outcomes.items():
        if isinstance(expected, list):
            expected = sorted(expected)
            holds = found.get(key) == expected
        else:
            holds = key in found and (
                _says(found[key], expected) if key in ("denied", "dropped") else expected == found[key]
            )
        if not holds:
            unknown = [name for name in expected if name not in known[key]] if key in known else []
            wrong.append(Difference(key, _said(expected), _instead(key, found), _hint(key, unknown, known)))
    return wrong


def _says(reason: str, expected: str) -> bool:
    """Whether whole words of a reason are expected: none that merely begins or ends so."""
    return re.search(rf"(?<!\w){re.escape(expected)}(?!\w)", reason) is not None


def _hint(key: str, unknown: Iterable[str], known: Mapping[str, list[str]]) -> str:
    return "; ".join(f"there is no {key.removesuffix('s')} {name!r}{nearest(name, known[key])}" for name in unknown)


def _instead(key: str, found: Mapping[str, Any]) -> str:
    """Return what is, in place of what was expected of a key."""
    if key in found:
        return _said(found[key])
    for other in ("denied", "dropped"):
        if other in found:
            return f"{other}: {found[other]}"
    return (
        f"it goes over {_said(found['routes'])} to {_said(found['endpoints'])}"
        if key != "identity"
        else "identities do not matter"
    )


def _said(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def recorded(judgement: Judgement, interested: Iterable[str]) -> dict[str, Any]:
    """Return the expectation that what happens today goes on, as a value of YAML."""
    flow = judgement.flow
    message: dict[str, Any] = {"type": flow.kind.name.lower(), "source": str(flow.source)}
    if flow.sink is not None:
        message["sink"] = str(flow.sink)
    message["from"] = flow.ingress
    if identity := flow.identity or judgement.identity:
        message["identity"] = identity
    message["priority"] = flow.claimed.name
    if flow.permission_level is not None:
        message["permission_level"] = flow.permission_level
    if subscribed := sorted(interested):
        message["subscribed"] = subscribed
    return {"message": message, **_lasting(outcomes_of(judgement), flow)}


def _lasting(outcomes: dict[str, Any], flow: Flow) -> dict[str, Any]:
    """Return what does not change with the place of a rule in its list, and is not said twice."""
    if "denied" in outcomes:
        return {"denied": _NUMBERED.split(outcomes["denied"].rpartition(" (")[0])[0]}
    return {
        key: value for key, value in outcomes.items() if key != "sinks" or flow.sink is None or value != [str(flow.sink)]
    }
