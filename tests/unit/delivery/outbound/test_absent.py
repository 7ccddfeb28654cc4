"""Lanes whose receiver is absent: held, settled or given up, and released when somebody listens. For more see tests/flow."""

import pytest

from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK, Hold
from streamer.delivery.outbound import absent as presence_module
from streamer.routing.outcome import Outcome
from streamer.transports.base import LinkState, Presence
from streamer.uprotocol.message import UMessage, notification
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.clock import START_MS
from tests.unit.delivery.messages import message, topic
from tests.unit.delivery.outbound.absent_harness import ABSENT_S, UNHEARD, PresenceHarness, give_back, lose_receiver

APP = UUri("cloud", 0xC, 1, 0)


def told() -> UMessage:
    """A message that waits for its receiver."""
    return notification(START_MS, topic(), APP)


# held and released


def test_a_lane_is_not_held_while_somebody_listens() -> None:
    harness = PresenceHarness()
    assert not harness.watched(told(), Presence.PRESENT).lane.hold


def test_a_lane_goes_on_when_somebody_listens_after_its_next_messages_were_unpacked() -> None:
    harness = PresenceHarness()
    lane = harness.watched(told()).lane
    harness.lanes.log.clear()
    harness.clock.advance(5)
    harness.change(lane, Presence.PRESENT)
    assert not lane.hold
    assert lane.absent_since_s is None
    assert harness.lanes.log == ["refill", "release", f"pump {START_MS + 5}"]


def test_a_lane_that_has_gone_is_not_watched_any_more() -> None:
    harness = PresenceHarness()
    lane = harness.watched(message()).lane
    harness.lanes.mark_ready(lane)
    harness.absent.forget(lane)
    harness.change(lane, Presence.PRESENT)
    assert lane.hold is Hold.ABSENT
    assert not harness.absent.settle_unheard()
    harness.absent.forget(lane)  # once more, as a lane that was never watched


# Publishes that nobody listens to


def test_very_many_that_nobody_listens_to_are_not_settled_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_module, "_UNHEARD_MESSAGES_PER_PUMP", 3)
    harness = PresenceHarness()
    one = harness.watched(message(), Presence.PRESENT).lane
    for _ in range(6):
        harness.accept(message())
    other = harness.watched(message(flow=2), Presence.PRESENT).lane
    for lane in (one, other):
        harness.change(lane, Presence.ABSENT)
    assert [(harness.absent.settle_unheard(), one.queued_messages, other.queued_messages) for _ in range(4)] == [
        (False, 4, 1),
        (False, 1, 1),
        (True, 0, 0),
        (False, 0, 0),
    ]
    assert harness.queue.stats.outcomes == {(Outcome.UNHEARD, UCode.OK): 8}


def test_a_publish_is_sent_if_somebody_listens_before_it_is_settled() -> None:
    harness = PresenceHarness()
    lane = harness.watched(message()).lane
    harness.lanes.mark_ready(lane)
    harness.change(lane, Presence.PRESENT)
    assert not harness.absent.settle_unheard()
    assert lane.queued_messages == 1


def test_a_paused_publish_waits_until_it_is_known_who_listens_when_it_goes_on() -> None:
    harness = PresenceHarness()
    lane = harness.watched(message()).lane
    harness.lanes.mark_ready(lane)
    lane.set_hold(lane.hold | Hold.PAUSED)
    harness.absent.settle_unheard()
    assert lane.queued_messages == 1


# a flow that loses its last listener


def test_publishes_wait_for_a_listener_after_the_last_one_went_with_some_in_flight() -> None:
    harness = PresenceHarness()
    lane = lose_receiver(harness, count=2)
    assert (lane.lost_receiver, lane.unconfirmed_in_flight) == (True, 2)
    harness.accept(message())
    harness.lanes.mark_ready(lane)
    assert not harness.absent.settle_unheard()


def test_unconfirmed_messages_return_to_their_lane_when_a_listener_may_have_been_away() -> None:
    harness = PresenceHarness()
    lane = harness.watched(message(), Presence.PRESENT).lane
    harness.held.send_unconfirmed(lane)
    harness.change(lane, Presence.INTERRUPTED)
    assert (lane.hold, lane.lost_receiver, lane.wants_redelivery) == (Hold.ABSENT, True, True)
    assert lane.absent_since_s is None


