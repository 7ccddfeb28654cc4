"""What is judged beforehand is what the router then does: for random routes, permissions, subscriptions and messages."""

import asyncio
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.config.models import Config
from streamer.features.flow import Flow
from streamer.features.judge.changed import changed_settings
from streamer.features.judge.diff import Comparison, Kind, Side
from streamer.features.judge.judge import Judgement, Known, judge, why_not
from streamer.features.judge.representative import representatives
from streamer.routing.interest import Interest
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import RoutingTable
from streamer.uprotocol.message import Attributes, Provenance, UMessage, UMessageType, UPriority
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.examples import examples
from tests.flow.harness import RouterHarness
from tests.flow.interested import want

NAMES = ["veh1", "phone1", "fleet", "gateway.veh1"]
RESOURCES = [0, 7, 0x8000, 0x8001]
PATTERNS = ["//*/FFFFFFFF/FF/FFFF", "//veh1/A/1/FFFF", "//veh1/FFFFFFFF/FF/8000", "//fleet/A/1/8001"]
ANYTHING = ["//*/FFFFFFFF/FF/FFFF", "//veh1/A/FF/FFFF", "//fleet/FFFFFFFF/FF/FFFF", "//phone1/A/1/0"]

addresses = st.builds(UUri, st.sampled_from(NAMES), st.sampled_from([0xA, 0xB]), st.just(1), st.sampled_from(RESOURCES))
classes = st.sampled_from(["CS0", "CS2", "CS6"])
rules = st.one_of(
    st.fixed_dictionaries({"allow": st.fixed_dictionaries({"from": st.sampled_from(ANYTHING), "max_priority": classes})}),
    st.fixed_dictionaries({"deny": st.fixed_dictionaries({"to": st.sampled_from(ANYTHING)})}),
)
sections = st.fixed_dictionaries(
    {"rules": st.lists(rules, max_size=4)},
    optional={
        "max_priority": classes,
        "max_permission_level": st.integers(0, 3),
        "identities": st.just({"one": ["veh1", "fleet"], "two": ["*"], "phone1": ["{identity}"]}),
    },
)
ENDS = [("vehicle", "cloud"), ("vehicle", "phone"), ("cloud", "vehicle"), ("phone", "cloud"), ("cloud", "phone")]


@st.composite
def configurations(draw: st.DrawFn) -> Config:
    endpoints = {
        name: {"transport": "memory", "authorities": authorities, "options": {"sink_authority": draw(st.booleans())}}
        for name, authorities in (("vehicle", ["veh1"]), ("phone", ["phone1"]), ("cloud", ["*"]))
    }
    routes = [
        {"from": start, "to": end, "publish": draw(st.lists(st.sampled_from(_from(start)), max_size=2, unique=True))}
        for start, end in draw(st.lists(st.sampled_from(ENDS), max_size=5, unique=True))
    ]
    permissions: dict[str, Any] | None = None
    if draw(st.booleans()):
        found = {name: draw(sections) for name in draw(st.lists(st.sampled_from(list(endpoints)), unique=True))}
        methods = [{"method": "//veh1/A/1/7", "permission_level": draw(st.integers(0, 3))}]
        permissions = {"endpoints": {name: _fitting(section, name) for name, section in found.items()}, "methods": methods}
    raw = {"authority": "gateway.veh1", "endpoints": endpoints, "routes": routes, "permissions": permissions}
    return Config.model_validate(raw)


def _from(start: str) -> list[str]:
    """The patterns that may match at an endpoint; others are refused."""
    return [pattern for pattern in PATTERNS if _comes_in(pattern, start)]


def _comes_in(pattern: str, endpoint: str) -> bool:
    homes = {"vehicle": "//veh1/", "phone": "//phone1/"}
    if pattern.startswith("//*/"):
        return True
    return pattern.startswith(homes[endpoint]) if endpoint in homes else not pattern.startswith(tuple(homes.values()))


def _fitting(section: dict[str, Any], endpoint: str) -> dict[str, Any]:
    """A section whose rules and identities are about sources that may come in at the endpoint."""
    kept = [rule for rule in section["rules"] if "deny" in rule or _comes_in(rule["allow"]["from"], endpoint)]
    identities = section.get("identities")
    names = {"vehicle": ["veh1"], "phone": ["phone1"], "cloud": ["fleet"]}[endpoint]
    if identities is not None:
        identities = {"one": names, "two": ["*"], "phone1": ["{identity}"]}
    return section | {"rules": kept, "identities": identities}


flows = st.builds(
    Flow,
    st.sampled_from([kind for kind in UMessageType if kind]),
    addresses,
    st.none() | addresses,
    st.sampled_from(["vehicle", "cloud", "phone"]),
    st.sampled_from(["", "one", "two", "phone1"]),
    st.sampled_from([UPriority.CS0, UPriority.CS4, UPriority.CS6]),
    st.sampled_from([None, 0, 1, 2, 3]),
).filter(lambda flow: flow.kind is UMessageType.PUBLISH or flow.sink is not None)


