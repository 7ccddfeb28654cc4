"""decide() for what is addressed to the streamer's own services, and for what they say."""

import pytest

from streamer.config.models import with_sections
from streamer.routing.decide import decide
from streamer.routing.outcome import Outcome
from streamer.routing.table import RoutingTable
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, EntityId
from tests.unit.routing.serving import Serving

SERVICES = RoutingTable.from_config(
    with_sections({"serving": Serving}).model_validate(
        {
            "authority": "gw",
            "endpoints": {
                "mqtt": {"transport": "memory", "authorities": ["veh1"]},
                "zenoh": {"transport": "memory", "authorities": ["veh1", "hpc"]},
                "cloud": {"transport": "memory", "authorities": ["backend", "*"]},
            },
            "routes": [{"from": "zenoh", "to": "cloud"}],
            "serving": {},
        }
    ),
    ["cloud"],
    [EntityId(0, 3), EntityId(4, 1)],
)
SUBSCRIBE = UUri("veh1", 0, 3, 1)
APP = UUri("veh1", 0xB, 1, 0)
REQUEST, RESPONSE, NOTIFICATION = UMessageType.REQUEST, UMessageType.RESPONSE, UMessageType.NOTIFICATION


@pytest.mark.parametrize(
    "sink",
    [SUBSCRIBE, UUri("gw", 0, 3, 1), UUri("", 0, 3, 1), UUri("gw", 4, 1, 1), UUri("hpc", 0, 3, 1)],
    ids=["of the device", "of ours", "no authority", "core.ustreamer", "of another one here"],
)
def test_what_is_addressed_to_a_service_goes_there(sink: UUri) -> None:
    (hop,) = decide(REQUEST, APP, sink, "zenoh", SERVICES).hops
    assert (hop.route.target, hop.sink) == (LOCAL_ENDPOINT, sink if sink.authority else SUBSCRIBE)


def test_services_are_those_of_networks_that_do_not_connect_devices_unless_told() -> None:
    assert {authority for authority, *_ in SERVICES.services} == {"gw", "veh1", "hpc"}
    elsewhere = decide(REQUEST, APP, UUri("backend", 0, 3, 1), "zenoh", SERVICES)
    assert [hop.route.target for hop in elsewhere.hops] == ["cloud"]


def test_a_service_of_the_same_name_may_ask_ours_but_an_echo_goes_nowhere() -> None:
    """Reset comes from ue_id 0, perhaps of our own device; what we said ourselves may come back."""
    namesake = UUri("veh1", 0, 3, 0)
    (hop,) = decide(REQUEST, namesake, SUBSCRIBE._replace(resource=9), "zenoh", SERVICES).hops
    assert hop.route.target == LOCAL_ENDPOINT
    for kind, source in ((RESPONSE, SUBSCRIBE), (NOTIFICATION, UUri("veh1", 0, 3, 0x8000))):
        failure = decide(kind, source, APP, "zenoh", SERVICES).failure
        assert failure is not None
        assert failure.outcome is Outcome.LOCAL


def test_what_a_service_says_goes_to_every_network_of_its_sink() -> None:
    decision = decide(RESPONSE, SUBSCRIBE, APP, LOCAL_ENDPOINT, SERVICES)
    assert [(hop.route.target, hop.sink) for hop in decision.hops] == [("mqtt", APP), ("zenoh", APP)]
    far = decide(REQUEST, UUri("gw", 0, 3, 0), UUri("phone", 0, 3, 1), LOCAL_ENDPOINT, SERVICES)
    assert [hop.route.target for hop in far.hops] == ["cloud"]


def test_a_service_of_ours_that_is_not_there_is_unavailable() -> None:
    failure = decide(REQUEST, APP, UUri("gw", 9, 1, 1), "zenoh", SERVICES).failure
    assert failure is not None
    assert (failure.outcome, failure.code) == (Outcome.REJECTED, UCode.UNAVAILABLE)


def test_what_a_service_publishes_goes_to_the_networks_of_its_device_and_to_those_interested() -> None:
    changes = UUri("veh1", 0, 4, 0x8000)
    decision = decide(UMessageType.PUBLISH, changes, None, LOCAL_ENDPOINT, SERVICES)
    assert [(hop.route.target, hop.sink) for hop in decision.hops] == [("mqtt", None), ("zenoh", None)]
    of_ours = decide(UMessageType.PUBLISH, changes._replace(authority="gw"), None, LOCAL_ENDPOINT, SERVICES)
    assert [hop.route.target for hop in of_ours.hops] == ["mqtt", "zenoh"]
    interested = decide(UMessageType.PUBLISH, changes, None, LOCAL_ENDPOINT, SERVICES, {"phone": 50, "hpc": 70})
    assert [(hop.route.target, hop.sink, hop.period_ms) for hop in interested.hops] == [
        ("mqtt", None, 0),
        ("zenoh", None, 0),
        ("cloud", everything_at("phone"), 50),
    ]
    nowhere = decide(UMessageType.PUBLISH, changes._replace(authority="backend"), None, LOCAL_ENDPOINT, SERVICES)
    assert nowhere.failure is not None
    assert nowhere.failure.outcome is Outcome.UNWANTED
