"""The receiving half that transports share: a filter is opened with its first listener and closed with its last."""

import pytest

from streamer.transports.base import TransportContext, UListener
from streamer.transports.memory import MemoryOptions, MemoryReceived, MemoryTransport
from streamer.uprotocol.message import publish
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from tests.clock import START_MS, FakeClock

TOPIC, OTHER = UUri("veh1", 0xA, 1, 0x8000), UUri("veh1", 0xA, 1, 0x8001)


class RecordingTransport(MemoryTransport):
    """``log`` is which filters were opened (+) and closed (-)."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        super().__init__(TransportContext("vehicle", "gateway", now_ms=self.clock.wall_ms), MemoryOptions())
        self.log: list[tuple[str, UUri]] = []

    def open_filter(self, source: UUri, sink: UUri | None) -> None:
        self.log.append(("+", source))

    def close_filter(self, source: UUri, sink: UUri | None) -> None:
        self.log.append(("-", source))


@pytest.fixture
async def transport() -> RecordingTransport:
    transport = RecordingTransport()
    await transport.authenticate(UUri("gateway", 4, 1, 0))
    return transport


async def test_a_filter_is_opened_for_its_first_listener_and_closed_after_its_last(transport: RecordingTransport) -> None:
    first, second = UListener(), UListener()
    for listener in (first, second, first):
        await transport.register_listener(TOPIC, None, listener)
    assert transport.log == [("+", TOPIC)]
    await transport.unregister_listener(TOPIC, None, first)
    assert transport.log == [("+", TOPIC)]
    await transport.unregister_listener(TOPIC, None, second)
    assert transport.log == [("+", TOPIC), ("-", TOPIC)]


async def test_what_was_not_registered_cannot_be_unregistered(transport: RecordingTransport) -> None:
    with pytest.raises(UStatusError) as caught:
        await transport.unregister_listener(TOPIC, None, UListener())
    assert caught.value.code is UCode.NOT_FOUND
    assert transport.log == []


async def test_nothing_is_received_without_authentication() -> None:
    transport = RecordingTransport()
    for asked in (transport.register_listener(TOPIC, None, UListener()), transport.receive(TOPIC)):
        with pytest.raises(UStatusError) as caught:
            await asked
        assert caught.value.code is UCode.UNAUTHENTICATED
    assert transport.log == []


async def test_messages_are_pulled_in_order_from_the_first_call_for_a_filter_on(transport: RecordingTransport) -> None:
    sent = [publish(START_MS, TOPIC, b"%d" % number) for number in range(2)]
    transport.inject(MemoryReceived(sent[0]))
    with pytest.raises(UStatusError) as caught:
        await transport.receive(TOPIC)
    assert caught.value.code is UCode.NOT_FOUND
    transport.inject(*map(MemoryReceived, sent), MemoryReceived(publish(START_MS, OTHER)))
    assert [await transport.receive(TOPIC) for _ in sent] == sent
    assert transport.log == [("+", TOPIC)]
