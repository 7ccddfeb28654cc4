"""decide() with permissions: what needs one, what is said about it, and that nothing else changes."""

from dataclasses import replace
from typing import Any

import pytest

from streamer.config.models import QueuePolicy
from streamer.config.permissions import PermissionsConfig
from streamer.routing.decide import Decision, decide
from streamer.routing.outcome import Outcome
from streamer.routing.permissions import Permissions
from streamer.routing.table import RoutingTable, TableRoute
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

PUBLISH, REQUEST = UMessageType.PUBLISH, UMessageType.REQUEST
NOTIFICATION = UMessageType.NOTIFICATION
SPEED = UUri("veh1", 0xA8000, 2, 0x8A50)
CLOUD_APP = UUri("cloud", 0xC0, 1, 0)
NEWS = UUri("cloud", 0xC0, 1, 0x9000)
VEHICLE_APP = UUri("veh1", 0xA, 1, 0)
METHOD = VEHICLE_APP._replace(resource=7)
SUBSCRIBE = UUri("veh1", 0, 3, 1)


def route(source: str, target: str) -> TableRoute:
    return TableRoute(f"{source}-{target}", source, target, (), (), QueuePolicy())


def table(*cloud: dict[str, Any], **section: Any) -> RoutingTable:
    """The vehicle's uSubscription service is ours; `cloud` has these rules."""
    config = {"endpoints": {"cloud": {"rules": list(cloud), **section}}}
    return RoutingTable(
        "gateway",
        {"vehicle": ("veh1",), "cloud": ("*",)},
        (route("vehicle", "cloud"), route("cloud", "vehicle")),
        frozenset(),
        services=frozenset({("veh1", 0, 3)}),
        inner=tuple(
            route(*ends) for name in ("vehicle", "cloud") for ends in ((name, LOCAL_ENDPOINT), (LOCAL_ENDPOINT, name))
        ),
        permissions=Permissions(PermissionsConfig.model_validate(config)),
    )


def denied(decision: Decision) -> str:
    """By which rule."""
    assert decision.hops == ()
    assert decision.is_denied
    assert decision.failure is not None
    assert decision.failure[:2] == (Outcome.REJECTED, UCode.PERMISSION_DENIED)
    assert decision.why == (decision.failure.text,)
    return decision.failure.text


def test_what_is_allowed_says_by_which_rule_and_goes_where_it_would_without_permissions() -> None:
    guarded = table({"deny": {"to": "//veh1/B/1/7"}}, {"allow": {}})
    decision = decide(REQUEST, CLOUD_APP, METHOD, "cloud", guarded)
    free = decide(REQUEST, CLOUD_APP, METHOD, "cloud", replace(guarded, permissions=None))
    assert decision.hops == free.hops
    assert decision.why == ("permissions.endpoints.cloud.rules[1] allows it", *free.why)
    assert decision.permit is not None
    assert free.permit is None


def test_what_is_denied_goes_nowhere_and_says_by_which_rule() -> None:
    by = denied(decide(REQUEST, CLOUD_APP, METHOD, "cloud", table({"deny": {"to": str(METHOD)}}, {"allow": {}})))
    assert by == "permissions.endpoints.cloud.rules[0] denies it"


def test_our_services_are_reached_by_the_same_rules() -> None:
    guarded = table({"allow": {"to": str(METHOD)}})
    assert denied(decide(REQUEST, CLOUD_APP, SUBSCRIBE, "cloud", guarded))
    allowed = decide(REQUEST, CLOUD_APP, SUBSCRIBE, "cloud", table({"allow": {"to": "//veh1/0/3/1"}}))
    assert [hop.route.target for hop in allowed.hops] == [LOCAL_ENDPOINT]


def test_a_sink_without_authority_is_that_of_the_service_it_reaches() -> None:
    of_the_cloud = UUri("", 0, 3, 1)
    guarded = replace(table({"deny": {"to": "//cloud/0/3/1"}}, {"allow": {}}), services=frozenset({("cloud", 0, 3)}))
    assert denied(decide(REQUEST, CLOUD_APP, of_the_cloud, "cloud", guarded))


def test_what_our_services_send_is_allowed() -> None:
    answer = decide(UMessageType.RESPONSE, SUBSCRIBE, CLOUD_APP, LOCAL_ENDPOINT, table())
    assert [hop.route.target for hop in answer.hops] == ["cloud"]


def test_a_publish_that_somebody_is_interested_in_needs_a_permit() -> None:
    assert denied(decide(PUBLISH, NEWS, None, "cloud", table(), {"veh1": 0}))
    assert decide(PUBLISH, NEWS, None, "cloud", table({"allow": {"to": str(NEWS)}}), {"veh1": 0}).hops


def test_what_goes_nowhere_quietly_needs_no_permit() -> None:
    unwanted = decide(PUBLISH, NEWS, None, "cloud", table())
    arrived = decide(NOTIFICATION, NEWS, CLOUD_APP, "cloud", table())
    assert [each.failure and each.failure.outcome for each in (unwanted, arrived)] == [Outcome.UNWANTED, Outcome.LOCAL]


@pytest.mark.parametrize("sink", [UUri("gateway", 9, 1, 7), UUri("veh9", 9, 1, 7)], ids=["no entity of ours", "no route"])
def test_who_is_denied_is_told_the_same_whatever_there_is(sink: UUri) -> None:
    guarded = replace(table(), authorities={"vehicle": ("veh1",), "cloud": ("*",), "far": ("veh9",)})
    free = decide(REQUEST, CLOUD_APP, sink, "cloud", replace(guarded, permissions=None))
    assert free.failure is not None
    assert not free.is_denied
    assert denied(decide(REQUEST, CLOUD_APP, sink, "cloud", guarded))


def test_a_source_that_lives_elsewhere_is_unauthenticated_whatever_the_rules_say() -> None:
    decision = decide(NOTIFICATION, SPEED, CLOUD_APP, "cloud", table({"allow": {}}))
    assert decision.failure is not None
    assert decision.failure.code is UCode.UNAUTHENTICATED


def test_an_identity_that_may_not_speak_for_the_source_is_unauthenticated() -> None:
    guarded = table({"allow": {}}, identities={"backend-7f": ["cloud"]})
    for identity, is_allowed in (("backend-7f", True), ("other", False), (None, False)):
        decision = decide(REQUEST, CLOUD_APP, METHOD, "cloud", guarded, identity=identity)
        assert bool(decision.hops) is is_allowed
        if decision.failure is not None:
            assert (decision.failure.code, decision.is_denied) == (UCode.UNAUTHENTICATED, True)
