"""Settling: every message is settled once; its outcome is counted and traced, and its source acknowledged."""

from pathlib import Path

import pytest

from streamer.delivery.custody.unconfirmed_batch import LaneSummary
from streamer.delivery.lanes.lane import Delivery, DeliveryState
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.outcomes.settle import NO_ROUTE
from streamer.delivery.outcomes.tap import Tap, TapFilter
from streamer.delivery.seen import key_of
from streamer.delivery.stats import Histogram, RouteStats
from streamer.routing.outcome import Failure, Outcome
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.status import UCode
from tests.clock import START_MS
from tests.unit.delivery.custody_harness import acknowledged, journaled
from tests.unit.delivery.messages import message, push, queue_policy
from tests.unit.delivery.settler_harness import SettlerHarness
from tests.unit.journal.harness import letter

EXPIRED = Failure(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED, "its TTL passed")
UNWANTED = Failure(Outcome.UNWANTED, UCode.OK, "no route")
FULL = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "the queue is full")


def observed(histogram: Histogram) -> tuple[int, float]:
    """How many values, and their sum in ms."""
    return sum(histogram.counts), round(histogram.sum * 1000)


def is_forgotten(delivery: Delivery) -> bool:
    return delivery.state is DeliveryState.SETTLED and not hasattr(delivery, "message")


# delivered


def test_a_delivered_message_is_counted_traced_and_acknowledged() -> None:
    harness = SettlerHarness()
    (delivery,) = harness.in_flight(message())
    received, uuid, key = delivery.received, delivery.message.id, key_of(delivery.message)
    harness.settler.delivered([delivery])
    assert harness.queue.stats.outcomes == {(Outcome.DELIVERED, UCode.OK): 1}
    assert (harness.queue.messages, harness.queue.bytes) == (0, 0)
    assert harness.observer.records == [(Outcome.DELIVERED, uuid)]
    assert acknowledged(received)
    assert harness.seen.young == {key: None}
    assert is_forgotten(delivery)


def test_latencies_are_counted_from_the_arrival_and_from_the_creation() -> None:
    harness = SettlerHarness()
    (delivery,) = harness.in_flight(message(made_ms=START_MS - 500))
    harness.clock.advance(20)
    harness.settler.delivered([delivery])
    assert observed(harness.queue.stats.in_daemon) == (1, 20)
    assert observed(harness.queue.stats.end_to_end) == (1, 520)


def test_a_message_from_a_clock_that_is_ahead_took_no_time() -> None:
    harness = SettlerHarness()
    (delivery,) = harness.in_flight(message(made_ms=START_MS + 5000))
    harness.settler.delivered([delivery])
    assert observed(harness.queue.stats.end_to_end) == (1, 0)


def test_a_message_with_two_destinations_is_acknowledged_when_both_have_it() -> None:
    harness = SettlerHarness()
    shared = harness.arrived(message())
    shared.holders = 2
    first, second = (
        harness.held.accept(shared.message, queue, shared) for queue in (harness.queue, harness.held.new_queue("side"))
    )
    harness.settler.delivered([first])
    assert not shared.acknowledged
    assert harness.seen.young[key_of(shared.message)] is shared
    harness.settler.delivered([second])
    assert shared.acknowledged
    assert harness.seen.young[key_of(shared.message)] is None


@pytest.mark.parametrize("routes", [[0, 1], [0, 0, 1, 1, 1, 0]])
def test_messages_of_several_routes_are_counted_on_their_own_accounts(routes: list[int]) -> None:
    harness = SettlerHarness()
    queues = [harness.queue, RouteQueue("down", "cloud", "vehicle", queue_policy(), RouteStats(), harness.owner)]
    waiting = [push(queues[route], message(flow)) for flow, route in enumerate(routes)]
    for delivery in waiting:
        delivery.lane.take(1, START_MS, [], [])
    harness.settler.delivered(waiting)
    for route, queue in enumerate(queues):
        assert queue.stats.outcomes == {(Outcome.DELIVERED, UCode.OK): routes.count(route)}
        assert (queue.messages, queue.stats.settled) == (0, queue.stats.accepted)


# unconfirmed


