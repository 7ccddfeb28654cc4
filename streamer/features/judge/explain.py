"""Explains what would happen to a message, and why: a judgement as JSON, for `streamer explain` and the API.

No event loop, no clock, no logger in here.
"""

from collections.abc import Iterator
from typing import Any

from streamer.config.checks import nearest
from streamer.features.flow import Flow
from streamer.features.judge.judge import Judgement, Known, UnclearQuestionError, judge, limits, why_not
from streamer.routing.pause_rules import PauseRules
from streamer.uprotocol.well_known import LOCAL_ENDPOINT


def explain(flow: Flow, known: Known, not_over: str | None = None) -> dict[str, Any]:
    """Return the answer, in types of JSON. ``not_over``: the route about which it says why the message does not take it.

    An identity that is not known counts as not proven. Raises `UnclearQuestionError`.
    """
    judgement = judge(flow._replace(identity=flow.identity or ""), known)
    found, failure = judgement.flow, judgement.failure
    sink = None if found.sink is None else str(found.sink)
    return {
        "message": {"type": found.kind.name.lower(), "source": str(found.source), "sink": sink},
        "from": found.ingress,
        "goes": bool(judgement.hops),
        "priority": judgement.priority.name,
        "why": list(judgement.why),
        "hops": list(_hops(judgement, known.pause_rules)),
        "failure": None
        if failure is None
        else {"outcome": failure.outcome.value, "code": failure.code.name, "text": failure.text},
        "why_not": None if not_over is None else _why_not(judgement, not_over, known),
    }


def _why_not(judgement: Judgement, name: str, known: Known) -> dict[str, Any]:
    """Return whether the message takes a route, and every reason why not."""
    routes = {route.name: route for route in known.table.routes}
    if name not in routes:
        there = f"there are {', '.join(routes)}" if routes else "there are none"
        raise UnclearQuestionError(f"no route {name!r}; {there}{nearest(name, routes)}")
    reasons = why_not(judgement, routes[name], known)
    return {"route": name, "goes": not reasons, "reasons": reasons}


def _hops(judgement: Judgement, pause_rules: PauseRules) -> Iterator[dict[str, Any]]:
    for hop in judgement.hops:
        rule = pause_rules.rule_for(judgement.flow.source, hop.sink)
        is_ours = LOCAL_ENDPOINT in (hop.route.source, hop.route.target)
        yield {
            "route": hop.route.name,
            "endpoint": hop.route.target,
            "sink": None if hop.sink is None else str(hop.sink),
            "period_ms": hop.period_ms,
            "limits": list(limits(hop.route.policy, judgement.flow)),
            "paused_by": None if rule is None or is_ours else str(rule),
            "link": None,  # only a daemon that runs knows it
        }
