"""One judgement for `explain`, `test`, `diff` and a careful reload."""

from typing import Any

import pytest

from streamer.config.models import Config
from streamer.features.flow import TYPES, Flow
from streamer.features.judge.judge import Known, UnclearQuestionError, judge, why_not
from streamer.routing.interest import Interest
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import RoutingTable
from streamer.uprotocol.message import UMessageType, UPriority
from streamer.uprotocol.uri import UUri

SPEED = "//veh1/A8000/2/8A50"
RULES = [{"deny": {"to": "//veh1/A/1/8"}}, {"allow": {"max_priority": "CS4", "rate": {"messages": 5}}}]


def config(**changes: Any) -> Config:
    return Config.model_validate(
        {
            "authority": "gateway.veh1",
            "endpoints": {
                "vehicle": {"transport": "memory", "authorities": ["veh1"]},
                "cloud": {"transport": "memory", "authorities": ["*"], "options": {"sink_authority": True}},
                "spare": {"transport": "memory", "authorities": ["*"]},
            },
            "routes": [
                {"from": "vehicle", "to": "cloud", "publish": ["//veh1/A8000/2/FFFF"], "publish_to": ["fleet"]},
                {"from": "vehicle", "to": "spare"},
                {"from": "cloud", "to": "vehicle"},
            ],
        }
        | changes
    )


def known(permissions: dict[str, Any] | None = None, **changes: Any) -> Known:
    made = config(**changes, permissions=permissions)
    return Known(RoutingTable.from_config(made, made.addressed), Interest(), PauseRules())


def flow(kind: str, source: str, sink: str | None = None, **more: Any) -> Flow:
    return Flow(TYPES[kind], UUri.parse(source), None if sink is None else UUri.parse(sink), **more)


def reasons(route: str, asked: Flow, known: Known) -> list[str]:
    (found,) = (each for each in known.table.routes if each.name == route)
    return why_not(judge(asked, known), found, known)


def test_the_ceiling_of_the_rule_lowers_the_class_that_a_message_claims() -> None:
    permissions = {"endpoints": {"vehicle": {"rules": RULES}}}
    for claimed, treated in ((UPriority.CS6, UPriority.CS4), (UPriority.CS2, UPriority.CS2)):
        judged = judge(flow("publish", SPEED, priority=claimed), known(permissions))
        assert (judged.priority, judged.is_denied) == (treated, False)
    assert judge(flow("publish", SPEED, priority=UPriority.CS6), known()).priority is UPriority.CS6


@pytest.mark.parametrize(("kind", "claimed"), [("publish", "CS1"), ("request", "CS4"), ("response", "CS4")])
def test_a_class_that_is_not_known_is_the_least_that_the_type_allows(kind: str, claimed: str) -> None:
    assert Flow(TYPES[kind], UUri.parse(SPEED), None).claimed.name == claimed


def test_an_identity_that_is_not_known_is_one_that_may_speak_for_the_source() -> None:
    section = {"identities": {"backend-7f": ["fleet"], "*": ["{identity}"]}, "rules": RULES}
    there = known({"endpoints": {"cloud": section}})
    asked = flow("request", "//fleet/C/1/0", "//veh1/A/1/7", ingress="cloud")
    assert judge(asked, there).identity == "backend-7f"
    assert judge(asked._replace(source=UUri.parse("//phone/C/1/0")), there).identity == "phone"
    unproven = judge(asked._replace(identity=""), there)
    assert unproven.failure is not None
    assert unproven.failure.code.name == "UNAUTHENTICATED"
    assert judge(asked, known()).identity is None


def test_further_interest_is_one_more_reason_to_go() -> None:
    asked = flow("publish", "//veh1/B/1/8000")
    assert judge(asked, known()).hops == ()
    judged = judge(asked, known(), {"fleet": 200})
    assert [(hop.route.target, hop.period_ms) for hop in judged.hops] == [("cloud", 200), ("spare", 200)]


@pytest.mark.parametrize("source", ["/A8000/2/8A50", SPEED])
def test_the_judgement_says_where_the_message_comes_in(source: str) -> None:
    ingress = "vehicle" if source.startswith("/A") else ""
    judged = judge(flow("publish", source, ingress=ingress), known())
    assert (str(judged.flow.source), judged.flow.ingress) == (SPEED, "vehicle")


def test_a_question_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UnclearQuestionError, match="no endpoint 'moon'"):
        judge(flow("publish", SPEED, ingress="moon"), known())
    with pytest.raises(UnclearQuestionError, match="a request needs a sink"):
        judge(flow("request", SPEED), known())


# why not


def test_a_route_that_is_taken_has_no_reasons() -> None:
    assert reasons("vehicle-cloud", flow("publish", SPEED), known()) == []