def test_an_unconfirmed_message_has_no_outcome_yet_and_its_latencies_are_counted() -> None:
    harness = SettlerHarness()
    (delivery,) = harness.in_flight(message())
    received = delivery.received
    harness.clock.advance(20)
    harness.settler.pack_unconfirmed([delivery], harness.held.store)
    stats = harness.queue.stats
    assert (stats.outcomes, harness.queue.messages, harness.queue.unconfirmed) == ({}, 0, 1)
    assert (observed(stats.in_daemon), observed(stats.end_to_end)) == ((1, 20), (1, 20))
    assert not acknowledged(received)
    assert harness.held.store.has_unstored
    assert is_forgotten(delivery)


def test_unconfirmed_messages_that_count_as_delivered_are_counted_and_traced_then() -> None:
    harness = SettlerHarness()
    lane, summary = harness.queue.lane((message().attributes.source, None)), LaneSummary(1)
    summary.count = 2
    summary.records += bytes(16) + bytes([1] * 16)
    harness.settler.count_as_delivered(lane, summary)
    assert harness.queue.stats.outcomes == {(Outcome.DELIVERED, UCode.OK): 2}
    assert [outcome for outcome, _ in harness.observer.records] == [Outcome.DELIVERED] * 2


def test_unconfirmed_messages_that_cannot_be_read_any_more_are_lost() -> None:
    harness = SettlerHarness()
    lane, summary = harness.queue.lane((message().attributes.source, None)), LaneSummary(1)
    summary.count = 2
    summary.records += bytes(16)
    tap, other = Tap(TapFilter(), 10, False), Tap(TapFilter(route="down"), 10, False)
    harness.observers += [tap, other]
    harness.settler.lost(lane, summary)
    assert (tap.left_out, other.left_out) == (2, 0)
    assert harness.queue.stats.outcomes == {(Outcome.DEAD_LETTERED, UCode.DATA_LOSS): 2}
    assert [outcome for outcome, _ in harness.observer.records] == [Outcome.DEAD_LETTERED]


# accepted and not delivered


def test_a_failed_message_is_counted_traced_told_and_acknowledged() -> None:
    harness = SettlerHarness()
    delivery = harness.accept(message())
    delivery.lane.drop(delivery)
    received, uuid, key = delivery.received, delivery.message.id, key_of(delivery.message)
    harness.settler.fail(delivery, EXPIRED)
    assert harness.queue.stats.outcomes == {(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED): 1}
    assert (harness.queue.messages, harness.queue.bytes) == (0, 0)
    assert harness.observer.records == [(Outcome.EXPIRED, uuid)]
    assert [(letter.route, letter.status.message) for letter in harness.letters()] == [("up", EXPIRED.text)]
    assert acknowledged(received)
    assert harness.seen.young[key] is None
    assert is_forgotten(delivery)


def test_a_publish_that_nobody_listens_to_is_no_failure() -> None:
    harness = SettlerHarness()
    delivery = harness.accept(message())
    delivery.lane.drop(delivery)
    received = delivery.received
    harness.settler.unheard(delivery)
    assert harness.queue.stats.outcomes == {(Outcome.UNHEARD, UCode.OK): 1}
    assert harness.letters() == []
    assert acknowledged(received)


# never accepted


def test_a_message_that_is_turned_away_is_counted_and_told_where_it_came_in() -> None:
    harness, stats = SettlerHarness(), RouteStats()
    received = harness.arrived(message())
    harness.settler.fail_unrouted(received, "vehicle", stats, EXPIRED)
    assert (stats.accepted, stats.outcomes) == (1, {(Outcome.EXPIRED, UCode.DEADLINE_EXCEEDED): 1})
    assert harness.observer.never_queued_at == [(NO_ROUTE, "vehicle", "")]
    assert [(letter.route, letter.endpoint) for letter in harness.letters()] == [("", "")]
    assert received.acknowledged
    assert harness.seen.young[key_of(received.message)] is None


def test_an_outcome_that_is_no_failure_is_counted_and_told_to_nobody() -> None:
    harness, stats = SettlerHarness(), RouteStats()
    received = harness.arrived(message())
    harness.settler.fail_unrouted(received, "vehicle", stats, UNWANTED)
    assert stats.outcomes == {(Outcome.UNWANTED, UCode.OK): 1}
    assert harness.letters() == []
    assert received.acknowledged


