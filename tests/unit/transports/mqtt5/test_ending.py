"""The end of a session: whether a later connection has it anyway, and when all that the broker keeps was taken."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from streamer.transports.mqtt5 import ending as ending_module
from streamer.transports.mqtt5.brokers import read_broker
from streamer.transports.mqtt5.ending import Ending, is_session_resumed_by
from streamer.transports.mqtt5.options import Mqtt5Options


def options(**given: Any) -> Mqtt5Options:
    return Mqtt5Options.model_validate({"broker": "mqtt://h", "client_id": "one", **given})


def is_resumed(later: Mqtt5Options, has_resumed: bool) -> bool:
    return is_session_resumed_by(options(), options().brokers[0], "gateway", later, has_resumed)


@pytest.mark.parametrize(
    ("later", "is_persistent"),
    [
        ({}, True),
        ({"keep_alive_s": 7, "broker": "mqtt://h:1883"}, True),
        ({"client_id": "two"}, False),
        ({"broker": "mqtt://other"}, False),
        ({"broker": "mqtt://h:1884"}, False),
        ({"username": "somebody"}, False),
        ({"clean_start": True}, True),  # it has thrown the session away
        ({"broker": "mqtt://other", "clean_start": True}, False),
    ],
)
def test_a_session_is_that_of_its_client_id_at_its_broker_and_account(later: dict[str, Any], is_persistent: bool) -> None:
    assert is_resumed(options(**later), has_resumed=False) is is_persistent


@pytest.mark.parametrize(("client_id", "is_persistent"), [("one", True), ("two", False)])
def test_a_connection_that_found_the_session_has_it_at_whatever_address(client_id: str, is_persistent: bool) -> None:
    later = options(broker="mqtt://other", client_id=client_id)
    assert is_resumed(later, has_resumed=True) is is_persistent


@pytest.mark.parametrize(("kept_at", "is_persistent"), [("mqtt://b", True), ("mqtt://c:1883", True), ("mqtt://h", False)])
def test_a_session_is_resumed_wherever_in_the_list_its_broker_stands(kept_at: str, is_persistent: bool) -> None:
    before, later = options(broker=["mqtt://a", kept_at]), options(broker=["mqtt://c", "mqtt://b"])
    kept = read_broker(kept_at)
    assert is_session_resumed_by(before, kept, "gateway", later, has_resumed=False) is is_persistent


class Broker:
    """Session, traffic and subscriptions of a connection at once. At each ping it does what comes next in ``at_pings``."""

    def __init__(self, *at_pings: Callable[["Broker"], None]) -> None:
        self.epoch = 1
        self.unacknowledged: list[bytes] = []
        self.acknowledged = 0
        self.has_requests = False
        self.ping_answers = 0
        self.has_left = False
        self._at_pings = list(at_pings)
        self.pings = 0

    def leave(self) -> None:
        self.has_left = True

    def write(self, packet: bytes) -> None:
        self.pings += 1
        self._at_pings.pop(0)(self)

    def answer(self) -> None:
        self.ping_answers += 1

    def bring(self) -> None:
        """A message comes before the answer, and is acknowledged."""
        self.acknowledged += 1
        self.answer()

    def bring_slowly(self) -> None:
        """A message comes before the answer, and is acknowledged later."""
        self.unacknowledged.append(b"message")
        self.answer()
        asyncio.get_running_loop().call_later(0.005, self.unacknowledged.clear)

    def come_anew(self) -> None:
        """The connection is lost; the answer is one of the next connection."""
        self.epoch += 1
        self.answer()


async def take_rest(broker: Any, within_s: float, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(ending_module, "_QUIET_S", 0.0)
    monkeypatch.setattr(ending_module, "_LOOK_S", 0.001)
    return await Ending(broker, broker, broker).take_rest(asyncio.get_running_loop().time() + within_s)


@pytest.mark.parametrize(
    "at_pings",
    [
        [Broker.answer],
        [Broker.bring, Broker.answer],
        [Broker.bring_slowly, Broker.answer],
        [Broker.bring, Broker.bring_slowly, Broker.bring, Broker.answer],
    ],
)
async def test_all_was_taken_once_a_ping_is_answered_with_nothing_before(
    at_pings: list[Callable[[Broker], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(*at_pings)
    assert await take_rest(broker, 10, monkeypatch)
    assert (broker.has_left, broker.pings) == (True, len(at_pings))


async def test_nothing_is_known_if_the_connection_is_lost_or_no_answer_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not await take_rest(Broker(Broker.come_anew), 10, monkeypatch)
    assert not await take_rest(Broker(lambda broker: None), 0.02, monkeypatch)


@pytest.mark.parametrize("what", ["unacknowledged", "has_requests"])
async def test_no_ping_is_sent_before_everything_is_acknowledged_and_unsubscribed(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    setattr(broker, what, [b"message"] if what == "unacknowledged" else True)
    assert not await take_rest(broker, 0.02, monkeypatch)
    assert broker.pings == 0
