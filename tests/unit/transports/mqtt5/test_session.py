"""The session as a dialogue: what it is given, and what it wants to write or tell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.base import SendResult
from streamer.transports.errors import LinkLostError, MayHaveArrivedError, PermanentError, RefusedError
from streamer.transports.mqtt5.session import MqttReceived, Session
from streamer.transports.mqtt5.subscriptions import Subscriptions, batches
from streamer.uprotocol.message import Options, UMessage, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id

MESSAGE = publish(1_790_000_000_000, UUri.parse("//veh1/A8000/2/8A50"), b"", Options())


@dataclass
class Parcel:
    message: UMessage
    name: str
    wire_bytes: int = 0
    since_s: float = 0.0


def make_parcel(name: str) -> Parcel:
    return Parcel(replace(MESSAGE, payload=name.encode()), name)


def make_parcels(names: str) -> list[Parcel]:
    return [make_parcel(name) for name in names]


def encode(message: UMessage, packet_id: int, duplicate: bool) -> bytes:
    name = (message.payload or b"").decode()
    if name == "!":
        raise ValueError("cannot be addressed")
    return f"{name}{packet_id}{'dup' if duplicate else ''}".encode()


class SessionHarness:
    """A session, and what it has told."""

    def __init__(self, window: int = 10, connect: bool = True) -> None:
        self.session = Session(window, encode, self._count)
        self.told: list[tuple[str, SendResult]] = []
        self.flushes = 0
        if connect:
            self.connect(session_present=False)

    def _count(self) -> None:
        self.flushes += 1

    def connect(self, session_present: bool, receive_maximum: int = 65_535, max_packet_bytes: int | None = None) -> None:
        self.session.connected(session_present, receive_maximum, max_packet_bytes)

    def reconnect(self, session_present: bool, receive_maximum: int = 65_535) -> None:
        self.session.disconnected()
        self.connect(session_present, receive_maximum)

    def done(self, parcels: Sequence[Any], error: SendResult) -> None:
        self.told.append(("".join(parcel.name for parcel in parcels), error))

    def submit(self, names: str) -> list[str]:
        self.session.submit(make_parcels(names), self.done)
        return self.written()

    def pubacks(self, *acknowledged: int | tuple[int, int]) -> list[str]:
        for item in acknowledged:
            self.session.on_puback(*((item, 0) if isinstance(item, int) else item))
        self.session.report_results()
        return self.written()

    def written(self) -> list[str]:
        return [packet.decode() for packet in self.session.take_outgoing()]

    def receive(self, *packet_ids: int) -> list[MqttReceived]:
        return [self.session.receive(MESSAGE, False, packet_id) for packet_id in packet_ids]

    def acknowledged(self) -> list[int]:
        data = self.session.take_acknowledgements()
        assert len(data) % 4 == 0
        found = []
        for start in range(0, len(data), 4):
            assert data[start : start + 2] == b"\x40\x02"
            found.append(int.from_bytes(data[start + 2 : start + 4], "big"))
        return found


def test_every_packet_of_a_message_counts_also_when_it_is_sent_again() -> None:
    d = SessionHarness()
    parcel = make_parcel("long")
    d.session.submit([parcel], d.done)
    (first,) = d.written()
    assert parcel.wire_bytes == len(first)
    d.reconnect(True)
    (again,) = d.written()
    assert parcel.wire_bytes == len(first) + len(again)


# -- sending ----------------------------------------------------------------------------------------------------------


def test_batch_goes_out_at_once_and_is_told_in_one_call() -> None:
    d = SessionHarness()
    assert d.submit("abc") == ["a1", "b2", "c3"]
    assert d.told == []
    d.pubacks(1, 2, 3)
    assert d.told == [("abc", None)]


def test_quota_is_the_smaller_one_of_window_and_receive_maximum() -> None:
    d = SessionHarness(window=3)
    assert d.session.limit == 3
    d.reconnect(session_present=False, receive_maximum=2)
    assert d.session.limit == 2
    assert d.submit("abcd") == ["a1", "b2"]
    assert d.pubacks(1) == ["c3"]
    assert d.pubacks(2, 3) == ["d4"]
    d.pubacks(4)
    assert d.told == [("a", None), ("bc", None), ("d", None)]


def test_what_is_submitted_behind_a_backlog_stays_behind_it() -> None:
    d = SessionHarness(window=1)
    assert d.submit("ab") == ["a1"]
    assert d.submit("c") == []
    assert d.pubacks(1) == ["b2"]
    assert d.pubacks(2) == ["c3"]


def test_receive_maximum_is_never_exceeded_whatever_comes() -> None:
    d = SessionHarness(window=5)
    d.submit("abcdefghijklmnop")
    assert d.session.unconfirmed == 5
    d.reconnect(session_present=True, receive_maximum=2)
    assert d.session.unconfirmed == 2
    d.pubacks(1)
    assert d.session.unconfirmed == 2


def test_refusals_are_told_singly_with_their_error() -> None:
    d = SessionHarness()
    d.submit("abcde")
    d.pubacks(1, (2, 0x87), (3, 0x97), 4, (5, 0x10))
    assert [names for names, _ in d.told] == ["a", "b", "c", "de"]
    errors = [error for _, error in d.told]
    assert isinstance(errors[1], PermanentError)
    assert isinstance(errors[2], RefusedError)
    assert errors[3] is None


def test_runs_end_where_another_callback_begins() -> None:
    d = SessionHarness()
    other: list[str] = []
    d.submit("ab")
    d.session.submit(make_parcels("c"), lambda parcels, error: other.extend(parcel.name for parcel in parcels))
    d.submit("d")
    d.pubacks(1, 2, 3, 4)
    assert d.told == [("ab", None), ("d", None)]
    assert other == ["c"]


def test_message_that_cannot_be_written_is_refused_for_good_and_holds_up_nothing() -> None:
    d = SessionHarness()
    assert d.submit("a!b") == ["a1", "b3"]
    ((names, error),) = d.told
    assert names == "!"
    assert isinstance(error, PermanentError)
    assert error.code is UCode.INVALID_ARGUMENT


def test_message_in_the_backlog_that_cannot_be_written_is_refused_in_its_turn() -> None:
    d = SessionHarness(window=1)
    d.submit("a!b")
    assert d.pubacks(1) == ["b3"]
    assert [names for names, _ in d.told] == ["!", "a"]


def test_message_beyond_the_brokers_packet_size_is_refused_for_good() -> None:
    d = SessionHarness(connect=False)
    d.connect(session_present=False, max_packet_bytes=4)
    assert d.session.max_packet_bytes == 4
    d.session.submit([make_parcel("a"), make_parcel("long")], d.done)
    assert d.written() == ["a1"]
    ((names, error),) = d.told
    assert names == "long"
    assert isinstance(error, PermanentError)
    assert error.code is UCode.RESOURCE_EXHAUSTED


def test_unknown_and_repeated_pubacks_change_nothing() -> None:
    d = SessionHarness(window=1)
    d.submit("abc")
    assert d.pubacks(9) == []
    assert d.pubacks(1, 1) == ["b2"]
    assert d.told == [("a", None)]


def test_packet_ids_wrap_around_and_skip_those_in_use() -> None:
    d = SessionHarness(window=50_000)
    d.submit("a")
    held = d.session.request(["x"])
    assert held == 2
    d.submit("z" * 32_000)
    d.pubacks(*range(3, 32_003))
    d.submit("z" * 33_530)
    d.pubacks(*range(32_003, 65_533))
    ids = [int(packet[1:]) for packet in d.submit("b" * 50)]
    assert max(ids) == 65_535
    assert min(ids) == 3  # 1 and 2 are in use
    assert len(set(ids)) == len(ids)


def test_full_socket_holds_messages_back_until_it_is_writable() -> None:
    d = SessionHarness()
    d.session.is_writable = False
    assert d.submit("ab") == []
    d.session.is_writable = True
    d.session.drain()
    assert d.written() == ["a1", "b2"]


def test_callback_that_submits_again_keeps_the_order() -> None:
    d = SessionHarness(window=1)

    def again(parcels: Sequence[Any], error: SendResult) -> None:
        d.done(parcels, error)
        d.session.submit(make_parcels("z"), d.done)

    d.session.submit(make_parcels("a"), again)
    d.session.submit(make_parcels("b"), d.done)
    assert d.written() == ["a1"]
    assert d.pubacks(1) == ["b2"]
    assert d.pubacks(2) == ["z3"]


# -- reconnecting -----------------------------------------------------------------------------------------------------


def test_session_present_resends_in_order_with_the_same_ids_and_dup() -> None:
    d = SessionHarness()
    d.submit("abcd")
    d.pubacks(2)
    d.reconnect(session_present=True)
    assert d.written() == ["a1dup", "c3dup", "d4dup"]
    assert d.submit("e") == ["e5"]
    d.pubacks(1, 3, 4, 5)
    assert "".join(names for names, _ in d.told) == "bacde"


@given(st.lists(st.integers(0, 9), max_size=200))
def test_it_is_known_whether_a_later_message_was_confirmed_before_the_oldest(choices: list[int]) -> None:
    """Each choice confirms that one of ten messages in flight, and one more is sent."""
    h = SessionHarness()
    h.submit("x" * 10)
    in_flight, passed, last = list(range(1, 11)), set[int](), 10
    for choice in choices:
        confirmed = in_flight.pop(choice)
        passed = (passed | set(in_flight[:choice])) - {confirmed}
        h.pubacks(confirmed)
        h.submit("x")
        last += 1
        in_flight.append(last)
        noted = h.session._passed_over
        assert noted <= passed
        assert (in_flight[0] in noted) == (in_flight[0] in passed)
        assert len(h.session._order) < 50


def test_a_message_that_times_out_comes_last_of_what_is_sent_again_with_its_flow() -> None:
    h = SessionHarness()
    other = replace(MESSAGE, attributes=replace(MESSAGE.attributes, source=UUri.parse("//veh1/A8000/2/8A51")))
    names = ("a", "1", "b", "2")
    of_two = [
        Parcel(replace(other if name.isdigit() else MESSAGE, id=new_id(number), payload=name.encode()), name)
        for number, name in enumerate(names)
    ]
    h.session.submit(of_two, h.done)
    h.written()
    h.session.has_timed_out = h.session.is_alive = True
    h.reconnect(session_present=True)
    assert h.written() == ["12dup", "24dup", "a1dup", "b3dup"]
    h.reconnect(session_present=False)  # it is still overdue
    assert h.written() == ["15", "26", "a7", "b8"]
    assert h.told == []


def test_nothing_is_resent_without_a_reconnect() -> None:
    d = SessionHarness()
    d.submit("a")
    d.session.drain()
    d.pubacks()
    assert d.written() == []


def test_resending_keeps_to_a_smaller_receive_maximum_and_goes_before_the_backlog() -> None:
    d = SessionHarness(window=3)
    d.submit("abcde")
    d.reconnect(session_present=True, receive_maximum=2)
    assert d.written() == ["a1dup", "b2dup"]
    assert d.submit("f") == []
    assert d.pubacks(1) == ["c3dup"]
    assert d.pubacks(2, 3) == ["d4", "e5"]
    assert d.pubacks(4, 5) == ["f6"]


def test_second_loss_while_resending_keeps_the_order() -> None:
    d = SessionHarness(window=4)
    d.submit("abcd")
    d.reconnect(session_present=True, receive_maximum=2)
    assert d.written() == ["a1dup", "b2dup"]
    d.reconnect(session_present=True, receive_maximum=4)
    assert d.written() == ["a1dup", "b2dup", "c3dup", "d4dup"]


def test_ids_waiting_to_be_resent_are_not_given_away() -> None:
    d = SessionHarness(window=4)
    d.submit("ab")
    d.session.disconnected()
    d.session._last_id = 0
    d.connect(session_present=True, receive_maximum=1)
    assert d.session.request(["x"]) == 3


def test_no_session_gives_everything_back_in_order_and_says_what_may_have_arrived() -> None:
    d = SessionHarness(window=3)
    d.submit("abcde")
    d.reconnect(session_present=False)
    assert d.written() == []
    assert [(names, type(error)) for names, error in d.told] == [("abc", MayHaveArrivedError), ("de", LinkLostError)]


def test_what_is_unconfirmed_waits_while_the_link_is_down() -> None:
    d = SessionHarness()
    d.submit("a")
    d.session.disconnected()
    assert d.told == []
    assert not d.session.is_connected
    d.session.lose_all()
    assert [names for names, _ in d.told] == ["a"]


def test_head_stays_until_the_oldest_is_confirmed() -> None:
    d = SessionHarness()
    assert d.session.head is None
    d.submit("ab")
    head = d.session.head
    d.pubacks(2)
    assert d.session.head is head
    d.pubacks(1)
    assert d.session.head is None


# -- receiving --------------------------------------------------------------------------------------------------------


def test_acknowledgements_wait_for_earlier_ones() -> None:
    d = SessionHarness()
    first, second, third = d.receive(11, 12, 13)
    third.release()
    second.release()
    assert d.flushes == 0
    assert d.acknowledged() == []
    first.release()
    assert d.flushes == 1
    assert d.acknowledged() == [11, 12, 13]


def test_message_with_two_holders_is_acknowledged_by_the_last() -> None:
    d = SessionHarness()
    (received,) = d.receive(11)
    received.holders = 2
    received.release()
    assert d.acknowledged() == []
    received.release()
    assert d.acknowledged() == [11]


def test_skipped_packet_is_acknowledged_in_its_turn() -> None:
    d = SessionHarness()
    (first,) = d.receive(11)
    d.session.skip(12)
    assert d.acknowledged() == []
    first.release()
    assert d.acknowledged() == [11, 12]
    d.session.skip(13)
    assert d.flushes == 2
    assert d.acknowledged() == [13]


def test_receipt_of_an_old_connection_acknowledges_nothing() -> None:
    d = SessionHarness()
    (old,) = d.receive(11)
    d.reconnect(session_present=True)
    (again,) = d.receive(11)
    old.release()
    assert d.flushes == 0
    assert d.acknowledged() == []
    again.release()
    assert d.acknowledged() == [11]


def test_second_acknowledgement_is_harmless() -> None:
    d = SessionHarness()
    (received,) = d.receive(11)
    received.acknowledge()
    assert d.acknowledged() == [11]
    received.acknowledge()
    assert d.acknowledged() == []


# -- subscriptions ----------------------------------------------------------------------------------------------------


def test_request_is_answered_once() -> None:
    d = SessionHarness()
    packet_id = d.session.request(["a/+", "b/+"])
    assert d.session.answered(packet_id) == ["a/+", "b/+"]
    assert d.session.answered(packet_id) is None


@pytest.mark.parametrize("is_given_up", [False, True])
def test_the_next_connection_has_the_packet_ids_of_unanswered_requests(is_given_up: bool) -> None:
    d = SessionHarness()
    for _ in range(2):
        d.session._last_id = 0
        assert d.session.request(["a/+"]) == 1
        if is_given_up:
            d.session.give_up_requests()
        d.reconnect(session_present=True)


def test_topic_filters_are_counted() -> None:
    subscriptions = Subscriptions()
    assert subscriptions.open("a/+")
    assert not subscriptions.open("a/+")
    assert not subscriptions.close("a/+")
    assert subscriptions.needed() == ["a/+"]
    assert subscriptions.close("a/+")
    assert subscriptions.needed() == []
    assert subscriptions.unneeded() == ["a/+"]


def test_filter_opened_again_is_not_unsubscribed() -> None:
    subscriptions = Subscriptions()
    subscriptions.open("a/+")
    subscriptions.close("a/+")
    subscriptions.open("a/+")
    assert subscriptions.unneeded() == []


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (8, [8]), (17, [8, 8, 1])])
def test_filters_go_in_batches_of_eight(count: int, sizes: list[int]) -> None:
    assert [len(batch) for batch in batches([str(number) for number in range(count)])] == sizes