def message_of(flow: Flow, now_ms: int) -> UMessage:
    attributes = Attributes(
        flow.kind,
        flow.source,
        flow.sink,
        flow.priority,
        ttl=1000 if flow.kind is UMessageType.REQUEST else None,
        permission_level=flow.permission_level,
        reqid=new_id(now_ms) if flow.kind is UMessageType.RESPONSE else None,
        provenance=Provenance(flow.identity or None),
    )
    return UMessage(new_id(now_ms), attributes)


async def routed(config: Config, flow: Flow, interested: dict[str, int]) -> None:
    async with RouterHarness(config, addressed=tuple(config.addressed)) as harness:
        router = harness.router
        await want(harness, flow.source, interested)
        judgement = judge(flow, Known(router.table, router.interest, PauseRules()))
        message = message_of(flow, harness.clock.ms)
        resolved = router.ingresses[flow.ingress]._resolver.decided(message.attributes)
        assert resolved.failure == judgement.failure
        if not message.attributes.problems:
            harness.arrive(flow.ingress, message)
        check_sent(harness, judgement)
        known = Known(router.table, router.interest, PauseRules())
        for route in router.table.routes:
            taken = any(hop.route.name == route.name for hop in judgement.hops)
            assert bool(why_not(judgement, route, known)) != taken, route.name


def check_sent(harness: RouterHarness, judgement: Judgement) -> None:
    """What has left is what was judged: through the same endpoints, to the same sinks, in the same class and level."""
    for name in harness.transports:
        hops = [hop for hop in judgement.hops if hop.route.target == name]
        sent = [each.attributes for each in harness.sent(name) if each.attributes.source == judgement.flow.source]
        if judgement.failure is None:
            assert sorted(str(each.sink) for each in sent) == sorted(str(hop.sink) for hop in hops)
        for each in sent if judgement.failure is None else ():
            assert UPriority(each.priority_class + 1) is judgement.priority
            assert each.permission_level == judgement.level


@given(configurations(), flows, st.dictionaries(st.sampled_from(["veh1", "phone1", "fleet"]), st.just(0), max_size=2))
@settings(max_examples=examples(300))
def test_the_router_does_what_was_judged(config: Config, flow: Flow, interested: dict[str, int]) -> None:
    asyncio.run(routed(config, flow, interested))


def test_the_same_message_is_judged_as_the_router_lowers_it() -> None:
    config = Config.model_validate(
        {
            "authority": "gateway.veh1",
            "endpoints": {
                "vehicle": {"transport": "memory", "authorities": ["veh1"]},
                "cloud": {"transport": "memory", "authorities": ["*"]},
            },
            "routes": [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}],
            "permissions": {"endpoints": {"vehicle": {"rules": [{"allow": {"max_priority": "CS2"}}]}}},
        }
    )
    flow = Flow(UMessageType.PUBLISH, UUri("veh1", 0xA, 1, 0x8000), None, "vehicle", "", UPriority.CS6, 3)
    asyncio.run(routed(config, flow, {}))
    asyncio.run(routed(config, replace_kind(flow), {}))


def replace_kind(flow: Flow) -> Flow:
    return flow._replace(kind=UMessageType.NOTIFICATION, sink=UUri("fleet", 0xA, 1, 0))


def side(config: Config) -> Side:
    table = RoutingTable.from_config(config, config.addressed)
    return Side(config, Known(table, Interest(), PauseRules()))


def shuffled(config: Config, random: Random) -> Config:
    """The same configuration with another order of all that has none."""
    raw = config.model_dump(mode="json", by_alias=True)
    for route in raw["routes"]:
        random.shuffle(route["publish"])
        route |= route.pop("queue_policy")
    names = list(raw["endpoints"])
    random.shuffle(names)
    raw["endpoints"] = {name: raw["endpoints"][name] for name in names}
    return Config.model_validate(raw)


@given(configurations(), st.lists(flows, max_size=5), st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_what_means_the_same_differs_in_nothing(config: Config, several: list[Flow], random: Random) -> None:
    other = shuffled(config, random)
    comparison = Comparison(side(config), side(other))
    for flow in (*several, *representatives(config, other).flows):
        comparison.add(flow)
    assert comparison.found == []
    assert changed_settings(config, other) == []


@given(configurations(), configurations(), st.lists(flows, min_size=1, max_size=5))
@settings(max_examples=examples(100))
def test_a_difference_is_found_exactly_where_the_router_would_do_something_else(
    before: Config, after: Config, several: list[Flow]
) -> None:
    for flow in several:
        comparison = Comparison(side(before), side(after))
        comparison.add(flow)
        was, is_now = (outcome(config, flow) for config in (before, after))
        is_loss = any(kind.is_loss for kind in comparison.kinds)
        assert is_loss or not was or is_now
        assert not is_loss or not is_now
        assert bool(comparison.kinds & {Kind.ALLOWED, Kind.ROUTED}) == bool(is_now and not was)
        assert (Kind.MOVED in comparison.kinds) == bool(was and is_now and was != is_now)


def outcome(config: Config, flow: Flow) -> set[tuple[str, str]]:
    judgement = judge(flow._replace(identity=""), side(config).known)  # these networks prove none
    return {(hop.route.target, str(hop.sink)) for hop in judgement.hops}
