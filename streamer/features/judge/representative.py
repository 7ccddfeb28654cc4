"""Makes up flows that stand for all that configurations tell apart, for where no flows are known. Pure.

From every pattern and name in the configurations come addresses: one that it matches, and for each part that it names one
beside it. Where patterns meet there is an address in both. Of addresses that no pattern tells apart, one is enough. Flows
are the combinations that the types of messages allow.

Flows that the configurations may treat differently come first (`differing`). A sample that lacks one of these is cut;
what it lacks of the others is the same in both.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product, takewhile
from typing import NamedTuple

from streamer.config.models import Config
from streamer.features.flow import Flow
from streamer.features.judge.changed import renamed_endpoints
from streamer.features.judge.differing import Differing, differing
from streamer.uprotocol.message import UMessageType, UPriority
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_INSTANCE, ANY_RESOURCE, ANY_TYPE, ANY_VERSION, UUri, everything_at
from streamer.uprotocol.well_known import USTREAMER, USUBSCRIPTIONS, UTWIN

MOST = 20_000
"""Flows at most."""

_MOST_MEETING = 300
"""Patterns whose meeting with each other is looked at."""

_SOMEBODY = "somebody.else"
_STRANGER = "nobody-you-know"
"""An identity that no configuration names."""
_TYPE, _VERSION, _TOPIC, _METHOD = 0xE55, 0x5E, 0xE55E, 0x5E5
"""Numbers that hardly any configuration names; the next free ones are taken."""


class Representatives(NamedTuple):
    """Flows; whether there would have been more; and whether some are missing that the configurations may tell apart."""

    flows: list[Flow]
    has_more: bool
    is_cut: bool


def representatives(*configs: Config) -> Representatives:
    """Return flows that stand for all that these configurations tell apart, in a fixed order.

    The endpoints have their names in the first of them that has them.
    """
    different = differing(configs[0], configs[-1]) if len(configs) > 1 else ()
    named = dict.fromkeys(pattern for pair in different for pattern in pair)
    patterns = list(dict.fromkeys((*named, *(pattern for config in configs for pattern in _patterns(config)))))
    addresses = _addresses(patterns, sorted({name for config in configs for name in _authorities(config)}))
    renamed = renamed_endpoints(configs[0], configs[-1])
    homes = dict.fromkeys(name for config in configs for name in config.endpoints if name not in renamed.values())
    found, has_more, is_cut, most = list[Flow](), False, len(named) > _MOST_MEETING, MOST // len(homes)
    for ingress in homes:
        names = {ingress, renamed.get(ingress, ingress)}
        publishes = takewhile(lambda flow: flow.kind is UMessageType.PUBLISH, _flows(ingress, names, addresses, configs))
        first = (flow for pair in different for flow in _flows(ingress, names, addresses, configs, pair))
        flows = _distinct(chain(publishes, first), {}, most)
        is_cut |= len(flows) > most
        flows = _distinct(_flows(ingress, names, addresses, configs), flows, most)
        has_more |= len(flows) > most
        found += list(flows)[:most]
    if len(configs) == 1:
        is_cut = has_more
    return Representatives(found, has_more, is_cut)


def _distinct(flows: Iterable[Flow], known: dict[Flow, None], most: int) -> dict[Flow, None]:
    """Return the known flows and those that come, without any twice, at most one more than ``most``."""
    found = dict(known)
    for flow in flows:
        if len(found) > most:
            break
        found[flow] = None
    return found


def _patterns(config: Config) -> Iterator[UUri]:
    for route in config.routes:
        yield from route.publish
        yield from (each.topic for each in route.queue_policy.topics)
    for _, brought in config.feature_sections():
        yield from brought.multicast_topics
    if config.permissions is not None:
        for section in config.permissions.endpoints.values():
            for rule in section.rules:
                about = rule.allow or rule.deny
                assert about is not None
                yield from (about.from_, about.to)
        yield from (each.method for each in config.permissions.methods)
    yield from (
        entity.at(config.authority)._replace(resource=ANY_RESOURCE) for entity in (USTREAMER, *USUBSCRIPTIONS, UTWIN)
    )
    yield everything_at(ANY_AUTHORITY)


def _authorities(config: Config) -> Iterator[str]:
    yield config.authority
    for endpoint in config.endpoints.values():
        yield from endpoint.authorities
    for route in config.routes:
        yield from route.publish_to or ()
    yield from (pattern.authority for pattern in _patterns(config))


def _addresses(patterns: Sequence[UUri], authorities: Sequence[str]) -> list[UUri]:
    """Return addresses without wildcards, one of those that no pattern tells apart at each authority."""
    kinds = _fresh(_TYPE, {pattern.type_id for pattern in patterns})
    versions = _fresh(_VERSION, {pattern.version for pattern in patterns})
    topics = _fresh(_TOPIC, {pattern.resource for pattern in patterns})
    methods = _fresh(_METHOD, {pattern.resource for pattern in patterns})
    names = [name for name in authorities if name != ANY_AUTHORITY] + [_SOMEBODY]
    meeting = patterns[:_MOST_MEETING]  # those that differ are the first
    wide = [each for one, other in product(meeting, meeting) if one is not other and (each := one.common(other)) is not None]
    wide += [beside for pattern in patterns for beside in _beside(pattern, kinds, versions)]
    seen: dict[tuple[object, ...], UUri] = {}
    for pattern in dict.fromkeys((*patterns, *wide)):
        named = [pattern.authority] if pattern.authority != ANY_AUTHORITY else names
        filled = _filled(pattern, kinds, versions, (topics, methods, 0))
        for authority, address in product(named, filled):
            full = address._replace(authority=authority)
            kind = full.is_topic, full.is_method
            seen.setdefault((authority, kind, tuple(each.matches(full) for each in patterns)), full)
    return sorted(seen.values())


def _fresh(number: int, taken: set[int]) -> int:
    while number in taken:
        number += 1
    return number


def _beside(pattern: UUri, kind: int, version: int) -> Iterator[UUri]:
    """Yield patterns that differ in one part that this one names."""
    if pattern.type_id != ANY_TYPE:
        yield pattern._replace(ue_id=pattern.instance_id << 16 | kind)
    if pattern.instance_id != ANY_INSTANCE:
        yield pattern._replace(ue_id=(pattern.instance_id ^ 0x55) << 16 | pattern.type_id)
    if pattern.version != ANY_VERSION:
        yield pattern._replace(version=version)
    if pattern.resource != ANY_RESOURCE:
        yield pattern._replace(resource=ANY_RESOURCE)
    if pattern.authority != ANY_AUTHORITY:
        yield pattern._replace(authority=ANY_AUTHORITY)


def _filled(pattern: UUri, kind: int, version: int, resources: Iterable[int]) -> Iterator[UUri]:
    """Yield addresses that a pattern matches: with each of ``resources``, if it names none."""
    ue_id = (0 if pattern.instance_id == ANY_INSTANCE else pattern.instance_id) << 16
    ue_id |= kind if pattern.type_id == ANY_TYPE else pattern.type_id
    number = version if pattern.version == ANY_VERSION else pattern.version
    for resource in resources if pattern.resource == ANY_RESOURCE else (pattern.resource,):
        yield UUri(pattern.authority, ue_id, number, resource)


def _flows(
    ingress: str, names: set[str], addresses: Sequence[UUri], configs: Sequence[Config], about: Differing | None = None
) -> Iterator[Flow]:
    """Yield flows from every source that may come in at an endpoint to every sink, in the order of types.

    ``about``: only those whose source and sink (of a Publish, its topic) match these patterns.
    """
    endpoints = [(name, endpoint) for config in configs for name, endpoint in config.endpoints.items()]
    listed = {authority for name, endpoint in endpoints if name in names for authority in endpoint.authorities}
    named = {authority for _, endpoint in endpoints for authority in endpoint.authorities}
    here = [
        address
        for address in addresses
        if address.authority in listed or (ANY_AUTHORITY in listed and address.authority not in named)
    ]
    levels = _levels(configs)
    identities = _identities(names, configs)
    sinks = addresses
    if about is not None:
        here = [each for each in here if about.source.matches(each)]
        sinks = [each for each in addresses if about.sink.matches(each)]
    topics = [address for address in here if address.is_topic]
    calling, answering = ([each for each in here if each.is_entity], [each for each in here if each.is_method])
    methods, entities = ([each for each in sinks if each.is_method], [each for each in sinks if each.is_entity])
    for source, identity in product(topics, identities):
        if about is None or about.sink.matches(source):
            yield Flow(UMessageType.PUBLISH, source, None, ingress, identity, UPriority.CS6)
    yield from _in_turn(
        (
            Flow(UMessageType.REQUEST, source, sink, ingress, identity, UPriority.CS6, level)
            for sink, source, identity, level in product(methods, calling, identities, levels)
        ),
        (
            Flow(UMessageType.NOTIFICATION, source, sink, ingress, identity, UPriority.CS6)
            for sink, source, identity in product(entities, topics, identities)
        ),
        (
            Flow(UMessageType.RESPONSE, source, sink, ingress, identity, UPriority.CS6)
            for sink, source, identity in product(entities, answering, identities)
        ),
    )


def _in_turn(*several: Iterable[Flow]) -> Iterator[Flow]:
    """Yield one flow of each kind in turn, so that none is left out where there are too many."""
    left = [iter(each) for each in several]
    while left:
        for each in tuple(left):
            flow = next(each, None)
            if flow is None:
                left.remove(each)
            else:
                yield flow


def _identities(names: set[str], configs: Sequence[Config]) -> list[str | None]:
    """Return the identities to try: of one who may speak for the source, those that are configured, and a stranger's."""
    sections = [config.permissions.endpoints for config in configs if config.permissions is not None]
    found = {
        identity
        for endpoints in sections
        for name in names & endpoints.keys()
        for identity in endpoints[name].identities or ()
        if identity != ANY_AUTHORITY
    }
    checks = any(endpoints[name].identities for endpoints in sections for name in names & endpoints.keys())
    return [None, *sorted(found), *([_STRANGER] if checks else [])]


def _levels(configs: Sequence[Config]) -> list[int | None]:
    """Return the permission levels to try: none, and each that some method demands or some endpoint believes."""
    found = {0}
    for config in configs:
        if config.permissions is not None:
            found |= {method.permission_level for method in config.permissions.methods}
            found |= {section.max_permission_level for section in config.permissions.endpoints.values()}
    return [None, *sorted(found - {0})]
