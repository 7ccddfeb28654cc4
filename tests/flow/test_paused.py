"""Paused flows: what waits, for how long, and how it goes on (dispatcher specification: stop and start dispatching)."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.admin.metrics import Exposition
from streamer.delivery.queue import RouteQueue
from streamer.delivery.router import Router
from streamer.delivery.stats import RouteStats
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import Presence
from streamer.transports.errors import RefusedError
from streamer.transports.local import LOCAL_ENDPOINT
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.life import life
from tests.flow.stage import (
    CLIMATE,
    CLOUD_APP,
    CLOUD_METHOD,
    ORDERS,
    SPEED,
    VEHICLE_APP,
    Stage,
    configuration,
    three_networks,
)
from tests.unit.delivery.actors import NoOwner, queue_policy

UP = "vehicle-cloud"
DOORS = UUri("veh1", 0xA8000, 2, 0x8A51)
EVERYTHING = PauseRule.parse("//*/FFFFFFFF/FF/FFFF")


def pause(router: Router, source: UUri | PauseRule, sink: UUri | None = None) -> None:
    router.pause_rules.add(source if isinstance(source, PauseRule) else PauseRule(source, sink))
    router.apply_pause_rules()


def resume(router: Router, source: UUri | PauseRule, sink: UUri | None = None) -> None:
    assert router.pause_rules.remove(source if isinstance(source, PauseRule) else PauseRule(source, sink))
    router.apply_pause_rules()


def waiting(router: Router) -> int:
    return sum(number for _, number in router.paused_flows())


async def test_stopped_topic_waits_in_order_while_others_go_on_and_goes_out_in_order_on_start() -> None:
    async with Stage() as stage:
        pause(stage.router, SPEED)
        held = [stage.speed(b"%d" % number) for number in range(5)]
        doors = stage.speed(source=DOORS)
        stage.arrive("vehicle", *held[:3], doors, *held[3:])
        assert stage.sent("cloud") == [doors]
        assert (stage.queued(UP), waiting(stage.router)) == (5, 5)
        resume(stage.router, SPEED)
        stage.check_books()
        assert stage.sent("cloud") == [doors, *held]
        assert (stage.queued(UP), waiting(stage.router)) == (0, 0)


async def test_a_lane_that_exists_is_stopped_too_and_what_is_in_flight_finishes() -> None:
    async with Stage() as stage:
        cloud = stage.transports["cloud"]
        cloud.hold = True
        in_flight, later = stage.speed(b"in flight"), stage.speed(b"later")
        stage.arrive("vehicle", in_flight)
        pause(stage.router, SPEED)
        stage.arrive("vehicle", later)
        assert waiting(stage.router) == 1
        cloud.release_held()
        stage.check_books()
        assert stage.sent("cloud") == [in_flight]
        assert stage.outcomes(UP) == {"delivered": 1}
        resume(stage.router, SPEED)
        assert stage.sent("cloud") == [in_flight, later]


async def test_what_was_in_flight_and_comes_back_waits_at_its_old_place() -> None:
    async with Stage() as stage:
        cloud = stage.transports["cloud"]
        cloud.hold = True
        messages = [stage.speed(b"%d" % number) for number in range(3)]
        stage.arrive("vehicle", *messages)
        pause(stage.router, SPEED)
        cloud.lose_link()
        cloud.hold = False
        cloud.restore_link()
        stage.pass_time(100)
        assert stage.sent("cloud") == []
        assert waiting(stage.router) == 3
        resume(stage.router, SPEED)
        assert stage.sent("cloud") == messages


async def test_refused_message_is_not_tried_again_while_stopped() -> None:
    async with Stage() as stage:
        stage.transports["cloud"].refuse = lambda message: RefusedError(UCode.RESOURCE_EXHAUSTED, "not now")
        message = stage.speed()
        stage.arrive("vehicle", message)
        pause(stage.router, SPEED)
        stage.transports["cloud"].refuse = lambda message: None
        stage.pass_time(60_000)
        assert stage.sent("cloud") == []
        resume(stage.router, SPEED)
        assert stage.sent("cloud") == [message]


async def test_expired_message_of_a_stopped_lane_is_a_dead_letter_that_says_why() -> None:
    async with Stage() as stage:
        pause(stage.router, SPEED)
        stage.arrive("vehicle", stage.speed(ttl=500), stage.speed(b"lasts", ttl=5000))
        stage.pass_time(1000)
        assert stage.outcomes(UP) == {"expired": 1}
        (letter,) = stage.dead_letters("vehicle")
        assert letter.status.code == UCode.UNAVAILABLE
        assert letter.status.message == "its TTL passed while it was paused"
        resume(stage.router, SPEED)
        assert [message.payload for message in stage.sent("cloud")] == [b"lasts"]


async def test_stopped_request_that_expires_is_answered_with_unavailable() -> None:
    async with Stage() as stage:
        pause(stage.router, EVERYTHING._replace(sink=CLIMATE))
        asked = stage.ask(ttl=500)
        stage.arrive("cloud", asked)
        stage.pass_time(1000)
        assert stage.sent("vehicle") == []
        (answer,) = stage.sent("cloud")
        assert (answer.attributes.reqid, answer.attributes.commstatus) == (asked.id, UCode.UNAVAILABLE)


async def test_rule_with_a_sink_stops_only_what_goes_there() -> None:
    async with Stage() as stage:
        pause(stage.router, SPEED, CLOUD_APP)
        other = CLOUD_APP._replace(ue_id=0xC1)
        there, elsewhere, published = stage.notify(), stage.notify(sink=other), stage.speed()
        stage.arrive("vehicle", there, elsewhere, published)
        assert stage.sent("cloud") == [elsewhere, published]
        resume(stage.router, SPEED, CLOUD_APP)
        assert stage.sent("cloud") == [elsewhere, published, there]


async def test_where_a_publish_is_addressed_a_rule_stops_it_for_one_authority() -> None:
    config = configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["cloud", "backup"]},
        }
    )
    async with Stage(config, addressed=("cloud",)) as stage:
        pause(stage.router, SPEED, UUri.parse("//backup/FFFFFFFF/FF/FFFF"))
        stage.arrive("vehicle", stage.speed())
        assert [m.attributes.sink.authority for m in stage.sent("cloud") if m.attributes.sink] == ["cloud"]
        resume(stage.router, SPEED, UUri.parse("//backup/FFFFFFFF/FF/FFFF"))
        assert [m.attributes.sink.authority for m in stage.sent("cloud") if m.attributes.sink] == ["cloud", "backup"]


async def test_rule_stops_the_topic_on_every_route() -> None:
    publish = ["//veh1/FFFFFFFF/FF/FFFF"]
    config = three_networks(
        routes=[
            {"from": "vehicle", "to": "cloud", "publish": publish},
            {"from": "vehicle", "to": "phone", "publish": publish},
        ]
    )
    async with Stage(config) as stage:
        pause(stage.router, SPEED)
        message = stage.speed()
        stage.arrive("vehicle", message)
        assert (stage.sent("cloud"), stage.sent("phone")) == ([], [])
        resume(stage.router, SPEED)
        assert (stage.sent("cloud"), stage.sent("phone")) == ([message], [message])


async def test_lane_goes_on_only_when_the_last_rule_that_stops_it_is_gone() -> None:
    async with Stage() as stage:
        pause(stage.router, SPEED)
        pause(stage.router, EVERYTHING)
        message = stage.speed()
        stage.arrive("vehicle", message)
        resume(stage.router, SPEED)
        assert stage.sent("cloud") == []
        resume(stage.router, EVERYTHING)
        assert stage.sent("cloud") == [message]


async def test_reports_leave_whatever_is_stopped() -> None:
    """Dead letters and the errors that answer Requests are on queues without source."""
    async with Stage() as stage:
        pause(stage.router, EVERYTHING)
        asked = stage.ask(source=VEHICLE_APP, method=CLOUD_METHOD, ttl=100)
        stage.arrive("vehicle", asked)
        stage.pass_time(1000)
        assert len(stage.dead_letters("vehicle")) == 1
        (answer,) = stage.sent("vehicle")
        assert answer.attributes.reqid == asked.id


async def test_reports_whose_lanes_exist_already_leave_whatever_is_stopped() -> None:
    async with Stage() as stage:
        late = stage.speed(ttl=1)
        stage.clock.ms += 10
        stage.arrive("vehicle", late)
        assert len(stage.dead_letters("vehicle")) == 1
        pause(stage.router, EVERYTHING)
        stage.arrive("vehicle", stage.speed(ttl=100))
        stage.pass_time(1000)
        assert len(stage.dead_letters("vehicle")) == 2


@pytest.mark.parametrize(
    ("source", "target", "may_pause"),
    [
        ("vehicle", "cloud", True),
        ("", "cloud", False),
        ("vehicle", LOCAL_ENDPOINT, False),
        (LOCAL_ENDPOINT, "vehicle", False),
    ],
)
def test_only_what_is_between_others_can_be_stopped(source: str, target: str, may_pause: bool) -> None:
    assert RouteQueue("any", source, target, queue_policy(), RouteStats(), NoOwner()).may_pause is may_pause


async def test_stopped_publish_that_nobody_listens_to_waits_and_is_for_nobody_only_when_started() -> None:
    async with Stage() as stage:
        stage.transports["cloud"].set_presence(SPEED, None, Presence.ABSENT)
        pause(stage.router, SPEED)
        stage.arrive("vehicle", stage.speed())
        stage.pass_time(600_000)
        assert (stage.outcomes(UP), waiting(stage.router)) == ({}, 1)
        resume(stage.router, SPEED)
        stage.pass_time(100)
        assert stage.outcomes(UP) == {"unheard": 1}


async def test_listener_that_comes_while_it_is_stopped_gets_what_has_waited() -> None:
    async with Stage() as stage:
        cloud = stage.transports["cloud"]
        cloud.set_presence(SPEED, CLOUD_APP, Presence.ABSENT)
        pause(stage.router, SPEED)
        message = stage.notify()
        stage.arrive("vehicle", message)
        stage.pass_time(600_000)  # far beyond absent_s
        cloud.set_presence(SPEED, CLOUD_APP, Presence.PRESENT)
        assert stage.sent("cloud") == []
        resume(stage.router, SPEED)
        assert stage.sent("cloud") == [message]


async def test_what_was_unsure_and_is_doubted_while_stopped_goes_first_on_start() -> None:
    flow = (ORDERS, VEHICLE_APP)
    async with Stage(unconfirmed_s=10) as stage:
        vehicle = stage.transports["vehicle"]
        first, second, third = (stage.notify(b"%d" % number, sink=flow[1], source=flow[0]) for number in range(3))
        stage.arrive("cloud", first, second)
        stage.router.custody.flush()
        pause(stage.router, ORDERS)
        assert waiting(stage.router) == 0  # they have left
        vehicle.set_presence(*flow, Presence.ABSENT)
        stage.arrive("cloud", third)
        vehicle.set_presence(*flow, Presence.PRESENT)
        stage.pass_time(1000)
        assert stage.sent("vehicle") == [first, second]
        assert waiting(stage.router) == 3  # packed or not
        resume(stage.router, ORDERS)
        stage.check_books()
        assert stage.sent("vehicle") == [first, second, first, second, third]


async def test_idle_lane_of_a_stopped_flow_may_go_and_a_new_one_is_stopped() -> None:
    async with Stage() as stage:
        pause(stage.router, SPEED)
        stage.arrive("vehicle", stage.speed(ttl=100))
        stage.pass_time(1000)
        (queue,) = (queue for queue in stage.router.egresses["cloud"].queues if queue.name == UP)
        (before,) = queue.paused_lanes()
        queue._retire_idle_lanes()
        assert before.retired
        stage.arrive("vehicle", stage.speed())
        assert stage.sent("cloud") == []
        assert waiting(stage.router) == 1


async def test_rules_hold_over_a_restart_with_what_the_journal_has_kept(tmp_path: Path) -> None:
    """As the daemon does it: the rules are there before the router recovers."""
    async with life(tmp_path / "j.db", pause_rules=[PauseRule(ORDERS)]) as now:
        kept = [now.stage.notify(b"%d" % number, sink=VEHICLE_APP, source=ORDERS) for number in range(3)]
        batch = now.stage.arrive("cloud", *kept)
        await now.flush()
        assert all(received.acknowledged for received in batch)
    async with life(tmp_path / "j.db", pause_rules=[PauseRule(ORDERS)]) as now:
        newer = now.stage.notify(b"newer", sink=VEHICLE_APP, source=ORDERS)
        now.stage.arrive("cloud", newer)
        now.stage.pass_time(1000)
        assert now.stage.sent("vehicle") == []
        assert waiting(now.stage.router) == 4
        resume(now.stage.router, ORDERS)
        assert now.stage.sent("vehicle") == [*kept, newer]


async def test_what_left_unconfirmed_before_a_crash_waits_packed_while_it_is_stopped(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", unconfirmed_s=10) as now:
        left = [now.stage.notify(b"%d" % number, sink=VEHICLE_APP, source=ORDERS) for number in range(3)]
        now.stage.arrive("cloud", *left)
        await now.flush()
        assert now.stage.sent("vehicle") == left
    async with life(tmp_path / "j.db", unconfirmed_s=10, pause_rules=[PauseRule(ORDERS)]) as now:
        now.stage.pass_time(1000)
        assert now.stage.sent("vehicle") == []
        assert waiting(now.stage.router) == 3
        resume(now.stage.router, ORDERS)
        assert now.stage.sent("vehicle") == left


async def test_a_drain_with_a_journal_does_not_wait_for_what_is_stopped(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        pause(now.stage.router, ORDERS)
        now.stage.arrive("cloud", now.stage.notify(sink=VEHICLE_APP, source=ORDERS))
        await now.flush()
        async with asyncio.timeout(30):
            assert await now.stage.router.drain(600) == 1


async def test_metrics_count_rules_lanes_and_messages() -> None:
    async with Stage() as stage:
        pause(stage.router, SPEED)
        pause(stage.router, DOORS)
        stage.arrive("vehicle", stage.speed(), stage.speed(), stage.speed(source=DOORS))
        text = Exposition(stage.router).text().decode()
        labels = '{egress="cloud",ingress="vehicle",route="vehicle-cloud"}'
        assert "ustreamer_pause_rules 2.0" in text
        assert f"ustreamer_paused_lanes{labels} 2.0" in text
        assert f"ustreamer_paused_messages{labels} 3.0" in text
        resume(stage.router, DOORS)
        text = Exposition(stage.router).text().decode()
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
async def test_whatever_is_stopped_and_started_every_message_leaves_once_and_in_the_order_of_its_topic(
    steps: list[tuple[str, object]],
) -> None:
    sent: dict[UUri, list[UMessage]] = {topic: [] for topic in TOPICS}
    async with Stage(configuration(queue_policy={"flow_window": 1, "retry": {"jitter": 0, "attempts": 1_000_000}})) as stage:
        cloud, router = stage.transports["cloud"], stage.router
        for step, what in steps:
            left = len(stage.sent("cloud"))
            match step, what:
                case "publish", UUri() as topic:
                    sent[topic].append(stage.speed(source=topic))
                    stage.arrive("vehicle", sent[topic][-1])
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
                    stage.pass_time(ms)
            stage.check_books()
            for message in stage.sent("cloud")[left:]:
                assert router.pause_rules.rule_for(message.attributes.source, None) is None
        for rule in router.pause_rules.rules:
            resume(router, rule)
        cloud.refuse = lambda message: None
        cloud.restore_link()
        stage.pass_time(20_000)
        stage.pass_time(20_000)
        for topic in TOPICS:
            assert [m for m in stage.sent("cloud") if m.attributes.source == topic] == sent[topic]
