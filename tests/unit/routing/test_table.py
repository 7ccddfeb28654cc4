"""The routing table: where authorities live, which routes lead where, and what a configuration makes of it."""

from typing import Any

import pytest

from streamer.config.models import Config, with_sections
from streamer.routing.table import RoutingTable, connecting, local_authorities
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USTREAMER, USUBSCRIPTION
from tests.unit.routing.serving import Serving

TOPIC = "//veh1/A/1/8000"
FILE = with_sections({"serving": Serving})


def configuration(endpoints: dict[str, Any] | None = None, **changes: Any) -> Config:
    """`vehicle` (veh1, veh2), `cloud` (everyone) and `phone` (phone1), and two routes."""
    lives: dict[str, Any] = {
        "vehicle": {"authorities": ["veh1", "veh2"]},
        "cloud": {"authorities": ["*"]},
        "phone": {"authorities": ["phone1"]},
    }
    raw: dict[str, Any] = {
        "authority": "gateway",
        "endpoints": {
            name: {"transport": "memory"} | keys | (endpoints or {}).get(name, {}) for name, keys in lives.items()
        },
        "routes": [{"from": "vehicle", "to": "cloud", "publish": [TOPIC]}, {"from": "cloud", "to": "vehicle"}],
    }
    return FILE.model_validate(raw | changes)


def table(config: Config | None = None, addressed: tuple[str, ...] = (), services: bool = False) -> RoutingTable:
    entities = (USTREAMER, USUBSCRIPTION) if services else ()
    return RoutingTable.from_config(config or configuration(), addressed, entities)


# where authorities live


@pytest.mark.parametrize(("authority", "homes"), [("veh1", ("vehicle",)), ("phone1", ("phone",)), ("fleet", ("cloud",))])
def test_an_authority_lives_where_it_is_named_and_else_behind_the_endpoint_for_everyone(
    authority: str, homes: tuple[str, ...]
) -> None:
    assert table().homes(authority) == homes


def test_an_authority_may_live_behind_several_endpoints() -> None:
    found = table(configuration({"phone": {"authorities": ["phone1", "veh1"]}}))
    assert found.homes("veh1") == ("vehicle", "phone")


def test_without_an_endpoint_for_everyone_others_live_nowhere() -> None:
    assert table(configuration({"cloud": {"authorities": ["fleet"]}})).homes("stranger") == ()


# routes


def test_a_route_is_named_after_its_endpoints_unless_it_has_a_name() -> None:
    routes = [{"from": "vehicle", "to": "cloud", "name": "telemetry"}, {"from": "cloud", "to": "vehicle"}]
    assert [route.name for route in table(configuration(routes=routes)).routes] == ["telemetry", "cloud-vehicle"]


def test_a_route_has_its_patterns_and_its_own_queue_policy() -> None:
    routes = [{"from": "vehicle", "to": "cloud", "publish": [TOPIC], "window": 7}]
    (route,) = table(configuration(routes=routes, queue_policy={"window": 5, "absent_s": 3})).routes
    assert route.publish == (UUri.parse(TOPIC),)
    assert (route.policy.window, route.policy.absent_s) == (7, 3)


def test_a_publish_is_addressed_to_the_far_endpoint_or_to_those_that_the_route_names() -> None:
    routes = [{"from": "cloud", "to": "vehicle"}, {"from": "vehicle", "to": "cloud", "publish_to": ["fleet"]}]
    assert [route.publish_to for route in table(configuration(routes=routes)).routes] == [("veh1", "veh2"), ("fleet",)]


def test_routes_of_an_endpoint_are_in_the_order_of_the_configuration() -> None:
    routes = [{"from": "vehicle", "to": to} for to in ("phone", "cloud")] + [{"from": "cloud", "to": "vehicle"}]
    found = table(configuration(routes=routes), services=True)
    assert [route.target for route in found.routes_from("vehicle")] == ["phone", "cloud"]
    assert [route.target for route in found.all_from("vehicle")] == ["phone", "cloud", LOCAL_ENDPOINT]


# our own services


def test_without_services_no_route_leads_to_them() -> None:
    found = table()
    assert (found.inner, found.services, found.to_services("vehicle")) == ((), frozenset(), None)


def test_every_endpoint_has_a_route_to_the_services_and_one_back() -> None:
    found = table(services=True)
    to = found.to_services("cloud")
    assert to is not None
    assert (to.name, to.source, to.target) == (f"cloud/{LOCAL_ENDPOINT}", "cloud", LOCAL_ENDPOINT)
    assert [route.target for route in found.routes_from(LOCAL_ENDPOINT)] == ["vehicle", "cloud", "phone"]
    assert {(route.source, route.target) for route in found.inner} == {
        *((name, LOCAL_ENDPOINT) for name in found.authorities),
        *((LOCAL_ENDPOINT, name) for name in found.authorities),
    }


def test_a_service_refuses_requests_beyond_its_bound_and_its_own_messages_hold_nothing_up() -> None:
    found = table(configuration(queue_policy={"queue": {"messages": 7}}), services=True)
    policies = {(route.target == LOCAL_ENDPOINT): route.policy.queue for route in found.inner}
    assert {key: (queue.on_full, queue.messages) for key, queue in policies.items()} == {
        True: ("reject", 7),
        False: ("evict", 7),
    }


def test_services_live_at_our_own_authority() -> None:
    assert ("gateway", *USTREAMER) in table(services=True).services
    assert ("veh1", *USTREAMER) not in table(services=True).services


def test_a_section_says_which_service_is_that_of_all_devices_on_this_side() -> None:
    found = table(configuration({"cloud": {"global": True}}, serving={}), services=True)
    entities = {authority for authority, *entity in found.services if tuple(entity) == USUBSCRIPTION}
    assert entities == {"gateway", "veh1", "veh2", "phone1"}


def test_without_such_a_section_a_service_lives_at_our_own_authority_only() -> None:
    assert table(services=True).services == {("gateway", *USTREAMER), ("gateway", *USUBSCRIPTION)}


# networks that connect devices


def test_a_network_connects_devices_if_a_publish_needs_an_address_there_unless_the_configuration_says_otherwise() -> None:
    assert connecting(configuration(), ("cloud",)) == {"cloud"}
    assert connecting(configuration({"phone": {"global": True}, "cloud": {"global": False}}), ("cloud",)) == {"phone"}


def test_devices_on_other_networks_are_local_by_name() -> None:
    assert local_authorities(configuration(), ("phone",)) == ("veh1", "veh2")
    assert local_authorities(configuration({"phone": {"authorities": ["veh1", "phone1"]}}), ()) == ("veh1", "veh2", "phone1")


def test_the_configuration_may_list_the_local_devices() -> None:
    assert local_authorities(configuration(serving={"local": ["veh9"]}), ()) == ("veh9",)