def test_publishes_that_returned_wait_for_a_listener_again_if_it_was_there_for_a_moment_only() -> None:
    harness = PresenceHarness()
    lane = lose_receiver(harness, count=2)
    give_back(lane, harness.sent)
    harness.change(lane, Presence.PRESENT)
    harness.change(lane, Presence.ABSENT)
    assert not harness.absent.settle_unheard()
    assert (lane.queued_messages, lane.lost_receiver) == (2, True)


@pytest.mark.parametrize("found", [[Presence.ABSENT], [Presence.INTERRUPTED, Presence.ABSENT]])
def test_what_an_earlier_process_has_sent_waits_for_a_listener_if_there_is_none_yet(found: list[Presence]) -> None:
    harness = PresenceHarness()
    lane = harness.watched(message(), Presence.UNKNOWN).lane
    harness.held.send_unconfirmed(lane)
    for presence in found:
        harness.change(lane, presence)
    assert harness.held.store.refill(lane) == []
    harness.lanes.mark_ready(lane)
    harness.absent.settle_unheard()
    assert (harness.queue.messages, harness.queue.stats.outcomes) == (1, {})


def test_a_listener_that_comes_back_ends_the_wait() -> None:
    harness = PresenceHarness()
    lane = lose_receiver(harness)
    harness.change(lane, Presence.PRESENT)
    assert not lane.lost_receiver


def test_younger_publishes_wait_no_longer_than_those_that_a_lost_listener_may_have_missed() -> None:
    harness = PresenceHarness()
    lane = lose_receiver(harness)
    give_back(lane, harness.sent)
    harness.clock.advance(30_000)
    younger = harness.accept(message())
    harness.tick(30)
    assert not lane.is_for_nobody
    harness.tick(0.001)
    assert (harness.queue.stats.outcomes, list(harness.queue.waiting())) == (UNHEARD, [younger])
    assert lane.is_for_nobody
    assert harness.absent.settle_unheard()
    assert lane.queued_messages == 0


def test_publishes_wait_if_a_node_was_lost_before_it_was_known_whether_anybody_listens() -> None:
    harness = PresenceHarness()
    lane = harness.watched(message(), Presence.UNKNOWN).lane
    harness.change(lane, Presence.INTERRUPTED)
    harness.change(lane, Presence.ABSENT)
    assert (lane.queued_messages, lane.is_for_nobody) == (1, False)
    harness.tick(ABSENT_S + 1)
    assert (harness.queue.stats.outcomes, lane.lost_receiver) == (UNHEARD, False)


def test_a_lane_in_which_nothing_waits_has_not_lost_a_listener_by_an_interruption() -> None:
    harness = PresenceHarness()
    delivery = harness.watched(message(), Presence.UNKNOWN)
    delivery.lane.drop(delivery)
    harness.change(delivery.lane, Presence.INTERRUPTED)
    assert not delivery.lane.lost_receiver


# waiting too long


def test_of_many_that_have_waited_too_long_some_are_given_up_at_a_time() -> None:
    harness = PresenceHarness()
    lane = harness.watched(told()).lane
    for _ in range(EXPIRED_MESSAGES_PER_TICK):
        harness.accept(told())
    harness.tick(ABSENT_S)
    harness.tick(0.001)
    assert lane.queued_messages == 1
    harness.tick()
    assert lane.queued_messages == 0


@pytest.mark.parametrize("is_paused", [True, False])
def test_nothing_is_given_up_while_its_flow_is_paused_or_the_link_is_down(is_paused: bool) -> None:
    harness = PresenceHarness()
    lane = harness.watched(told()).lane
    if is_paused:
        lane.set_hold(lane.hold | Hold.PAUSED)
    else:
        harness.transport.state = LinkState.DOWN
    harness.tick(10 * ABSENT_S)
    assert harness.queue.stats.outcomes == {}


def test_a_publish_that_has_waited_too_long_was_unheard_and_the_flow_waits_for_nobody_any_more() -> None:
    harness = PresenceHarness()
    lane = lose_receiver(harness)
    harness.accept(message())
    for _ in range(2):
        harness.tick(ABSENT_S + 1)
        assert (harness.queue.stats.outcomes, lane.lost_receiver) == (UNHEARD, True)
    lane.succeeded()
    harness.tick()
    assert not lane.lost_receiver
