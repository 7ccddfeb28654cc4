"""Who may ask the streamer's services for what, by the configuration."""

from typing import Any

import pytest

from streamer.features.every import FILE
from streamer.features.host.access import Access, Caller, SubscribeRule
from streamer.uprotocol.uri import UUri
from tests.configurations import config_of, endpoint_of
from tests.unit.features.host.patterns import entities_at

INSIDE, ALSO_INSIDE, OPEN = (UUri("veh1", 0xA, 1, resource) for resource in (0x8001, 0x8002, 0x9000))
VEHICLE, BACKEND, EVIL = (UUri(authority, 0xC, 1, 0) for authority in ("veh1", "backend", "evil"))


def access(**changes: Any) -> Access:
    """A vehicle and a broker, by which anybody can be reached, and where the backend is named."""
    raw: dict[str, Any] = config_of(
        {"vehicle": endpoint_of("memory", "veh1"), "broker": endpoint_of("memory", "backend", "*", sink_authority=True)},
        [
            {"from": "vehicle", "to": "broker", "publish": ["//veh1/A/1/9000"]},
            {"from": "broker", "to": "vehicle", "publish": ["//backend/C/1/FFFF"]},
        ],
    )
    config = FILE.model_validate(raw | changes)
    return Access.from_config(config)


def subscribing(*rules: tuple[str, list[str]]) -> Access:
    return access(usubscription={"subscribe": [{"from": who, "topics": topics} for who, topics in rules]})


def test_local_uentities_may_have_everything() -> None:
    assert all(access().may_subscribe(VEHICLE, topic) for topic in (INSIDE, OPEN, UUri("far", 1, 1, 0x8000)))
    assert access().may_subscribe(UUri("gw", 1, 1, 0), INSIDE)


def test_without_a_list_named_authorities_may_have_everything_and_strangers_nothing() -> None:
    found = access()
    assert all(found.may_subscribe(BACKEND, topic) for topic in (INSIDE, OPEN))
    assert not any(found.may_subscribe(EVIL, topic) for topic in (INSIDE, OPEN))


def test_with_a_list_a_named_authority_may_have_what_a_route_publishes_to_it_and_nothing_else() -> None:
    found = subscribing()
    assert found.may_subscribe(BACKEND, OPEN)
    assert not found.may_subscribe(BACKEND, INSIDE)


def test_invented_authority_may_have_nothing() -> None:
    assert not any(access().may_subscribe(EVIL, topic) for topic in (INSIDE, OPEN))
    assert not access().may_subscribe(UUri("*", 1, 1, 0), OPEN)


def test_broker_gets_no_more_copies_than_the_route_makes_anyway() -> None:
    """publish_to says who a Publish is for: subscribing adds nobody."""
    routes = [{"from": "vehicle", "to": "broker", "publish": ["//veh1/A/1/9000"], "publish_to": ["archive"]}]
    found = access(routes=routes, usubscription={"subscribe": []})
    assert found.may_subscribe(UUri("archive", 1, 1, 0), OPEN)
    assert not found.may_subscribe(BACKEND, OPEN)


def test_authority_that_lives_elsewhere_is_not_made_one_of_the_route() -> None:
    endpoints = {
        "vehicle": {"transport": "memory", "authorities": ["veh1"]},
        "broker": {"transport": "memory", "authorities": ["backend"], "options": {"sink_authority": True}},
        "phone": {"transport": "memory", "authorities": ["phone1"], "global": True},
    }
    routes = [{"from": "vehicle", "to": "broker", "publish": ["//veh1/A/1/9000"], "publish_to": ["backend", "phone1"]}]
    found = access(endpoints=endpoints, routes=routes, usubscription={"subscribe": []})
    assert not found.may_subscribe(UUri("phone1", 1, 1, 0), OPEN)


def test_list_permits_more_by_uentity_and_by_topic() -> None:
    found = subscribing(("//backend/C/1/0", ["//veh1/A/1/8001"]), ("//peer/0/3/0", ["//veh1/FFFFFFFF/FF/FFFF"]))
    assert found.may_subscribe(BACKEND, INSIDE)
    assert not found.may_subscribe(BACKEND, ALSO_INSIDE)
    assert not found.may_subscribe(BACKEND._replace(ue_id=0xD), INSIDE)
    assert found.may_subscribe(UUri("peer", 0, 3, 0), ALSO_INSIDE)
    assert not found.may_subscribe(UUri("peer", 1, 3, 0), ALSO_INSIDE)
    assert not found.may_subscribe(UUri("peer", 0, 3, 0), UUri("other", 1, 1, 0x8000))


def test_known_is_whom_the_configuration_speaks_of() -> None:
    found = subscribing(("//peer/0/3/0", ["//veh1/FFFFFFFF/FF/FFFF"]))
    assert [found.is_named(name) for name in ("veh1", "gw", "backend", "peer", "evil")] == [True, True, True, False, False]
    assert found.is_known(UUri("peer", 0, 3, 0))
    assert not found.is_known(UUri("peer", 1, 3, 0))
    assert not found.is_known(EVIL)


def test_provider_may_resolve_its_own_ids() -> None:
    assert access().may_resolve(EVIL, UUri("evil", 1, 1, 0x8000))
    assert not access().may_resolve(EVIL, INSIDE)
    assert access().may_resolve(BACKEND, OPEN)


@pytest.mark.parametrize("key", ["fetch", "reset"])
def test_by_default_only_local_uentities_list_and_reset(key: str) -> None:
    found, listed, nobody = access(), access(usubscription={key: ["//backend/C/1/0"]}), access(usubscription={key: []})

    def may(who: Access, uri: UUri) -> bool:
        return who.may_fetch(uri) if key == "fetch" else who.may_reset(uri)

    assert [may(found, uri) for uri in (VEHICLE, BACKEND, EVIL)] == [True, False, False]
    assert [may(listed, uri) for uri in (VEHICLE, BACKEND, EVIL)] == [False, True, False]
    assert [may(nobody, uri) for uri in (VEHICLE, BACKEND, EVIL)] == [False, False, False]


def test_by_default_nobody_pauses() -> None:
    assert not any(access().may_control(uri) for uri in (VEHICLE, BACKEND, EVIL))
    found = access(control={"allow": ["//veh1/FFFFFFFF/FF/0"]})
    assert [found.may_control(uri) for uri in (VEHICLE, BACKEND, EVIL)] == [True, False, False]


def test_without_the_service_permissions_are_those_of_the_routes() -> None:
    found = access(usubscription=None)
    assert [found.may_subscribe(uri, OPEN) for uri in (VEHICLE, BACKEND, EVIL)] == [True, True, False]


def test_caller_is_said_with_the_endpoints_behind_which_it_lives() -> None:
    assert access().caller(VEHICLE) == Caller("//veh1/C/1/0", "vehicle")
    assert access().caller(EVIL) == Caller("//evil/C/1/0", "broker")
    assert Access("gw", frozenset()).caller(EVIL).where == "nowhere"


def test_pattern_of_an_authority_matches_its_uentities_only() -> None:
    assert entities_at("veh1").matches(VEHICLE)
    assert not entities_at("veh1").matches(BACKEND)
    assert not entities_at("veh1").matches(INSIDE)
    rule = SubscribeRule(entities_at("*"), (INSIDE,))
    assert Access("gw", frozenset(), subscribe=(rule,)).may_subscribe(EVIL, INSIDE)
