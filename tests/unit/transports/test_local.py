"""The local endpoint: which service gets a message, when it counts as delivered, and when what services send is safe."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from streamer.transports.base import LinkState, MessageParcel, Received, SendResult, TransportContext, UListener
from streamer.transports.errors import LinkLostError, PermanentError
from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import UMessage, notification
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USTREAMER, USUBSCRIPTION

NOW_MS = 1_700_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)


class Results:
    """What became of submitted messages: id → error, None for delivered."""

    def __init__(self) -> None:
        self.errors: dict[bytes, SendResult] = {}

    def __call__(self, parcels: Sequence[Any], error: SendResult) -> None:
        self.errors |= dict.fromkeys((parcel.message.id for parcel in parcels), error)


class Kept(UListener):
    """Keeps what services send, unreleased."""

    def __init__(self) -> None:
        self.received: list[Received] = []

    def on_receive(self, received: Received) -> None:
        self.received.append(received)


@pytest.fixture
def transport() -> LocalTransport:
    return LocalTransport(TransportContext(LOCAL_ENDPOINT, "gw"), [USTREAMER, USUBSCRIPTION])


def to(sink: UUri) -> UMessage:
    return notification(NOW_MS, TOPIC, sink)


def submit(transport: LocalTransport, message: UMessage) -> Results:
    results = Results()
    transport.submit([MessageParcel(message)], results)
    return results


def test_a_message_is_delivered_once_its_service_is_done_with_it(transport: LocalTransport) -> None:
    taken: list[tuple[UMessage, Callable[[], None]]] = []
    transport.serve(USTREAMER, lambda message, done: taken.append((message, done)))
    message = to(USTREAMER.at("gw"))
    results = submit(transport, message)
    [(handed_over, done)] = taken
    assert (handed_over, results.errors) == (message, {})
    done()
    assert results.errors == {message.id: None}


def test_a_message_to_a_service_that_is_not_there_is_refused_for_good(transport: LocalTransport) -> None:
    transport.serve(USTREAMER, lambda message, done: done())
    message = to(USUBSCRIPTION.at("gw"))
    error = submit(transport, message).errors[message.id]
    assert isinstance(error, PermanentError)
    assert (error.code, str(error)) == (UCode.UNAVAILABLE, "UNAVAILABLE: this streamer has no uEntity //gw/0/3/0")


def test_a_service_with_a_fault_refuses_that_message_only(transport: LocalTransport) -> None:
    def fail_once(message: UMessage, done: Callable[[], None]) -> None:
        if message is bad:
            raise ZeroDivisionError
        done()

    transport.serve(USTREAMER, fail_once)
    bad, good = to(USTREAMER.at("gw")), to(USTREAMER.at("gw"))
    results = Results()
    transport.submit([MessageParcel(bad), MessageParcel(good)], results)
    error = results.errors.pop(bad.id)
    assert isinstance(error, PermanentError)
    assert (error.code, results.errors) == (UCode.INTERNAL, {good.id: None})


def test_only_a_service_that_the_router_knows_can_register(transport: LocalTransport) -> None:
    other = LocalTransport(TransportContext(LOCAL_ENDPOINT, "gw"), [USTREAMER])
    with pytest.raises(AssertionError):
        other.serve(USUBSCRIPTION, lambda message, done: None)


async def test_messages_that_no_service_is_done_with_are_lost_at_a_stop(transport: LocalTransport) -> None:
    transport.serve(USTREAMER, lambda message, done: None)
    message = to(USTREAMER.at("gw"))
    results = submit(transport, message)
    await transport.stop()
    assert isinstance(results.errors[message.id], LinkLostError)


async def test_it_stays_down_while_it_is_held(transport: LocalTransport) -> None:
    transport.stay_down("state file: gone")
    await transport.start()
    assert transport.state is LinkState.DOWN
    transport.stay_down("state file: the disk is full")
    assert transport.report().problems == ["state file: the disk is full"]
    transport.come_up()
    assert transport.state is LinkState.UP
    assert transport.report().problems == []


async def test_emitted_messages_are_safe_once_all_of_them_are(transport: LocalTransport) -> None:
    kept = Kept()
    await transport.authenticate(UUri("gw", 4, 1, 0))
    await transport.register_listener(everything_at("*"), everything_at("*"), kept)
    await transport.start()
    safe: list[bool] = []
    messages = [to(UUri("veh1", 1, 1, 0)), to(UUri("veh1", 2, 1, 0))]
    transport.emit(messages, lambda: safe.append(True))
    assert [received.message for received in kept.received] == messages
    kept.received[0].release()
    assert safe == []
    kept.received[1].release()
    assert safe == [True]


def test_nothing_to_emit_is_safe_at_once(transport: LocalTransport) -> None:
    safe: list[bool] = []
    transport.emit([], lambda: safe.append(True))
    assert safe == [True]
