"""The timer of a connection, with the time given."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamer.transports.mqtt5.keep_alive import KeepAlive
from streamer.transports.mqtt5.options import Mqtt5Options
from streamer.transports.mqtt5.session import Session
from streamer.uprotocol.message import publish
from streamer.uprotocol.uri import UUri

OPTIONS = Mqtt5Options(broker=("mqtt://127.0.0.1",), ack_timeout_s=20)


class FakeConnection:
    """What the timer checks and calls, without a socket."""

    def __init__(self) -> None:
        self.is_open = self.is_reading = True
        self.is_skipping = False
        self.last_read_s = self.last_write_s = 0.0
        self.aborted: list[str] = []
        self.now_s = 0.0
        self.pings_s: list[float] = []

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)

    def write(self, data: bytes) -> None:
        assert data == b"\xc0\x00"  # PINGREQ
        self.last_write_s = self.now_s
        self.pings_s.append(self.now_s)


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection()


@pytest.fixture
def keep_alive(connection: FakeConnection) -> KeepAlive:
    """One message is sent, at 0 s, and never confirmed."""
    session = Session(10, lambda message, packet_id, duplicate: b"", lambda: None)
    session.connected(False, 10, None)
    letter = SimpleNamespace(message=publish(0, UUri("veh1", 1, 1, 0x8000), b""), wire_bytes=0)
    session.submit([cast(Any, letter)], lambda parcels, error: None)
    keep_alive = KeepAlive(cast(Any, connection), session, OPTIONS, lambda: False, 0.0)
    keep_alive.check(0.0)
    return keep_alive


def listen(keep_alive: KeepAlive, connection: FakeConnection, first_s: int, last_s: int) -> None:
    """Something arrives every second: the link is not dead."""
    for now_s in range(first_s, last_s + 1):
        connection.last_read_s = connection.now_s = now_s
        keep_alive.check(now_s)


def test_missing_puback_ends_the_connection(keep_alive: KeepAlive, connection: FakeConnection) -> None:
    listen(keep_alive, connection, 1, 20)
    assert connection.aborted == []
    listen(keep_alive, connection, 21, 21)
    assert connection.aborted == ["no PUBACK within 20 s"]
    assert connection.pings_s == [11]
    assert keep_alive._session.has_timed_out
    assert keep_alive._session.is_alive


def test_a_link_on_which_nothing_comes_meanwhile_may_be_dead(keep_alive: KeepAlive, connection: FakeConnection) -> None:
    listen(keep_alive, connection, 1, 10)
    for now_s in range(11, 22):
        keep_alive.check(now_s)
    assert connection.aborted == ["no PUBACK within 20 s"]
    assert keep_alive._session.has_timed_out
    assert not keep_alive._session.is_alive


def test_missing_puback_is_waited_for_while_a_packet_that_is_too_large_passes_by(
    keep_alive: KeepAlive, connection: FakeConnection
) -> None:
    connection.is_skipping = True
    listen(keep_alive, connection, 1, 100)
    connection.is_skipping = False
    listen(keep_alive, connection, 101, 120)
    assert connection.aborted == []
    listen(keep_alive, connection, 121, 121)
    assert connection.aborted == ["no PUBACK within 20 s"]


def test_the_broker_hears_from_us_while_we_read_nothing(connection: FakeConnection) -> None:
    session = Session(10, lambda message, packet_id, duplicate: b"", lambda: None)
    session.connected(False, 10, None)
    keep_alive = KeepAlive(cast(Any, connection), session, OPTIONS, lambda: False, 0.0)
    connection.is_reading = False
    for now_s in range(100):
        connection.now_s = now_s
        keep_alive.check(now_s)
    assert connection.pings_s == [15, 30, 45, 60, 75, 90]  # half of keep_alive_s, 30
    assert connection.aborted == []  # no answer can have been read


def new_session() -> Session:
    return Session(10, lambda message, packet_id, duplicate: b"", lambda: None)


def test_missing_connack_ends_the_connection(connection: FakeConnection) -> None:
    session = new_session()
    keep_alive = KeepAlive(cast(Any, connection), session, OPTIONS, lambda: False, 0.0)
    listen(keep_alive, connection, 1, 10)
    assert connection.aborted == []
    listen(keep_alive, connection, 11, 11)
    assert connection.aborted == ["no CONNACK within 10 s"]
    session.connected(False, 10, None)
    listen(keep_alive, connection, 12, 100)
    assert len(connection.aborted) == 1


@pytest.mark.parametrize("opened_s", [0, 1000], ids=["while connecting", "later"])
def test_each_subscribe_has_its_time_to_be_answered(connection: FakeConnection, opened_s: int) -> None:
    session = new_session()
    session.connected(False, 10, None)
    keep_alive = KeepAlive(cast(Any, connection), session, OPTIONS, lambda: False, 0.0)
    listen(keep_alive, connection, 1, opened_s)
    requests = [session.request(["a"]) for _ in range(3)]
    for answered in requests[:2]:
        listen(keep_alive, connection, opened_s + 1, opened_s + 9)
        session.answered(answered)
        opened_s += 9
    listen(keep_alive, connection, opened_s + 1, opened_s + 11)
    assert connection.aborted == []
    listen(keep_alive, connection, opened_s + 12, opened_s + 12)
    assert connection.aborted == ["no SUBACK or UNSUBACK within 10 s"]


@pytest.mark.parametrize("why", ["is_reading", "is_skipping"])
def test_an_answer_is_waited_for_while_we_do_not_read_it(connection: FakeConnection, why: str) -> None:
    session = new_session()
    session.connected(False, 10, None)
    keep_alive = KeepAlive(cast(Any, connection), session, OPTIONS, lambda: False, 0.0)
    session.request(["a"])
    setattr(connection, why, not getattr(connection, why))
    listen(keep_alive, connection, 1, 100)
    setattr(connection, why, not getattr(connection, why))
    listen(keep_alive, connection, 101, 110)
    assert connection.aborted == []
    listen(keep_alive, connection, 111, 111)
    assert connection.aborted == ["no SUBACK or UNSUBACK within 10 s"]


def test_requests_that_were_answered_before_a_check_are_not_waited_for(connection: FakeConnection) -> None:
    session = new_session()
    session.connected(False, 10, None)
    keep_alive = KeepAlive(cast(Any, connection), session, OPTIONS, lambda: False, 0.0)
    for now_s in range(1, 100):
        packet_id = session.request(["a"])  # the same filters each time
        listen(keep_alive, connection, now_s, now_s)
        session.answered(packet_id)
    assert connection.aborted == []


def test_where_the_connection_goes_on_without_an_answer_the_next_request_has_its_time(connection: FakeConnection) -> None:
    session, asked = new_session(), 0

    def give_up_unanswered() -> bool:
        nonlocal asked
        asked += 1
        session.request(session.give_up_requests())
        return True

    session.connected(False, 10, None)
    keep_alive = KeepAlive(cast(Any, connection), session, OPTIONS, give_up_unanswered, 0.0)
    session.request(["a"])
    listen(keep_alive, connection, 1, 33)
    assert asked == 2
    assert connection.aborted == []
