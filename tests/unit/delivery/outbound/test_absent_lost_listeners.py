"""Publishes that wait because their listener may be lost, and how long."""

from streamer.delivery.lanes.lane import EXPIRED_MESSAGES_PER_TICK
from streamer.transports.base import Presence
from tests.unit.delivery.messages import message
from tests.unit.delivery.outbound.absent_harness import ABSENT_S, UNHEARD, PresenceHarness, give_back, lose_receiver


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


def test_of_many_that_a_lost_listener_may_have_missed_the_last_is_waited_for_too() -> None:
    harness = PresenceHarness()
    lane = lose_receiver(harness, EXPIRED_MESSAGES_PER_TICK + 1)
    give_back(lane, harness.sent)
    harness.accept(message())
    harness.tick(ABSENT_S + 1)
    assert (lane.queued_messages, lane.lost_receiver) == (2, True)
    harness.tick()
    assert (lane.queued_messages, lane.lost_receiver) == (0, False)


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
