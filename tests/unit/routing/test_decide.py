"""decide(): each rule, what it says, and why (the rules stand at the top of `streamer.routing.decide`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.config.models import QueuePolicy
from streamer.routing.decide import Decision, Hop, decide
from streamer.routing.outcome import Failure, Outcome
from streamer.routing.table import RoutingTable, TableRoute
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at

PUBLISH, NOTIFICATION = UMessageType.PUBLISH, UMessageType.NOTIFICATION
SPEED = UUri("veh1", 0xA8000, 2, 0x8A50)
VEHICLE_APP = UUri("veh1", 0xA, 1, 0)
CLOUD_APP = UUri("cloud", 0xC0, 1, 0)
PHONE_APP = UUri("phone1", 1, 1, 0)
EVERY_TOPIC = UUri("veh1", 0xFFFF_FFFF, 0xFF, 0xFFFF)

UNASKED = ", nobody there is interested"


def route(source: str, target: str, *publish: UUri, to: tuple[str, ...] = ()) -> TableRoute:
    return TableRoute(f"{source}-{target}", source, target, publish, to, QueuePolicy())


UP = route("vehicle", "cloud", EVERY_TOPIC, to=("fleet", "backup"))
ACROSS = route("vehicle", "phone", SPEED, to=("phone1",))
DOWN = route("cloud", "vehicle", UUri("*", 0xFFFF_FFFF, 0xFF, 0xFFFF))


def table(*routes: TableRoute, addressed: tuple[str, ...] = (), **authorities: tuple[str, ...]) -> RoutingTable:
    return RoutingTable(
        "gateway",
        authorities or {"vehicle": ("veh1",), "cloud": ("*",), "phone": ("phone1", "phone2")},
        routes or (UP, ACROSS, DOWN),
        frozenset(addressed),
    )


def assert_nowhere(decision: Decision, outcome: Outcome, code: UCode, text: str) -> None:
    assert decision.hops == ()
    assert decision.failure == Failure(outcome, code, text)
    assert decision.why[-1] == text


# 1. the source


def code_of(decision: Decision) -> UCode:
    """Why it goes nowhere."""
    assert decision.failure is not None
    return decision.failure.code


def test_message_of_our_own_is_local() -> None:
    decision = decide(PUBLISH, UUri("gateway", 4, 1, 0x8001), None, "cloud", table())
    assert_nowhere(decision, Outcome.LOCAL, UCode.OK, "//gateway/4/1/8001 is ours: a message of our own came back")


def test_source_that_lives_elsewhere_is_unauthenticated() -> None:
    assert_nowhere(
        decide(NOTIFICATION, SPEED, PHONE_APP, "cloud", table()),
        Outcome.REJECTED,
        UCode.UNAUTHENTICATED,
        "source authority 'veh1' lives behind vehicle, not behind cloud",
    )


def test_source_that_lives_nowhere_is_unauthenticated() -> None:
    assert_nowhere(
        decide(PUBLISH, UUri("who", 1, 1, 0x8000), None, "vehicle", table(vehicle=("veh1",))),
        Outcome.REJECTED,
        UCode.UNAUTHENTICATED,
        "source authority 'who' lives behind no endpoint, not behind vehicle",
    )


def test_source_that_is_named_elsewhere_is_not_covered_by_a_wildcard() -> None:
    assert code_of(decide(NOTIFICATION, PHONE_APP._replace(resource=0x8000), VEHICLE_APP, "cloud", table())) is (
        UCode.UNAUTHENTICATED
    )


def test_source_with_two_homes_may_come_from_either_and_the_text_names_both() -> None:
    both = table(UP, vehicle=("veh1",), phone=("veh1",), cloud=("*",))
    assert decide(NOTIFICATION, SPEED, CLOUD_APP, "vehicle", both).hops == (Hop(UP, CLOUD_APP),)
    assert "'veh1' lives behind vehicle and phone, not behind cloud" in decide(PUBLISH, SPEED, None, "cloud", both).why[0]


# 2. messages with a sink


def test_sink_takes_the_route_to_where_it_lives() -> None:
    decision = decide(NOTIFICATION, SPEED, CLOUD_APP, "vehicle", table())
    assert decision == Decision((Hop(UP, CLOUD_APP),), None, ("route vehicle-cloud: 'cloud' lives behind cloud",))


def test_exact_name_wins_over_the_wildcard_and_the_other_route_says_why_not() -> None:
    decision = decide(NOTIFICATION, SPEED, PHONE_APP, "vehicle", table())
    assert decision.hops == (Hop(ACROSS, PHONE_APP),)
    assert decision.why == (
        "route vehicle-cloud: 'phone1' does not live behind cloud",
        "route vehicle-phone: 'phone1' lives behind phone",
    )


def test_sink_that_no_route_leads_to_is_permission_denied_with_every_reason() -> None:
    decision = decide(NOTIFICATION, CLOUD_APP._replace(resource=0x8000), PHONE_APP, "cloud", table())
    assert_nowhere(decision, Outcome.REJECTED, UCode.PERMISSION_DENIED, "no route leads from cloud to 'phone1'")
    assert decision.why[0] == "route cloud-vehicle: 'phone1' does not live behind vehicle"


def test_sink_that_lives_nowhere_is_permission_denied() -> None:
    decision = decide(NOTIFICATION, SPEED, CLOUD_APP, "vehicle", table(UP, vehicle=("veh1",), cloud=("fleet",)))
    assert code_of(decision) is UCode.PERMISSION_DENIED


def test_sink_in_the_same_network_is_local() -> None:
    assert_nowhere(
        decide(NOTIFICATION, SPEED, VEHICLE_APP, "vehicle", table()),
        Outcome.LOCAL,
        UCode.OK,
        "sink authority 'veh1' lives behind vehicle itself",
    )


def test_sink_without_authority_is_local() -> None:
    assert_nowhere(
        decide(NOTIFICATION, SPEED, UUri("", 1, 1, 0), "vehicle", table()),
        Outcome.LOCAL,
        UCode.OK,
        "sink /1/1/0 names no authority: it lives where the message came from",
    )


def test_sink_at_the_streamer_itself_is_unavailable() -> None:
    assert_nowhere(
        decide(UMessageType.REQUEST, VEHICLE_APP, UUri("gateway", 9, 1, 1), "vehicle", table()),
        Outcome.REJECTED,
        UCode.UNAVAILABLE,
        "this streamer has no uEntity //gateway/9/1/1",
    )


def test_split_horizon_holds_for_a_sink_too() -> None:
    ring = table(UP, vehicle=("veh1",), cloud=("veh1", "cloud"))
    decision = decide(NOTIFICATION, SPEED, CLOUD_APP, "vehicle", ring)
    assert code_of(decision) is UCode.PERMISSION_DENIED
    assert decision.why[0] == "route vehicle-cloud: split horizon, the source lives behind cloud too"


def test_sink_with_two_homes_takes_the_first_route_only() -> None:
    twice = table(UP, ACROSS, vehicle=("veh1",), cloud=("shared",), phone=("shared",))
    sink = UUri("shared", 1, 1, 0)
    assert decide(NOTIFICATION, SPEED, sink, "vehicle", twice).hops == (Hop(UP, sink),)


def test_message_other_than_publish_without_sink_cannot_come_this_far() -> None:
    with pytest.raises(AssertionError, match="only a Publish"):
        decide(NOTIFICATION, SPEED, None, "vehicle", table())


# 3. Publish without sink


def test_publish_takes_every_route_whose_pattern_matches_and_the_text_names_the_pattern() -> None:
    decision = decide(PUBLISH, SPEED, None, "vehicle", table())
    assert decision.hops == (Hop(UP, None), Hop(ACROSS, None))
    assert decision.why == (
        f"route vehicle-cloud: pattern {EVERY_TOPIC} matches",
        f"route vehicle-phone: pattern {SPEED} matches",
    )


def test_publish_that_one_pattern_misses_says_so() -> None:
    decision = decide(PUBLISH, SPEED._replace(resource=0x8001), None, "vehicle", table())
    assert [hop.route for hop in decision.hops] == [UP]
    assert decision.why[1] == f"route vehicle-phone: none of its publish patterns matches //veh1/A8000/2/8001{UNASKED}"


def test_publish_that_no_route_forwards_is_unwanted() -> None:
    decision = decide(PUBLISH, SPEED, None, "vehicle", table(DOWN, route("vehicle", "phone")))
    assert_nowhere(decision, Outcome.UNWANTED, UCode.OK, f"no route forwards {SPEED} from vehicle")
    assert decision.why[0] == f"route vehicle-phone: none of its publish patterns matches {SPEED}{UNASKED}"


@pytest.mark.parametrize("authority", ["*", "gateway"])
def test_publish_addressed_to_everyone_or_to_us_goes_by_its_patterns(authority: str) -> None:
    assert decide(PUBLISH, SPEED, everything_at(authority), "vehicle", table()).hops == (Hop(UP, None), Hop(ACROSS, None))


# 4. split horizon


def test_publish_never_goes_back_to_where_its_source_lives_too() -> None:
    ring = table(UP, ACROSS, vehicle=("veh1",), cloud=("veh1",), phone=("phone1",))
    decision = decide(PUBLISH, SPEED, None, "vehicle", ring)
    assert decision.hops == (Hop(ACROSS, None),)
    assert decision.why[0] == "route vehicle-cloud: split horizon, 'veh1' lives behind cloud"


# addresses where the far network wants one


def test_publish_is_addressed_to_each_of_publish_to_where_the_network_wants_it() -> None:
    decision = decide(PUBLISH, SPEED, None, "vehicle", table(addressed=("cloud",)))
    assert decision.hops == (Hop(UP, everything_at("fleet")), Hop(UP, everything_at("backup")), Hop(ACROSS, None))
    assert decision.why[0] == f"route vehicle-cloud: pattern {EVERY_TOPIC} matches; addressed to fleet, backup"


def test_publish_with_an_address_loses_it_unless_the_next_network_wants_it() -> None:
    sink = everything_at("veh1")
    source = CLOUD_APP._replace(resource=0x9000)
    assert decide(PUBLISH, source, sink, "cloud", table()).hops == (Hop(DOWN, None),)
    assert decide(PUBLISH, source, sink, "cloud", table(addressed=("vehicle",))).hops == (Hop(DOWN, sink),)


# for every table

names = st.sampled_from(["a", "b", "c", "gateway", "*"])
endpoints = st.sampled_from(["e1", "e2", "e3"])
tables = st.builds(
    RoutingTable,
    st.just("gateway"),
    st.fixed_dictionaries({name: st.lists(names, min_size=1, max_size=3).map(tuple) for name in ("e1", "e2", "e3")}),
    st.lists(
        st.builds(
            lambda source, target, publish, to: route(source, target, *publish, to=to),
            endpoints,
            endpoints,
            st.lists(st.builds(UUri, names, st.just(0xFFFF_FFFF), st.just(0xFF), st.just(0xFFFF)), max_size=2),
            st.lists(names, min_size=1, max_size=2).map(tuple),
        ),
        max_size=6,
    ).map(tuple),
    st.frozensets(endpoints),
)


@given(tables, st.sampled_from("abc"), st.none() | names, endpoints, st.sampled_from([PUBLISH, NOTIFICATION]))
def test_whatever_the_table_nothing_loops_and_every_answer_has_a_reason(
    any_table: RoutingTable, source: str, sink: str | None, ingress: str, kind: UMessageType
) -> None:
    to = None if sink is None else everything_at(sink)
    if kind is NOTIFICATION:
        to = UUri(sink or "a", 1, 1, 0)
    decision = decide(kind, UUri(source, 1, 1, 0x8000), to, ingress, any_table)
    assert bool(decision.hops) != (decision.failure is not None)
    assert decision.why
    for hop in decision.hops:
        assert hop.route.source == ingress
        assert hop.route.target != ingress
        assert hop.route.target not in any_table.homes(source)
        if kind is PUBLISH:
            assert (hop.sink is None) == (hop.route.target not in any_table.addressed)
        else:
            assert hop.sink == to
    if kind is NOTIFICATION:
        assert len(decision.hops) <= 1
