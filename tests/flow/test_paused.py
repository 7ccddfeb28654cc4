"""Paused flows: what waits, for how long, and how it goes on (dispatcher specification: stop and start dispatching)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.stats import RouteStats
from streamer.features.api.metrics import Exposition
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import Presence
from streamer.transports.errors import RefusedError
from streamer.uprotocol.message import UMessage, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT
from tests.flow.harness import (
    CLIMATE,
    CLOUD_APP,
    CLOUD_METHOD,
    ORDERS,
    SPEED,
    VEHICLE_APP,
    RouterHarness,
    configuration,
    three_networks,
)
from tests.flow.pausing import DOORS, EVERYTHING, UP, pause, resume, waiting
from tests.unit.delivery.messages import FakeOwner, queue_policy


async def test_paused_topic_waits_in_order_while_others_go_on_and_leaves_in_order_when_resumed() -> None:
    async with RouterHarness() as harness:
        pause(harness.router, SPEED)
        held = [harness.speed(b"%d" % number) for number in range(5)]
        doors = harness.speed(source=DOORS)
        harness.arrive("vehicle", *held[:3], doors, *held[3:])
        assert harness.sent("cloud") == [doors]
        assert (harness.queued(UP), waiting(harness.router)) == (5, 5)
        resume(harness.router, SPEED)
        harness.check_books()
        assert harness.sent("cloud") == [doors, *held]
        assert (harness.queued(UP), waiting(harness.router)) == (0, 0)


async def test_an_existing_lane_is_paused_too_and_what_is_in_flight_finishes() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        in_flight, later = harness.speed(b"in flight"), harness.speed(b"later")
        harness.arrive("vehicle", in_flight)
        pause(harness.router, SPEED)
        harness.arrive("vehicle", later)
        assert waiting(harness.router) == 1
        cloud.release_withheld()
        harness.check_books()
        assert harness.sent("cloud") == [in_flight]
        assert harness.outcomes(UP) == {"delivered": 1}
        resume(harness.router, SPEED)
        assert harness.sent("cloud") == [in_flight, later]


async def test_message_in_flight_that_comes_back_waits_at_its_old_place() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        messages = [harness.speed(b"%d" % number) for number in range(3)]
        harness.arrive("vehicle", *messages)
        pause(harness.router, SPEED)
        cloud.lose_link()
        cloud.is_withholding = False
        cloud.restore_link()
        harness.pass_time(100)
        assert harness.sent("cloud") == []
        assert waiting(harness.router) == 3
        resume(harness.router, SPEED)
        assert harness.sent("cloud") == messages


async def test_refused_message_is_not_tried_again_while_paused() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].refuse = lambda message: RefusedError(UCode.RESOURCE_EXHAUSTED, "not now")
        message = harness.speed()
        harness.arrive("vehicle", message)
        pause(harness.router, SPEED)
        harness.transports["cloud"].refuse = lambda message: None
        harness.pass_time(60_000)
        assert harness.sent("cloud") == []
        resume(harness.router, SPEED)
        assert harness.sent("cloud") == [message]


async def test_expired_message_of_a_paused_lane_is_a_dead_letter_that_says_why() -> None:
    async with RouterHarness() as harness:
        pause(harness.router, SPEED)
        harness.arrive("vehicle", harness.speed(ttl=500), harness.speed(b"lasts", ttl=5000))
        harness.pass_time(1000)
        assert harness.outcomes(UP) == {"expired": 1}
        (letter,) = harness.dead_letters("vehicle")
        assert letter.status.code == UCode.DEADLINE_EXCEEDED
        assert letter.status.message == "its TTL passed while it was paused"
        resume(harness.router, SPEED)
        assert [message.payload for message in harness.sent("cloud")] == [b"lasts"]


async def test_paused_request_that_expires_is_answered_with_deadline_exceeded() -> None:
    async with RouterHarness() as harness:
        pause(harness.router, EVERYTHING._replace(sink=CLIMATE))
        asked = harness.ask(ttl=500)
        harness.arrive("cloud", asked)
        harness.pass_time(1000)
        assert harness.sent("vehicle") == []
        (answer,) = harness.sent("cloud")
        assert (answer.attributes.reqid, answer.attributes.commstatus) == (asked.id, UCode.DEADLINE_EXCEEDED)


async def test_rule_with_a_sink_pauses_only_what_goes_there() -> None:
    async with RouterHarness() as harness:
        pause(harness.router, SPEED, CLOUD_APP)
        other = CLOUD_APP._replace(ue_id=0xC1)
        there, elsewhere, published = harness.notify(), harness.notify(sink=other), harness.speed()
        harness.arrive("vehicle", there, elsewhere, published)
        assert harness.sent("cloud") == [elsewhere, published]
        resume(harness.router, SPEED, CLOUD_APP)
        assert harness.sent("cloud") == [elsewhere, published, there]


async def test_where_a_publish_is_addressed_a_rule_pauses_it_for_one_authority() -> None:
    config = configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["cloud", "backup"]},
        }
    )
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        pause(harness.router, SPEED, UUri.parse("//backup/FFFFFFFF/FF/FFFF"))
        harness.arrive("vehicle", harness.speed())
        assert [m.attributes.sink.authority for m in harness.sent("cloud") if m.attributes.sink] == ["cloud"]
        resume(harness.router, SPEED, UUri.parse("//backup/FFFFFFFF/FF/FFFF"))
        assert [m.attributes.sink.authority for m in harness.sent("cloud") if m.attributes.sink] == ["cloud", "backup"]


async def test_rule_pauses_the_topic_on_every_route() -> None:
    publish = ["//veh1/FFFFFFFF/FF/FFFF"]
    config = three_networks(
        routes=[
            {"from": "vehicle", "to": "cloud", "publish": publish},
            {"from": "vehicle", "to": "phone", "publish": publish},
        ]
    )
    async with RouterHarness(config) as harness:
        pause(harness.router, SPEED)
        message = harness.speed()
        harness.arrive("vehicle", message)
        assert (harness.sent("cloud"), harness.sent("phone")) == ([], [])
        resume(harness.router, SPEED)
        assert (harness.sent("cloud"), harness.sent("phone")) == ([message], [message])


async def test_lane_resumes_only_when_the_last_rule_that_pauses_it_is_gone() -> None:
    async with RouterHarness() as harness:
        pause(harness.router, SPEED)
        pause(harness.router, EVERYTHING)
        message = harness.speed()
        harness.arrive("vehicle", message)
        resume(harness.router, SPEED)
        assert harness.sent("cloud") == []
        resume(harness.router, EVERYTHING)
        assert harness.sent("cloud") == [message]


async def test_failure_notices_leave_whatever_is_paused() -> None:
    """Dead letters and the errors that answer Requests are on queues without source."""
    async with RouterHarness() as harness:
        pause(harness.router, EVERYTHING)
        asked = harness.ask(source=VEHICLE_APP, method=CLOUD_METHOD, ttl=100)
        harness.arrive("vehicle", asked)
        harness.pass_time(1000)
        assert len(harness.dead_letters("vehicle")) == 1
        (answer,) = harness.sent("vehicle")
        assert answer.attributes.reqid == asked.id


async def test_failure_notices_whose_lanes_exist_already_leave_whatever_is_paused() -> None:
    async with RouterHarness() as harness:
        late = harness.speed(ttl=1)
        harness.clock.ms += 10
        harness.arrive("vehicle", late)
        assert len(harness.dead_letters("vehicle")) == 1
        pause(harness.router, EVERYTHING)
        harness.arrive("vehicle", harness.speed(ttl=100))
        harness.pass_time(1000)
        assert len(harness.dead_letters("vehicle")) == 2


@pytest.mark.parametrize(
    ("source", "target", "may_pause"),
    [
        ("vehicle", "cloud", True),
        ("", "cloud", False),
        ("vehicle", LOCAL_ENDPOINT, False),
        (LOCAL_ENDPOINT, "vehicle", False),
    ],
)
def test_only_messages_between_others_can_be_paused(source: str, target: str, may_pause: bool) -> None:
    assert RouteQueue("any", source, target, queue_policy(), RouteStats(), FakeOwner()).may_pause is may_pause


async def test_paused_publish_without_a_subscriber_waits_and_counts_as_delivered_only_when_resumed() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].set_presence(SPEED, None, Presence.ABSENT)
        pause(harness.router, SPEED)
        harness.arrive("vehicle", harness.speed())
        harness.pass_time(600_000)
        assert (harness.outcomes(UP), waiting(harness.router)) == ({}, 1)
        resume(harness.router, SPEED)
        harness.pass_time(100)
        assert harness.outcomes(UP) == {"unheard": 1}


async def test_subscriber_that_comes_while_a_flow_is_paused_gets_what_has_waited() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.set_presence(SPEED, CLOUD_APP, Presence.ABSENT)
        pause(harness.router, SPEED)
        message = harness.notify()
        harness.arrive("vehicle", message)
        harness.pass_time(600_000)  # far beyond absent_s
        cloud.set_presence(SPEED, CLOUD_APP, Presence.PRESENT)
        assert harness.sent("cloud") == []
        resume(harness.router, SPEED)
        assert harness.sent("cloud") == [message]


async def test_unconfirmed_messages_whose_receiver_was_lost_while_paused_are_redelivered_first_when_resumed() -> None:
    flow = (ORDERS, VEHICLE_APP)
    async with RouterHarness(unconfirmed_s=10) as harness:
        vehicle = harness.transports["vehicle"]
        first, second, third = (harness.notify(b"%d" % number, sink=flow[1], source=flow[0]) for number in range(3))
        harness.arrive("cloud", first, second)
        harness.router.custody.flush()
        pause(harness.router, ORDERS)
        assert waiting(harness.router) == 0  # they have left
        vehicle.set_presence(*flow, Presence.ABSENT)
        harness.arrive("cloud", third)
        vehicle.set_presence(*flow, Presence.PRESENT)
        harness.pass_time(1000)
        assert harness.sent("vehicle") == [first, second]
        assert waiting(harness.router) == 3  # packed or not
        resume(harness.router, ORDERS)
        harness.check_books()
        assert harness.sent("vehicle") == [first, second, first, second, third]


async def test_idle_lane_of_a_paused_flow_may_go_and_a_new_one_is_paused() -> None:
    async with RouterHarness() as harness:
        pause(harness.router, SPEED)
        harness.arrive("vehicle", harness.speed(ttl=100))
        harness.pass_time(1000)
        (queue,) = (queue for queue in harness.router.egresses["cloud"].queues if queue.name == UP)
        (before,) = queue.paused_lanes()
        queue._retire_idle_lanes()
        assert before.retired
        harness.arrive("vehicle", harness.speed())
        assert harness.sent("cloud") == []
        assert waiting(harness.router) == 1


async def test_metrics_count_rules_lanes_and_messages() -> None:
    async with RouterHarness() as harness:
        pause(harness.router, SPEED)
        pause(harness.router, DOORS)
        harness.arrive("vehicle", harness.speed(), harness.speed(), harness.speed(source=DOORS))
        text = Exposition(harness.router).text().decode()
        labels = '{egress="cloud",ingress="vehicle",route="vehicle-cloud"}'
        assert "ustreamer_pause_rules 2.0" in text
        assert f"ustreamer_paused_lanes{labels} 2.0" in text
        assert f"ustreamer_paused_messages{labels} 3.0" in text
        resume(harness.router, DOORS)
        text = Exposition(harness.router).text().decode()
        assert "ustreamer_pause_rules 1.0" in text
        assert f"ustreamer_paused_messages{labels} 2.0" in text


TOPICS = [SPEED, DOORS]
RULES = [PauseRule(SPEED), PauseRule(DOORS), EVERYTHING]


@settings(deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.sampled_from(TOPICS)),
            st.tuples(st.just("stop"), st.sampled_from(RULES)),
            st.tuples(st.just("start"), st.sampled_from(RULES)),
            st.tuples(st.just("link"), st.booleans()),
            st.tuples(st.just("refuse"), st.booleans()),
            st.tuples(st.just("time"), st.sampled_from([50, 5000])),
        ),
        max_size=40,
    )
)
async def test_whatever_is_paused_and_resumed_every_message_leaves_once_and_in_the_order_of_its_topic(
    steps: list[tuple[str, object]],
) -> None:
    sent: dict[UUri, list[UMessage]] = {topic: [] for topic in TOPICS}
    async with RouterHarness(configuration(queue_policy={"flow_window": 1, "retry": {"attempts": 1_000_000}})) as harness:
        cloud, router = harness.transports["cloud"], harness.router
        for step, what in steps:
            left = len(harness.sent("cloud"))
            match step, what:
                case "publish", UUri() as topic:
                    sent[topic].append(harness.speed(source=topic))
                    harness.arrive("vehicle", sent[topic][-1])
                case "stop", PauseRule() as rule:
                    pause(router, rule)
                case "start", PauseRule() as rule:
                    router.pause_rules.remove(rule)
                    router.apply_pause_rules()
                case "link", bool() as is_up:
                    cloud.restore_link() if is_up else cloud.lose_link()
                case "refuse", bool() as refuses:
                    error = RefusedError(UCode.RESOURCE_EXHAUSTED, "not now") if refuses else None
                    cloud.refuse = lambda message, error=error: error  # type: ignore[misc]
                case "time", int() as ms:
                    harness.pass_time(ms)
            harness.check_books()
            for message in harness.sent("cloud")[left:]:
                assert router.pause_rules.rule_for(message.attributes.source, None) is None
        for rule in router.pause_rules.rules:
            resume(router, rule)
        cloud.refuse = lambda message: None
        cloud.restore_link()
        harness.pass_time(20_000)
        harness.pass_time(20_000)
        for topic in TOPICS:
            assert [m for m in harness.sent("cloud") if m.attributes.source == topic] == sent[topic]


async def test_below_a_class_lanes_are_paused_as_long_as_all_of_their_messages_are() -> None:
    async with RouterHarness() as harness:
        egress = harness.router.egresses["cloud"]
        egress.pause_below(UPriority.CS5 - 1)
        low, urgent = harness.speed(priority=UPriority.CS1), harness.speed(source=DOORS, priority=UPriority.CS5)
        harness.arrive("vehicle", low, urgent)
        assert (harness.sent("cloud"), waiting(harness.router)) == ([urgent], 1)
        behind, ahead = harness.speed(priority=UPriority.CS6), harness.speed(source=DOORS, priority=UPriority.CS4)
        harness.arrive("vehicle", behind, ahead)  # order in a flow is kept: the first one goes with the urgent one behind it
        assert (harness.sent("cloud"), waiting(harness.router)) == ([urgent, low, behind], 1)
        egress.pause_below(0)
        assert (harness.sent("cloud"), waiting(harness.router)) == ([urgent, low, behind, ahead], 0)
        harness.check_books()