@pytest.mark.parametrize(
    ("route", "asked", "said"),
    [
        (
            "cloud-vehicle",
            flow("publish", SPEED),
            ["route cloud-vehicle begins at cloud, and the message comes in through vehicle"],
        ),
        (
            "vehicle-spare",
            flow("publish", SPEED),
            [
                f"route vehicle-spare: none of its publish patterns matches {SPEED}, nobody there is interested",
                "route vehicle-spare has no publish patterns: it carries only what somebody has subscribed to",
            ],
        ),
        (
            "vehicle-cloud",
            flow("publish", "//veh1/A8000/3/8A50"),
            [
                "route vehicle-cloud: none of its publish patterns matches //veh1/A8000/3/8A50, nobody there is interested",
                "its nearest pattern, //veh1/A8000/2/FFFF, has another version",
            ],
        ),
        (
            "vehicle-spare",
            flow("notification", SPEED, "//fleet/C/1/0"),
            ["route vehicle-spare: it leads there, too, and route vehicle-cloud comes first in the file"],
        ),
        (
            "vehicle-cloud",
            flow("publish", SPEED, ingress="cloud"),
            [
                "route vehicle-cloud begins at vehicle, and the message comes in through cloud",
                "source authority 'veh1' lives behind vehicle, not behind cloud",
            ],
        ),
        (
            "vehicle-cloud",
            flow("publish", "//veh1/A8000/2/1"),
            ["invalid attributes: source: expected a topic (resource 8000 to FFFE), found 1"],
        ),
        (
            "cloud-vehicle",
            flow("request", "//fleet/C/1/0", "//gateway.veh1/B/1/7", ingress="cloud"),
            ["this streamer has no uEntity //gateway.veh1/B/1/7"],
        ),
    ],
)
def test_every_reason_against_a_route_is_given(route: str, asked: Flow, said: list[str]) -> None:
    assert reasons(route, asked, known()) == said


def test_a_denial_does_not_hide_the_other_reasons() -> None:
    denied: dict[str, Any] = {"endpoints": {"vehicle": {"rules": [{"deny": {}}]}}}
    said = "permissions.endpoints.vehicle.rules[0] denies it"
    assert reasons("vehicle-cloud", flow("publish", SPEED), known(denied)) == [said]
    elsewhere = reasons("vehicle-cloud", flow("publish", "//veh1/B/1/8000"), known(denied))
    assert elsewhere[0].startswith("route vehicle-cloud: none of its publish patterns matches")


def test_every_part_in_which_the_nearest_pattern_differs_is_named() -> None:
    said = reasons("vehicle-cloud", flow("publish", "//veh1/B/3/8000"), known())
    assert said[-1] == "its nearest pattern, //veh1/A8000/2/FFFF, has another ue_id and another version"


def test_a_flow_survives_json() -> None:
    for each in (
        flow("publish", SPEED, ingress="vehicle", priority=UPriority.CS1, went_to=("cloud",), messages_per_day=1.5),
        flow("request", SPEED, SPEED, ingress="x\n", identity="a:#", permission_level=3, priority=UPriority.CS5),
    ):
        assert Flow.from_json(each.as_json()) == each
    assert {kind for kind in UMessageType if kind} == set(TYPES.values())


def test_a_second_route_to_where_the_sink_lives_is_named() -> None:
    """Of several endpoints that take everybody, a message with a sink goes to one; nothing said that there are others."""
    request = Flow(TYPES["request"], UUri.parse("//veh1/A/1/0"), UUri.parse("//fleet/B/1/7"), "vehicle")
    judgement = judge(request, known())
    assert [hop.route.name for hop in judgement.hops] == ["vehicle-cloud"]
    assert judgement.why[-1] == "route vehicle-spare: it leads there, too, and route vehicle-cloud comes first in the file"


@pytest.mark.parametrize(
    ("of_endpoint", "of_rule", "by"),
    [
        ("CS2", "CS6", "permissions.endpoints.vehicle.max_priority"),
        ("CS6", "CS2", "permissions.endpoints.vehicle.rules[0].allow.max_priority"),
    ],
)
def test_a_class_is_lowered_by_the_key_that_says_so(of_endpoint: str, of_rule: str, by: str) -> None:
    section = {"max_priority": of_endpoint, "rules": [{"allow": {"max_priority": of_rule}}]}
    flow = Flow(TYPES["publish"], UUri.parse(SPEED), None, "vehicle", priority=UPriority.CS5)
    judgement = judge(flow, known({"endpoints": {"vehicle": section}}))
    assert judgement.why[-1] == f"{by} lowers its class to CS2"


def test_a_permission_level_is_lowered_by_the_endpoint_and_not_by_a_rule() -> None:
    section = {"max_permission_level": 2, "rules": [{"allow": {}}]}
    flow = Flow(TYPES["publish"], UUri.parse(SPEED), None, "vehicle", permission_level=7)
    judgement = judge(flow, known({"endpoints": {"vehicle": section}}))
    assert judgement.why[-1] == "permissions.endpoints.vehicle.max_permission_level lowers its permission level to 2"
