"""Unconfirmed messages: kept until they count as delivered, or are sent again."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamer.delivery.custody import unconfirmed as unconfirmed_module
from streamer.delivery.custody.unconfirmed import MAX_RETURNS
from streamer.delivery.lanes.lane import MAY_HAVE_ARRIVED, REDELIVERED, RESTORED, Hold, Lane
from streamer.journal import codec
from streamer.journal.entries import JournalError
from streamer.uprotocol.message import Attributes, UMessage, request, response
from streamer.uprotocol.uri import UUri
from tests.unit.delivery.custody.unconfirmed_harness import ABSENT_S, UNCONFIRMED_S, StoreHarness
from tests.unit.delivery.custody_harness import FleetingReceived
from tests.unit.delivery.messages import NOW_MS, message

APP = UUri("cloud", 0xC, 1, 0)
METHOD = UUri("veh1", 0xA, 1, 7)
NUMBER = 42


def call(number: int) -> UMessage:
    """One of several Requests of one flow."""
    return request(NOW_MS + number, APP, METHOD, ttl=60_000)


def answer(to: UMessage) -> Attributes:
    """The attributes of the Response to a Request."""
    return response(NOW_MS, to).attributes


# counting as delivered


def test_messages_count_as_delivered_once_they_are_old_enough_and_not_before() -> None:
    harness = StoreHarness()
    harness.send_some(3)
    harness.flush()
    assert harness.confirmed(UNCONFIRMED_S - 0.001) == []
    assert [(lane, summary.count) for lane, summary in harness.confirmed(0.001)] == [(harness.lane(), 3)]
    assert harness.is_empty


def test_age_is_counted_from_the_flush_after_which_a_batch_takes_no_more() -> None:
    harness = StoreHarness()
    harness.send_some(1)
    harness.clock.advance(500)
    harness.flush()
    harness.send_some(1)
    assert harness.confirmed_messages(UNCONFIRMED_S - 0.1) == 0
    assert harness.confirmed_messages(0.1) == 1


def test_each_lane_is_told_its_own_share() -> None:
    harness = StoreHarness()
    harness.send_some(3, flow=0)
    harness.send_some(2, flow=1)
    harness.flush()
    summaries = {lane: summary.count for lane, summary in harness.confirmed(UNCONFIRMED_S)}
    assert summaries == {harness.lane(0): 3, harness.lane(1): 2}


def test_a_flush_is_asked_for_once_for_each_batch() -> None:
    harness = StoreHarness()
    for _ in range(3):
        harness.send_some(1)
    assert harness.keeper.scheduled == 1
    harness.flush()
    harness.send_some(1)
    assert harness.keeper.scheduled == 2
    assert not harness.keeper.is_urgent


def test_a_batch_is_urgent_as_soon_as_it_has_a_message_that_no_source_retransmits() -> None:
    harness = StoreHarness()
    harness.send_some(1)
    ours = harness.accept(message(1), message(2))
    for delivery in ours:
        delivery.received = FleetingReceived(delivery.received.message)
        harness.store.add([delivery], harness.clock.s, harness.clock.ms, harness.observers)
    assert (harness.keeper.scheduled, harness.keeper.is_urgent) == (2, True)


def test_a_batch_that_is_large_enough_is_closed_without_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed_module, "_BATCH_BYTES", 2000)
    harness = StoreHarness()
    for _ in range(5):
        harness.send_some(1)
    assert harness.keeper.is_urgent
    assert [batch.lanes[harness.lane()].count for batch in harness.take_unstored()] == [4, 1]


def test_a_batch_that_nobody_flushes_is_closed_after_a_while() -> None:
    harness = StoreHarness()
    harness.send_some(1)
    assert harness.confirmed(0.9) == []
    assert harness.store.bytes == 0  # still open
    assert harness.confirmed(0.2) == []
    assert harness.confirmed_messages(UNCONFIRMED_S) == 1
    assert harness.store.bytes == 0


def test_the_receipts_of_a_batch_are_the_callers_once_it_is_stored() -> None:
    harness = StoreHarness()
    harness.send_some(2)
    assert not any(received.acknowledged for received in harness.receipts)
    harness.flush()
    assert all(received.acknowledged for received in harness.receipts)


def test_what_is_delivered_before_it_could_be_stored_is_acknowledged_and_not_stored_any_more() -> None:
    harness = StoreHarness()
    harness.send_some(2)
    harness.store.close(harness.clock.s)
    assert harness.confirmed_messages(UNCONFIRMED_S) == 2
    assert all(received.acknowledged for received in harness.receipts)
    assert all(value is None for value in harness.seen.young.values())
    assert harness.take_unstored() == []


def test_what_is_delivered_while_it_is_being_stored_is_forgotten_once_it_is() -> None:
    harness = StoreHarness()
    harness.send_some(1)
    (batch,) = harness.take_unstored()
    assert harness.confirmed_messages(UNCONFIRMED_S) == 1
    assert harness.keeper.forgotten == []
    harness.stored([batch])
    assert harness.keeper.forgotten == [batch.number]
    assert harness.is_empty


# the bound


def test_nothing_more_should_be_sent_at_the_bound_until_something_is_confirmed() -> None:
    harness = StoreHarness(max_bytes=2000)
    harness.send_some(3)
    assert not harness.store.is_full
    harness.send_some(1)
    assert harness.store.is_full
    harness.flush()
    assert harness.confirmed_messages(UNCONFIRMED_S) == 4
    assert not harness.store.is_full


def test_who_is_not_patient_ends_the_oldest_early() -> None:
    harness = StoreHarness(in_journal=False, max_bytes=2000, blocks_when_full=False)
    for _ in range(3):
        harness.send_some(2)
        harness.flush()
    assert not harness.store.is_full
    assert sum(summary.count for _, summary in harness.store.take_evicted()) == 4
    assert harness.store.take_evicted() == []
    assert harness.confirmed_messages() == 0


def test_what_is_to_be_redelivered_takes_no_room_from_what_is_sent() -> None:
    harness = StoreHarness(max_bytes=1)
    harness.send_some(1)
    harness.flush()
    harness.store.redeliver(harness.lane(), harness.clock.s)
    assert not harness.store.is_full


# nobody listens to a flow any more


def test_messages_of_a_flow_that_nobody_listens_to_are_redelivered_and_the_others_count_as_delivered() -> None:
    harness = StoreHarness()
    sent = harness.send_some(2, flow=0)
    harness.send_some(3, flow=1)
    harness.flush()
    harness.store.redeliver(harness.lane(0), harness.clock.s)
    assert [(lane, summary.count) for lane, summary in harness.confirmed(UNCONFIRMED_S)] == [(harness.lane(1), 3)]
    assert harness.refill(harness.lane(0)) == sent
    assert harness.confirmed_messages(UNCONFIRMED_S) == 0
    assert harness.is_empty


def test_messages_of_the_open_batch_are_redelivered_too_in_order_whatever_their_attributes() -> None:
    harness = StoreHarness()
    sent = harness.send(*(message(level=level) for level in (1, 2, 1)))
    harness.store.redeliver(harness.lane(), harness.clock.s)
    assert harness.refill(harness.lane()) == sent


def test_messages_are_marked_for_redelivery_once_however_often_it_is_said() -> None:
    harness = StoreHarness()
    harness.send_some(1)
    for _ in range(3):
        harness.store.redeliver(harness.lane(), harness.clock.s)
    assert len(harness.lane().redeliveries) == 1


def test_older_batches_go_before_younger_ones_and_all_before_what_has_not_been_sent() -> None:
    harness = StoreHarness()
    batches = [harness.send_some(1) for _ in range(3)]
    harness.flush()
    batches += [harness.send_some(2)]
    harness.flush()
    harness.accept(message(payload=b"new"))
    harness.store.redeliver(harness.lane(), harness.clock.s)
    assert harness.lane().wants_redelivery
    assert harness.send_waiting(harness.lane()) == []
    expected = [each for batch in batches for each in batch]
    harness.store.refill(harness.lane(), whole=True)
    assert [delivery.message for delivery in harness.lane().waiting()][:-1] == expected


def test_what_comes_back_is_what_was_sent_and_says_that_it_was() -> None:
    harness = StoreHarness()
    (delivery,) = harness.accept(message(ttl=5000, payload=b"x"))
    seq, sent, size = delivery.seq, delivery.message, delivery.size
    harness.send_waiting(delivery.lane)
    harness.flush()
    harness.store.redeliver(harness.lane(), harness.clock.s)
    harness.refill(harness.lane())
    (back,) = harness.keeper.back
    assert (back.seq, back.message, back.size, back.history) == (seq, sent, size, REDELIVERED | RESTORED | MAY_HAVE_ARRIVED)
    assert back.received.is_acknowledged
    assert (harness.queue.messages, harness.queue.bytes, harness.queue.unconfirmed) == (1, size, 0)


# a node was lost


def test_a_batch_is_set_aside_when_a_node_is_lost_and_redelivered_when_one_comes() -> None:
    harness = StoreHarness()
    sent = harness.send_some(2)
    harness.store.node_lost(harness.clock.s)
    assert harness.confirmed_messages(ABSENT_S - 1) == 0
    harness.store.node_came()
    assert harness.confirmed_messages(ABSENT_S) == 0
    assert harness.refill(harness.lane()) == sent


def test_if_no_node_comes_what_was_set_aside_counts_as_delivered_to_those_who_were_there() -> None:
    harness = StoreHarness()
    harness.send_some(2)
    harness.flush()
    harness.store.node_lost(harness.clock.s)
    assert harness.confirmed_messages(ABSENT_S) == 2
    harness.store.node_came()
    assert harness.store.lanes_in_need(harness.clock.ms, harness.clock.s) == []
    assert harness.is_empty


def test_what_is_sent_after_the_loss_is_not_set_aside() -> None:
    harness = StoreHarness()
    harness.store.node_lost(harness.clock.s)
    harness.send_some(1)
    harness.flush()
    harness.store.node_came()
    assert harness.confirmed_messages(UNCONFIRMED_S) == 1


def by_a_node(harness: StoreHarness) -> None:
    harness.store.node_lost(harness.clock.s)
    harness.store.node_came()


def by_an_interruption(harness: StoreHarness) -> None:
    harness.store.redeliver(harness.lane(), harness.clock.s, has_listener=True)


@pytest.mark.parametrize("sign", [by_a_node, by_an_interruption])
def test_a_node_that_comes_and_goes_for_ever_has_a_message_sent_again_no_more_than_so_often(
    sign: Callable[[StoreHarness], None],
) -> None:
    harness = StoreHarness()
    sent = harness.send_some(2)
    for _ in range(MAX_RETURNS):
        harness.flush()
        sign(harness)
        assert harness.refill(harness.lane()) == sent
        assert harness.send_waiting(harness.lane()) == sent
    younger = harness.send_some(1)
    sign(harness)
    assert harness.refill(harness.lane()) == younger
    assert harness.confirmed_messages(UNCONFIRMED_S) == 2


def by_its_last_listener(harness: StoreHarness) -> None:
    assert harness.store.redeliver(harness.lane(), harness.clock.s) == []


@pytest.mark.parametrize("sign", [by_a_node, by_an_interruption, by_its_last_listener])
def test_what_has_returned_as_often_as_it_may_ends_when_nobody_listens_any_more(
    sign: Callable[[StoreHarness], None],
) -> None:
    harness = StoreHarness()
    sent = harness.send_some(2)
    for _ in range(MAX_RETURNS):
        sign(harness)
        assert harness.refill(harness.lane()) == sent
        assert harness.send_waiting(harness.lane()) == sent
    younger = harness.send_some(1)
    (ended,) = harness.store.redeliver(harness.lane(), harness.clock.s)
    assert (ended.count, ended.bytes) == (2, sum(each.size for each in sent))
    assert harness.refill(harness.lane()) == younger
    assert harness.lane().unconfirmed == 0


def test_what_has_returned_as_often_as_it_may_is_still_sent_again_over_another_link() -> None:
    harness = StoreHarness()
    sent = harness.send_some(2)
    for _ in range(MAX_RETURNS):
        by_its_last_listener(harness)
        harness.refill(harness.lane())
        harness.send_waiting(harness.lane())
    harness.store.give_back(harness.clock.s)
    assert harness.refill(harness.lane()) == sent


def test_what_was_sent_before_the_moment_that_the_network_names_has_arrived_and_nothing_younger() -> None:
    harness = StoreHarness()
    harness.send_some(2)
    harness.flush()
    sent_s = harness.clock.s
    harness.clock.advance(100)
    harness.send_some(3)
    harness.flush()
    assert harness.confirmed(0, sent_s - 0.001) == []
    assert [summary.count for _, summary in harness.confirmed(0, sent_s)] == [2]
    assert [summary.count for _, summary in harness.confirmed(0, harness.clock.s)] == [3]
    assert harness.is_empty


def test_what_has_arrived_is_known_before_its_batch_is_flushed() -> None:
    harness = StoreHarness()
    sent = harness.send_some(2)
    assert [summary.count for _, summary in harness.confirmed(0, harness.clock.s)] == [2]
    assert harness.take_unstored() == []  # it never touches the disk
    assert [received.acknowledged for received in harness.receipts] == [True] * len(sent)


def test_a_response_proves_its_request_wherever_that_waits_to_be_sent_again() -> None:
    harness = StoreHarness()
    first, second, third = (call(number) for number in range(3))
    harness.send(first, second, third)
    harness.flush()
    harness.store.redeliver(lane := harness.queue.lane((APP, METHOD)), harness.clock.s)
    assert harness.store.request_answered(answer(first)) is None  # it is packed
    assert harness.refill(lane) == [first, second, third]
    assert list(harness.store.answered) == [lane.waiting()[0].seq]  # whoever has it unpacked settles it
    waiting = harness.store.request_answered(answer(third))
    assert waiting is not None
    assert waiting.message == third
    assert harness.store.request_answered(answer(third)) is None  # only once


def test_nobody_else_can_answer_a_request() -> None:
    harness = StoreHarness()
    (sent,) = harness.send(call(0))
    harness.store.redeliver(lane := harness.queue.lane((APP, METHOD)), harness.clock.s)
    harness.refill(lane)
    forged = replace(answer(sent), source=UUri("evil", 0xA, 1, 7))
    assert harness.store.request_answered(forged) is None
    assert harness.store.request_answered(answer(sent)) is not None


def test_of_many_requests_the_latest_can_be_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed_module, "_MAX_REQUESTS", 2)
    harness = StoreHarness()
    first, *others = harness.send(*(call(number) for number in range(3)))
    harness.store.redeliver(lane := harness.queue.lane((APP, METHOD)), harness.clock.s)
    harness.refill(lane)
    assert harness.store.request_answered(answer(first)) is None
    assert all(harness.store.request_answered(answer(each)) is not None for each in others)


def test_a_flow_that_nobody_listens_to_is_redelivered_from_what_is_set_aside_as_well() -> None:
    harness = StoreHarness()
    aside = harness.send_some(1)
    harness.store.node_lost(harness.clock.s)
    later = harness.send_some(1)
    harness.store.redeliver(harness.lane(), harness.clock.s)
    assert harness.refill(harness.lane()) == aside
    harness.store.refill(harness.lane(), whole=True)
    assert [delivery.message for delivery in harness.lane().waiting()] == aside + later
    assert harness.confirmed_messages(ABSENT_S) == 0


# redelivery


def test_a_lane_needs_a_refill_if_its_next_message_is_packed_and_may_leave() -> None:
    harness = StoreHarness()
    for flow in (0, 1, 2):
        harness.send_some(1, flow)
    harness.store.redeliver(harness.lane(0), harness.clock.s)
    harness.store.redeliver(harness.lane(1), harness.clock.s)
    harness.lane(1).set_hold(Hold.ABSENT)
    assert harness.store.lanes_in_need(harness.clock.ms, harness.clock.s) == [harness.lane(0)]
    harness.refill(harness.lane(0))
    assert harness.store.lanes_in_need(harness.clock.ms, harness.clock.s) == []


def test_a_lane_that_is_held_needs_a_refill_when_something_packed_has_expired() -> None:
    harness = StoreHarness()
    harness.send(message(ttl=5000), message(ttl=1000), message())
    harness.store.redeliver(harness.lane(), harness.clock.s)
    harness.lane().set_hold(Hold.ABSENT)
    assert harness.store.lanes_in_need(harness.clock.ms + 1000, harness.clock.s) == []
    assert harness.store.lanes_in_need(harness.clock.ms + 1001, harness.clock.s) == [harness.lane()]


def test_some_messages_at_a_time_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed_module, "_UNPACKED_MESSAGES", 3)
    harness = StoreHarness()
    lane = harness.lane()
    for _ in range(4):
        harness.send_some(2)
        harness.flush()
    harness.store.redeliver(lane, harness.clock.s)
    assert [len(harness.refill(lane)), len(lane.redeliveries)] == [2, 3]
    assert [len(harness.refill(lane)), len(lane.redeliveries)] == [2, 3]  # what is at hand goes first
    harness.send_waiting(lane)
    assert len(harness.refill(lane)) == 2
    harness.store.refill(lane, whole=True)
    assert [len(lane.waiting()), len(lane.redeliveries)] == [6, 0]


def test_a_batch_leaves_the_journal_when_its_last_lane_has_its_messages_back() -> None:
    harness = StoreHarness()
    harness.send_some(1, flow=0)
    harness.send_some(1, flow=1)
    harness.flush()
    (number,) = harness.keeper.bodies
    harness.store.redeliver(harness.lane(0), harness.clock.s)
    harness.store.redeliver(harness.lane(1), harness.clock.s)
    harness.refill(harness.lane(0))
    assert harness.keeper.forgotten == []
    harness.refill(harness.lane(1))
    assert harness.keeper.forgotten == [number]
    assert harness.keeper.reads == 1  # what is read for one lane is at hand for the next


def test_without_a_journal_bodies_stay_in_memory() -> None:
    harness = StoreHarness(in_journal=False)
    sent = harness.send_some(2)
    harness.flush()
    harness.store.redeliver(harness.lane(), harness.clock.s)
    assert harness.refill(harness.lane()) == sent
    assert (harness.keeper.reads, harness.keeper.forgotten) == (0, [])


def test_a_journal_that_cannot_be_read_now_leaves_everything_as_it_was() -> None:
    harness = StoreHarness()
    sent = harness.send_some(2)
    harness.flush()
    harness.store.redeliver(harness.lane(), harness.clock.s)
    harness.keeper.fails = True
    with pytest.raises(JournalError):
        harness.store.refill(harness.lane())
    assert (harness.queue.unconfirmed, harness.queue.messages) == (2, 0)
    harness.keeper.fails = False
    assert harness.refill(harness.lane()) == sent


def test_what_cannot_be_read_any_more_is_returned_as_lost_and_the_rest_goes_on() -> None:
    harness = StoreHarness()
    harness.send_some(2)
    harness.flush()
    harness.keeper.bodies.clear()
    rest = harness.send_some(1)
    harness.flush()
    harness.store.redeliver(harness.lane(), harness.clock.s)
    (lost,) = harness.store.refill(harness.lane(), whole=True)
    assert lost.count == 2
    assert [delivery.message for delivery in harness.lane().waiting()] == rest
    assert harness.is_empty


def test_once_half_of_the_room_is_used_a_flow_that_has_a_quarter_of_it_may_send_nothing_more() -> None:
    harness = StoreHarness(max_bytes=10_000)
    harness.send_some(5, 0)
    used = harness.store.unconfirmed_bytes
    harness.store.max_bytes = used * 2 + 1
    assert harness.store.over_quota() == set()
    harness.store.max_bytes = used * 2
    assert harness.store.over_quota() == {harness.lane(0)}
    harness.flush()
    assert harness.store.over_quota() == {harness.lane(0)}
    harness.confirmed(UNCONFIRMED_S)
    assert harness.store.over_quota() == set()


def test_many_flows_of_one_source_authority_have_no_more_than_half_of_the_room() -> None:
    harness = StoreHarness()
    for flow in range(10):
        harness.send_some(1, flow)
    harness.store.max_bytes = harness.store.unconfirmed_bytes * 2
    assert harness.store.over_quota() == set()
    harness.send_some(1, 10)
    assert harness.store.over_quota() == {harness.lane(flow) for flow in range(11)}


def test_time_in_which_the_process_did_not_run_makes_no_batch_older() -> None:
    harness = StoreHarness()
    harness.send_some(1)
    harness.flush()
    harness.send_some(1, 1)
    harness.clock.advance(60_000)
    harness.store.extend_waits(60)
    assert harness.confirmed_messages(UNCONFIRMED_S - 0.001) == 0
    assert harness.confirmed_messages(0.001) == 1
    harness.flush()
    assert harness.confirmed_messages(UNCONFIRMED_S) == 1


def test_nor_does_it_count_for_what_was_set_aside() -> None:
    harness = StoreHarness()
    harness.send_some(1)
    harness.flush()
    harness.store.node_lost(harness.clock.s)
    harness.clock.advance(60_000)
    harness.store.extend_waits(60)
    assert harness.confirmed_messages(ABSENT_S - 0.001) == 0
    assert harness.confirmed_messages(0.001) == 1


def left_behind(*messages: UMessage) -> bytes:
    """The body of a batch with these messages, of which the first has number 1."""
    earlier = StoreHarness()
    earlier.send(*messages)
    earlier.flush()
    (body,) = earlier.keeper.bodies.values()
    return body


def restore(harness: StoreHarness, body: bytes, known: set[int] | None = None, number: int = NUMBER) -> int:
    def flow_of(packed: codec.PackedFlow) -> tuple[Lane, Attributes]:
        attributes = codec.outgoing(packed.attributes, packed.outgoing)
        return harness.queue.lane((attributes.source, attributes.sink)), attributes

    harness.keeper.bodies[number] = body
    return harness.store.restore(number, body, flow_of, harness.clock.s, set() if known is None else known)


def test_messages_of_an_earlier_process_are_counted_and_wait_to_be_sent_again() -> None:
    harness = StoreHarness(max_bytes=1)
    sent = [message(0, payload=b"a"), message(1, ttl=5000), message(0)]
    assert restore(harness, left_behind(*sent)) == 3
    assert (harness.queue.stats.accepted, harness.queue.unconfirmed) == (3, 3)
    assert not harness.store.is_full
    assert harness.confirmed(ABSENT_S) == []
    assert harness.store.lanes_in_need(harness.clock.ms, harness.clock.s) == [harness.lane(0), harness.lane(1)]
    assert harness.refill(harness.lane(0)) == [sent[0], sent[2]]
    assert harness.refill(harness.lane(1)) == [sent[1]]
    assert harness.is_empty


def test_its_body_is_read_from_the_journal_when_it_is_needed() -> None:
    harness = StoreHarness()
    restore(harness, left_behind(message()))
    assert harness.keeper.reads == 0
    harness.refill(harness.lane())
    assert (harness.keeper.reads, harness.keeper.forgotten) == (1, [NUMBER])


def test_messages_of_a_lane_come_back_in_order_whatever_their_attributes() -> None:
    harness = StoreHarness()
    sent = [message(level=level, ttl=ttl) for level, ttl in ((1, None), (2, None), (1, 5000), (1, None), (2, None))]
    assert restore(harness, left_behind(*sent)) == 5
    assert harness.refill(harness.lane()) == sent


def test_messages_that_the_journal_has_as_rows_as_well_count_there() -> None:
    harness = StoreHarness()
    sent = [message(payload=b"1"), message(payload=b"2"), message(payload=b"3")]
    assert restore(harness, left_behind(*sent), known={1, 3}) == 1
    assert harness.queue.stats.accepted == 1
    assert harness.refill(harness.lane()) == [sent[1]]


def test_a_message_that_a_later_batch_has_as_well_counts_once() -> None:
    """The message was sent again, and the first batch stayed because of other messages."""
    harness, known = StoreHarness(), set[int]()
    first, again, other = message(payload=b"1"), message(payload=b"2"), message(1, payload=b"3")
    assert restore(harness, left_behind(first, again, other), known) == 3
    assert restore(harness, left_behind(first, again), known, NUMBER + 1) == 0
    assert (harness.queue.stats.accepted, harness.queue.unconfirmed) == (3, 3)
    assert harness.keeper.forgotten == [NUMBER + 1]
    assert harness.refill(harness.lane()) == [first, again]


def test_a_batch_of_which_all_messages_are_rows_is_forgotten_at_once() -> None:
    harness = StoreHarness()
    assert restore(harness, left_behind(message(), message()), known={1, 2}) == 0
    assert harness.keeper.forgotten == [NUMBER]
    assert harness.is_empty


@pytest.mark.parametrize("damage", [slice(0, 2), slice(0, -20)], ids=["flows", "messages"])
def test_what_cannot_be_read_changes_nothing(damage: slice) -> None:
    harness = StoreHarness()
    with pytest.raises(codec.UnreadableError):
        restore(harness, left_behind(message())[damage])
    assert (harness.store.bytes, harness.queue.unconfirmed, harness.queue.stats.accepted) == (0, 0, 0)
