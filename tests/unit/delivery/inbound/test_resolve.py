"""Resolving: the lanes that messages with the same attributes enter, or why they enter none, determined once."""

from dataclasses import replace

import pytest

from streamer.delivery.inbound import resolve as resolve_module
from streamer.delivery.inbound.resolve import Resolved, Resolver
from streamer.delivery.inbound.tokens import Tokens
from streamer.routing.outcome import Outcome
from streamer.routing.table import RoutingTable, TableRoute
from streamer.uprotocol.message import Attributes, UMessageType, UPriority, notification, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.clock import START_MS
from tests.unit.delivery.inbound.ingress_harness import AUTHORITIES, CLOUD_APP, EVERY_TOPIC, PHONE_APP, IngressHarness
from tests.unit.delivery.messages import message, queue_policy, topic

NEW = Attributes(UMessageType.PUBLISH, topic())


class ResolverHarness(IngressHarness):
    """A resolver for messages that arrive through ``endpoint``, with the queues of an ingress."""

    def __init__(self, endpoint: str = "vehicle", addressed: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.resolver = Resolver(endpoint, self.flows, self.interest, self.clock, Tokens())
        self.change({"cloud": (EVERY_TOPIC,), "phone": (topic(1),)}, addressed)

    def change(
        self,
        routes: dict[str, tuple[UUri, ...]],
        addressed: tuple[str, ...] = (),
        authorities: dict[str, tuple[str, ...]] = AUTHORITIES,
    ) -> None:
        listed = tuple(
            TableRoute(target, "vehicle", target, patterns, ("fleet", "backup"), queue_policy())
            for target, patterns in routes.items()
        )
        table = RoutingTable("gateway", authorities, listed, frozenset(addressed))
        queues = {target: (self.routes[target], self.egresses[target]) for target in routes}
        self.resolver.use(table, queues)

    def want(self, wanted: UUri, **periods_ms: int) -> None:
        self.interest.change(wanted, periods_ms, "test")
        self.resolver.forget([wanted])


def routes_of(resolved: Resolved) -> list[str]:
    assert resolved.failure is None
    return [leg.queue.name for leg in resolved.legs]


# lanes


def test_a_message_enters_the_lane_of_its_flow_on_each_of_its_routes() -> None:
    harness = ResolverHarness()
    legs = harness.resolver.resolve(message(1).attributes).legs
    assert [(leg.queue, leg.egress) for leg in legs] == [
        (harness.cloud, harness.egresses["cloud"]),
        (harness.phone, harness.egresses["phone"]),
    ]
    assert [leg.lane for leg in legs] == [harness.cloud.lane((topic(1), None)), harness.phone.lane((topic(1), None))]


def test_attributes_that_leave_as_they_came_are_the_same_object() -> None:
    attributes = message().attributes
    (leg,) = ResolverHarness().resolver.resolve(attributes).legs
    assert leg.attributes is attributes
    assert not leg.is_changed


def test_a_publish_gets_a_copy_for_each_authority_where_the_network_wants_one() -> None:
    harness = ResolverHarness(addressed=("cloud",))
    resolved = harness.resolver.resolve(message().attributes)
    assert [leg.attributes.sink for leg in resolved.legs] == [everything_at("fleet"), everything_at("backup")]
    assert [leg.key for leg in resolved.legs] == [(topic(), everything_at("fleet")), (topic(), everything_at("backup"))]
    assert resolved.copies == {harness.cloud: 2}
    assert all(leg.is_changed and leg.once is None for leg in resolved.legs)


def test_a_leg_that_removes_the_sink_of_a_publish_remembers_what_has_gone_there() -> None:
    attributes = replace(NEW, sink=everything_at("fleet"))
    (leg,) = ResolverHarness().resolver.resolve(attributes).legs
    assert leg.attributes.sink is None
    assert leg.once is not None
    assert b"cloud" in leg.once


# found out once


def test_the_result_is_remembered_for_messages_with_the_same_attributes() -> None:
    harness = ResolverHarness()
    resolved = harness.resolver.resolve(message().attributes)
    assert harness.flows.of(message().attributes).resolved is resolved
    assert harness.flows.of(message(1).attributes).resolved is None


def test_messages_that_carry_something_for_themselves_share_one_result() -> None:
    harness = ResolverHarness()
    traced = [replace(NEW, token=f"t{n}", traceparent=f"00-{n:032x}-{n:016x}-01") for n in (1, 2)]
    first, second = (harness.resolver.resolve(each) for each in traced)
    assert first is second
    assert list(harness.flows) == [NEW]


def test_a_new_table_is_used_for_what_was_known() -> None:
    harness = ResolverHarness()
    harness.resolver.resolve(NEW)
    harness.change({"phone": (EVERY_TOPIC,)})
    assert harness.flows.of(NEW).resolved is None
    assert routes_of(harness.resolver.resolve(NEW)) == ["phone"]


def test_a_change_of_interest_is_used_for_its_topic_and_leaves_what_is_known_of_others() -> None:
    harness = ResolverHarness()
    other = harness.resolver.resolve(message(2).attributes)
    harness.resolver.resolve(NEW)
    harness.want(topic(), phone1=0)
    assert harness.flows.of(NEW).resolved is None
    assert routes_of(harness.resolver.resolve(NEW)) == ["cloud", "phone"]
    assert harness.flows.of(message(2).attributes).resolved is other


def test_messages_of_a_flow_with_other_attributes_share_the_decision() -> None:
    harness = ResolverHarness()
    first = harness.resolver.resolve(NEW)
    second = harness.resolver.resolve(replace(NEW, priority=UPriority.CS5))
    assert first is not second
    assert first.legs[0].lane is second.legs[0].lane


# samplers


def test_a_topic_that_is_wanted_less_often_is_sampled_and_all_attributes_share_the_pace() -> None:
    harness = ResolverHarness()
    harness.want(topic(), phone1=100)
    sampler = harness.resolver.resolve(NEW).legs[1].sampler
    assert sampler is not None
    assert sampler.period_ms == 100
    assert harness.resolver.resolve(NEW).legs[0].sampler is None
    assert harness.resolver.resolve(replace(NEW, priority=UPriority.CS5)).legs[1].sampler is sampler


def test_a_sampler_keeps_its_pace_when_others_subscribe_and_not_when_the_period_changes() -> None:
    harness = ResolverHarness()
    harness.want(topic(), phone1=100)
    before = harness.resolver.resolve(NEW).legs[1].sampler
    harness.want(topic(), phone1=100, veh9=50)
    assert harness.resolver.resolve(NEW).legs[1].sampler is before
    harness.want(topic(), phone1=200)
    after = harness.resolver.resolve(NEW).legs[1].sampler
    assert after is not before
    assert after is not None
    assert after.period_ms == 200


def test_a_topic_that_is_wanted_whole_again_is_not_sampled() -> None:
    harness = ResolverHarness()
    harness.want(topic(), phone1=100)
    harness.resolver.resolve(NEW)
    harness.want(topic(), phone1=0)
    assert [leg.sampler for leg in harness.resolver.resolve(NEW).legs] == [None, None]


def test_samplers_are_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve_module, "_MAX_SAMPLERS", 2)
    harness = ResolverHarness()
    harness.change({"phone": ()})
    for flow in range(3):
        harness.want(topic(flow), phone1=100)
    samplers = [harness.resolver.resolve(message(flow).attributes).legs[0].sampler for flow in range(3)]
    harness.resolver.forget(topic(flow) for flow in range(3))
    again = [harness.resolver.resolve(message(flow).attributes).legs[0].sampler for flow in (1, 2, 0)]
    assert again[:2] == samplers[1:]
    assert again[2] is not samplers[0]


