"""Finds the flows that two configurations may treat differently, as pairs of patterns. Pure.

The law of this file:
- A flow that no pair matches is judged alike by both configurations, unless it is a Publish: where its subscribers live
  depends on no pattern of its own.
- What differs and is bound to no pattern, such as a rate of a route, is about everything.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from streamer.config.models import Config
from streamer.config.permissions import EndpointPermissions, MethodConfig, RuleConfig
from streamer.features.judge.changed import renamed_endpoints
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at

_EVERYTHING = everything_at(ANY_AUTHORITY)
_JUDGED = ("authority", "endpoints", "queue_policy", "routes", "permissions", "usubscription", "utwin", "multicast")
"""The sections that a judgement depends on."""


class Differing(NamedTuple):
    """The flows from a source to a sink that match: of a Publish, the topic is both."""

    source: UUri
    sink: UUri


_ALL = Differing(_EVERYTHING, _EVERYTHING)


class _Fact(NamedTuple):
    """Something that one configuration says about the flows of some pairs."""

    text: str
    about: tuple[Differing, ...]


def differing(old: Config, new: Config) -> tuple[Differing, ...]:
    """Return the flows that the two may treat differently, the narrowest patterns first; empty if there are none."""
    renamed = renamed_endpoints(old, new)
    before, after = Counter(_facts(old, renamed)), Counter(_facts(new, {}))
    found = dict.fromkeys(pair for fact in ((before - after) + (after - before)) for pair in fact.about)
    if _in_order(old, renamed) != _in_order(new, {}):
        found |= dict.fromkeys(_disordered(old, new, renamed))
    return tuple(sorted(found, key=lambda pair: (sum(each == _EVERYTHING for each in pair), pair)))


def _facts(config: Config, renamed: dict[str, str]) -> Iterator[_Fact]:
    yield _Fact(_rest(config, renamed), (_ALL,))
    for name, endpoint in config.endpoints.items():
        for authority in endpoint.authorities:
            yield _Fact(f"{renamed.get(name, name)} reaches {authority}", _either(everything_at(authority)))
    for route in config.routes:
        ends = f"{renamed.get(route.from_, route.from_)} to {renamed.get(route.to, route.to)}"
        for pattern in route.publish:
            yield _Fact(f"{ends} publishes {pattern}", (Differing(pattern, _EVERYTHING),))
            yield _Fact(
                f"{ends} publishes {pattern} to {sorted(route.publish_to or ())}", (Differing(pattern, _EVERYTHING),)
            )
        for topic in route.queue_policy.topics:
            yield _Fact(f"{ends} queues {topic.model_dump_json()}", (Differing(topic.topic, _EVERYTHING),))
    if config.permissions is None:
        return
    for name, section in config.permissions.endpoints.items():
        for rule in section.rules:
            yield _Fact(f"{renamed.get(name, name)} {rule.model_dump_json()}", (_of_rule(rule),))
        for identity, authorities in (section.identities or {}).items():
            for authority in authorities:
                about = _EVERYTHING if "{" in authority else everything_at(authority)
                yield _Fact(f"{renamed.get(name, name)} {identity} is {authority}", (Differing(about, _EVERYTHING),))
    for method in config.permissions.methods:
        yield _Fact(method.model_dump_json(), (Differing(_EVERYTHING, method.method),))


def _either(pattern: UUri) -> tuple[Differing, ...]:
    return Differing(pattern, _EVERYTHING), Differing(_EVERYTHING, pattern)


def _of_rule(rule: RuleConfig) -> Differing:
    about = rule.allow or rule.deny
    assert about is not None
    return Differing(about.from_, about.to)


def _rest(config: Config, renamed: dict[str, str]) -> str:
    """Return everything that a judgement depends on, without what has a pattern."""
    data = config.model_dump(mode="json", by_alias=True, include=set(_JUDGED))
    data["endpoints"] = {
        renamed.get(name, name): {key: value for key, value in each.items() if key != "authorities"}
        for name, each in data["endpoints"].items()
    }
    policies = [data["queue_policy"], *(route["queue_policy"] for route in data["routes"])]
    for policy in policies:
        policy.pop("topics")
    for route in data["routes"]:
        route["from"], route["to"] = (renamed.get(route[end], route[end]) for end in ("from", "to"))
        for key in ("publish", "publish_to", "name"):
            route.pop(key)
    if data["permissions"] is not None:
        sections = data["permissions"]["endpoints"].items()
        data["permissions"] |= {
            "methods": [],
            "endpoints": {renamed.get(name, name): _checks(each) for name, each in sections},
        }
    return json.dumps(data, sort_keys=True)


def _checks(section: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "rules"} | {
        "identities": section["identities"] is not None
    }


# where the first that matches decides


def _in_order(config: Config, renamed: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return the rules and methods that both may have, as they follow each other."""
    if config.permissions is None:
        return []
    lists: list[tuple[str, list[str]]] = [("methods", [each.model_dump_json() for each in config.permissions.methods])]
    sections = config.permissions.endpoints.items()
    lists += [(renamed.get(name, name), [rule.model_dump_json() for rule in each.rules]) for name, each in sections]
    return sorted(lists)


def _disordered(old: Config, new: Config, renamed: dict[str, str]) -> Iterator[Differing]:
    """Yield what the rules and methods are about whose place among those of both configurations is another one."""
    if old.permissions is None or new.permissions is None:
        return
    pairs: list[tuple[list[Any], list[Any]]] = [(old.permissions.methods, new.permissions.methods)]
    for name, section in old.permissions.endpoints.items():
        other = new.permissions.endpoints.get(renamed.get(name, name), EndpointPermissions())
        pairs.append((section.rules, other.rules))
    for before, after in pairs:
        first, second = [each for each in before if each in after], [each for each in after if each in before]
        for one, two in zip(first, second, strict=False):
            if one != two:
                yield from (
                    Differing(_EVERYTHING, each.method) if isinstance(each, MethodConfig) else _of_rule(each)
                    for each in (one, two)
                )
