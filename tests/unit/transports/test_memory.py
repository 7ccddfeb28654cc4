"""The memory transport: a network inside the process, and how tests steer it."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from streamer.transports.base import LinkState, ListenerOptions, MessageParcel, SendResult, TransportContext
from streamer.transports.errors import LinkLostError, RefusedError
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.uprotocol.message import Options, notification, publish
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri, everything_at
from tests.constants import with_constants
from tests.listeners import RecordingListener

NOW_MS = 1_700_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)
APP = UUri("cloud", 0xC, 1, 0)
_buses = itertools.count()


class Ledger:
    """Writes down the results of parcels."""

    def __init__(self) -> None:
        self.confirmed: list[MessageParcel] = []
        self.failed: list[tuple[MessageParcel, SendResult]] = []

    def __call__(self, parcels: Sequence[Any], error: SendResult) -> None:
        if error is None:
            self.confirmed += parcels
        else:
            self.failed += [(parcel, error) for parcel in parcels]


@pytest.fixture
def bus() -> str:
    return f"test-memory-{next(_buses)}"


async def join(bus: str, authority: str = "gateway", now_ms: int = NOW_MS, **options: Any) -> MemoryTransport:
    transport = MemoryTransport(
        TransportContext(authority, authority, now_ms=lambda: now_ms), with_constants(MemoryOptions, bus=bus, **options)
    )
    await transport.authenticate(UUri(authority, 4, 1, 0))
    await transport.start()
    return transport


async def test_what_one_sends_every_other_on_the_bus_receives(bus: str) -> None:
    sender, near, far = await join(bus), await join(bus), await join(f"{bus}-other")
    listeners = []
    for transport in (sender, near, far):
        listeners.append(RecordingListener())
        await transport.register_listener(TOPIC, None, listeners[-1])
    message = publish(NOW_MS, TOPIC, b"payload", Options(token="t", ttl=5, permission_level=1))
    await sender.send(message)
    assert [listener.messages for listener in listeners] == [[], [message], []]


async def test_nothing_is_delivered_after_unregistering(bus: str) -> None:
    sender, receiver, listener = await join(bus), await join(bus), RecordingListener()
    await receiver.register_listener(TOPIC, None, listener)
    await receiver.unregister_listener(TOPIC, None, listener)
    await sender.send(publish(NOW_MS, TOPIC))
    assert listener.messages == []
    with pytest.raises(UStatusError, match="NOT_FOUND"):
        await receiver.unregister_listener(TOPIC, None, listener)


async def test_transport_without_link_receives_nothing(bus: str) -> None:
    sender, receiver, listener = await join(bus), await join(bus), RecordingListener()
    await receiver.register_listener(TOPIC, None, listener)
    receiver.lose_link()
    await sender.send(publish(NOW_MS, TOPIC, b"missed"))
    receiver.restore_link()
    await sender.send(publish(NOW_MS, TOPIC, b"heard"))
    await receiver.stop()
    await sender.send(publish(NOW_MS, TOPIC, b"too late"))
    assert [message.payload for message in listener.messages] == [b"heard"]


async def test_limits_come_from_the_options(bus: str) -> None:
    transport = await join(bus, listeners=ListenerOptions(max_listeners=1))
    await transport.register_listener(TOPIC, None, RecordingListener())
    with pytest.raises(UStatusError) as caught:
        await transport.register_listener(everything_at("veh1"), None, RecordingListener())
    assert caught.value.code is UCode.RESOURCE_EXHAUSTED


async def test_receive_opens_its_filter_with_the_first_call_and_pulls_in_order(bus: str) -> None:
    sender, receiver = await join(bus), await join(bus)
    await sender.send(publish(NOW_MS, TOPIC, b"before the filter was opened"))
    with pytest.raises(UStatusError) as caught:
        await receiver.receive(TOPIC)
    assert caught.value.code is UCode.NOT_FOUND
    sent = [publish(NOW_MS, TOPIC, bytes([n])) for n in range(3)]
    expired = publish(NOW_MS - 10, TOPIC, b"late", Options(ttl=9))
    for message in (expired, *sent):
        await sender.send(message)
    assert [await receiver.receive(TOPIC) for _ in sent] == sent
    with pytest.raises(UStatusError, match="NOT_FOUND"):
        await receiver.receive(TOPIC)


async def test_receive_keeps_filters_apart(bus: str) -> None:
    sender, receiver = await join(bus), await join(bus)
    for pair in ((TOPIC, None), (TOPIC, APP)):
        with pytest.raises(UStatusError, match="NOT_FOUND"):
            await receiver.receive(*pair)
    notice, news = notification(NOW_MS, TOPIC, APP), publish(NOW_MS, TOPIC)
    await sender.send(notice)
    await sender.send(news)
    assert await receiver.receive(TOPIC) == news
    assert await receiver.receive(TOPIC, APP) == notice


async def test_receive_of_a_filter_outside_the_table_is_an_invalid_argument_every_time(bus: str) -> None:
    receiver = await join(bus)
    for _ in range(2):
        with pytest.raises(UStatusError) as caught:
            await receiver.receive(APP)
        assert caught.value.code is UCode.INVALID_ARGUMENT


async def test_what_the_link_loses_comes_back_in_order(bus: str) -> None:
    transport, ledger = await join(bus), Ledger()
    transport.is_withholding = True
    parcels = [MessageParcel(publish(NOW_MS, TOPIC)) for _ in range(5)]
    transport.submit(parcels, ledger)
    transport.release_withheld(2)
    transport.lose_link()
    assert ledger.confirmed == parcels[:2]
    assert [parcel for parcel, _ in ledger.failed] == parcels[2:]
    assert all(isinstance(error, LinkLostError) for _, error in ledger.failed)
    assert transport.sent == [parcel.message for parcel in parcels[:2]]
    transport.submit(parcels[4:], ledger)
    assert len(ledger.failed) == 4


async def test_what_the_link_loses_comes_back_in_one_call_as_from_a_real_network(bus: str) -> None:
    transport = await join(bus)
    calls: list[list[MessageParcel]] = []

    def done(parcels: Sequence[Any], error: SendResult) -> None:
        assert isinstance(error, LinkLostError)
        calls.append(list(parcels))

    transport.is_withholding = True
    lost, late = ([MessageParcel(publish(NOW_MS, TOPIC)) for _ in range(5)] for _ in range(2))
    for parcels in (lost[:2], lost[2:]):
        transport.submit(parcels, done)
    transport.lose_link()
    transport.submit(late, done)
    assert calls == [lost, late]


async def test_refused_message_is_neither_sent_nor_received(bus: str) -> None:
    sender, receiver, listener, ledger = await join(bus), await join(bus), RecordingListener(), Ledger()
    await receiver.register_listener(TOPIC, None, listener)
    refused, taken = MessageParcel(publish(NOW_MS, TOPIC, b"bad")), MessageParcel(publish(NOW_MS, TOPIC, b"good"))
    error = RefusedError(UCode.RESOURCE_EXHAUSTED, "not now")
    sender.refuse = lambda message: error if message.payload == b"bad" else None
    sender.submit([refused, taken], ledger)
    assert ledger.failed == [(refused, error)]
    assert ledger.confirmed == [taken]
    assert listener.messages == sender.sent == [taken.message]


async def test_stop_is_idempotent_and_ends_with_the_link_down(bus: str) -> None:
    transport = await join(bus)
    await transport.stop()
    await transport.stop()
    assert transport.state is LinkState.DOWN


async def test_options_say_window_and_sink_authority(bus: str) -> None:
    transport = await join(bus, window=7, sink_authority=True)
    assert (transport.capacity, transport.options.addresses_publishes) == (7, True)


async def test_what_is_sent_while_held_messages_are_let_go_does_not_overtake_them(bus: str) -> None:
    transport = await join(bus)
    transport.is_withholding = True
    held = [MessageParcel(publish(NOW_MS, TOPIC, bytes([n]))) for n in range(3)]
    late = MessageParcel(publish(NOW_MS, TOPIC, b"late"))
    transport.submit(held, lambda parcels, error: None if late in sent else transport.submit(sent_once(), ignore))
    sent: list[MessageParcel] = []

    def ignore(parcels: Sequence[Any], error: SendResult) -> None: ...

    def sent_once() -> list[MessageParcel]:
        sent.append(late)
        return [late]

    transport.release_withheld()
    assert transport.sent == [parcel.message for parcel in (*held, late)]


@pytest.mark.parametrize("given", [{"unconfirmed_s": "1"}, {"sink_authority": "no"}])
def test_no_option_is_guessed(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        MemoryOptions.model_validate(given)