# messages that no route takes


def test_invalid_attributes_are_rejected_with_every_problem() -> None:
    resolved = ResolverHarness().resolver.resolve(Attributes(UMessageType.REQUEST, topic(), CLOUD_APP))
    assert resolved.failure is not None
    assert (resolved.failure.outcome, resolved.failure.code) == (Outcome.REJECTED, UCode.INVALID_ARGUMENT)
    assert resolved.failure.text.startswith("invalid attributes: source: expected a uEntity (resource 0); sink: expected")
    assert not resolved.is_misrouted


def test_a_decision_against_a_message_is_its_failure() -> None:
    harness = ResolverHarness()
    harness.change({"phone": ()})
    resolved = harness.resolver.resolve(notification(START_MS, topic(), CLOUD_APP).attributes)
    assert resolved.failure is not None
    assert (resolved.failure.code, resolved.legs, resolved.is_misrouted) == (UCode.PERMISSION_DENIED, (), False)


def misrouted(endpoint: str, attributes: Attributes) -> Resolved:
    """A message from `veh1`, which lives behind `vehicle`, that arrives elsewhere."""
    return ResolverHarness(endpoint).resolver.resolve(attributes)


def test_a_publish_from_the_wrong_side_may_be_a_copy() -> None:
    resolved = misrouted("cloud", NEW)
    assert resolved.is_misrouted
    assert resolved.failure is not None
    assert resolved.failure.code is UCode.UNAUTHENTICATED


@pytest.mark.parametrize("authority", ["*", "gateway"])
def test_a_publish_from_the_wrong_side_for_all_or_for_us_may_be_a_copy(authority: str) -> None:
    resolved = misrouted("cloud", replace(NEW, sink=everything_at(authority)))
    assert resolved.is_misrouted
    assert resolved.failure is not None
    assert resolved.failure.code is UCode.UNAUTHENTICATED


def test_a_copy_that_has_reached_the_network_of_its_sink_has_arrived() -> None:
    resolved = misrouted("cloud", notification(START_MS, topic(), CLOUD_APP).attributes)
    assert resolved.is_misrouted
    assert resolved.failure is not None
    assert resolved.failure.outcome is Outcome.LOCAL


def test_a_message_from_the_wrong_side_for_a_third_network_may_be_a_copy() -> None:
    resolved = misrouted("cloud", notification(START_MS, topic(), PHONE_APP).attributes)
    assert resolved.is_misrouted
    assert resolved.failure is not None
    assert resolved.failure.outcome is Outcome.REJECTED


def test_a_message_between_neighbours_is_no_copy_elsewhere_since_nobody_would_carry_it() -> None:
    neighbour = UUri("veh1", 0xB, 1, 0)
    resolved = misrouted("cloud", notification(START_MS, topic(), neighbour).attributes)
    assert resolved.failure is not None
    assert not resolved.is_misrouted


def test_a_message_from_nowhere_is_no_copy() -> None:
    harness = ResolverHarness("cloud")
    harness.change({}, authorities={"vehicle": ("veh1",), "cloud": ("fleet",)})
    resolved = harness.resolver.resolve(Attributes(UMessageType.PUBLISH, topic()._replace(authority="stranger")))
    assert resolved.failure is not None
    assert not resolved.is_misrouted


def test_a_dead_letter_of_another_streamer_from_the_wrong_side_is_not_waited_for() -> None:
    letter = publish(START_MS, UUri("veh1", 4, 1, 0x8001), b"letter").attributes
    assert not misrouted("cloud", letter).is_misrouted