@pytest.mark.parametrize("has_route", [False, True])
def test_a_copy_is_counted_and_left_to_the_caller_to_acknowledge(has_route: bool) -> None:
    harness, stats = SettlerHarness(), RouteStats()
    received = harness.arrived(message())
    harness.settler.duplicate(received, "vehicle", stats, harness.queue if has_route else None)
    assert (stats.accepted, stats.outcomes) == (1, {(Outcome.DUPLICATE, UCode.OK): 1})
    assert harness.observer.never_queued_at == [("up", "vehicle", "cloud") if has_route else (NO_ROUTE, "vehicle", "")]
    assert not received.acknowledged
    assert harness.letters() == []


def test_a_message_that_a_route_leaves_out_is_counted_there_and_may_have_other_destinations() -> None:
    harness = SettlerHarness()
    received = harness.arrived(message())
    received.holders = 2
    harness.settler.sample_out(received, harness.queue)
    assert (harness.queue.stats.accepted, harness.queue.stats.outcomes) == (1, {(Outcome.SAMPLED_OUT, UCode.OK): 1})
    assert harness.observer.never_queued_at == [("up", "vehicle", "cloud")]
    assert not received.acknowledged
    harness.settler.sample_out(received, harness.queue)
    assert received.acknowledged


def test_a_message_that_a_route_has_no_room_for_is_counted_there_and_told() -> None:
    harness = SettlerHarness()
    received = harness.arrived(message())
    harness.settler.reject(received, harness.queue, FULL)
    assert harness.queue.stats.accepted == 1
    assert harness.queue.stats.outcomes == {(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED): 1}
    assert harness.queue.messages == 0
    assert [(letter.route, letter.endpoint) for letter in harness.letters()] == [("up", "cloud")]
    assert received.acknowledged


# making room


def test_room_is_made_by_giving_up_less_important_messages() -> None:
    harness = SettlerHarness()
    queue = harness.held.new_queue("side", queue={"messages": 2, "on_full": "evict"})
    least, other = harness.accept(message(0, level=0), queue), harness.accept(message(1, level=3), queue)
    assert harness.settler.evict_for(queue, 1, 2, FULL)
    assert is_forgotten(least)
    assert least.lane.queued_messages == 0
    assert list(queue.waiting()) == [other]
    assert queue.stats.outcomes == {(FULL.outcome, FULL.code): 1}


def test_nothing_is_given_up_where_there_is_room() -> None:
    harness = SettlerHarness()
    queue = harness.held.new_queue("side", queue={"messages": 2, "on_full": "evict"})
    waiting = push(queue, message(level=0))
    assert harness.settler.evict_for(queue, 1, 2, FULL)
    assert list(queue.waiting()) == [waiting]


def test_nothing_is_given_up_for_a_message_that_has_to_go_itself() -> None:
    harness = SettlerHarness()
    queue = harness.held.new_queue("side", queue={"messages": 1, "on_full": "evict"})
    waiting = push(queue, message(level=3))
    assert not harness.settler.evict_for(queue, 1, 2, FULL)
    assert list(queue.waiting()) == [waiting]


def test_with_every_tick_sources_are_told_that_have_waited_too_long_for_a_commit(tmp_path: Path) -> None:
    with journaled(tmp_path / "journal.db") as held:
        harness = SettlerHarness(held)
        received = MemoryReceived(message())
        held.custody.letter(letter(held.journal.number(), 1), received)
        harness.seen.release(received)
        held.clock.advance(900)
        harness.settler.tick(held.clock.s)
        assert not received.acknowledged
        held.clock.advance(200)
        harness.settler.tick(held.clock.s)
        assert received.acknowledged


def test_without_an_observer_everything_is_settled_as_well() -> None:
    harness = SettlerHarness()
    harness.observers.clear()
    harness.settler.delivered(harness.in_flight(message()))
    failed = harness.accept(message(1))
    failed.lane.drop(failed)
    harness.settler.fail(failed, EXPIRED)
    harness.settler.fail_unrouted(MemoryReceived(message()), "vehicle", RouteStats(), UNWANTED)
    harness.settler.count_as_delivered(harness.queue.lane((message().attributes.source, None)), LaneSummary(1))
    harness.settler.lost(harness.queue.lane((message().attributes.source, None)), LaneSummary(1))
    assert harness.observer.records == []
    assert harness.queue.stats.settled == 2
