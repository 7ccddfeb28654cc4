"""What every transport keeps of uP-L1: authentication, send, acknowledgement."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.base import LinkFailure, LinkState, Received, TransportContext
from streamer.transports.errors import LinkLostError, PermanentError, RefusedError, SendError
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, publish
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from tests.transport_events import StateEvents

NOW_MS = 1_700_000_000_000
US = UUri("gateway", 4, 1, 0)
TOPIC = UUri("veh1", 0xA, 1, 0x8000)


def memory(bus: str, **options: Any) -> MemoryTransport:
    return MemoryTransport(TransportContext("here", "gateway", now_ms=lambda: NOW_MS), MemoryOptions(bus=bus, **options))


class Copy(Received):
    """Counts its acknowledgements."""

    def __init__(self) -> None:
        super().__init__(publish(NOW_MS, TOPIC))
        self.acknowledged = 0

    def acknowledge(self) -> None:
        self.acknowledged += 1


# authenticate


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.send(publish(NOW_MS, TOPIC)),
        lambda t: t.receive(TOPIC),
        lambda t: t.register_listener(TOPIC, None, object()),
        lambda t: t.unregister_listener(TOPIC, None, object()),
    ],
    ids=["send", "receive", "register_listener", "unregister_listener"],
)
async def test_every_operation_needs_authentication_first(call: Callable[[MemoryTransport], Awaitable[object]]) -> None:
    transport = memory("auth-first")
    await transport.start()
    with pytest.raises(UStatusError) as caught:
        await call(transport)
    assert caught.value.code is UCode.UNAUTHENTICATED
    assert transport.sent == []
    assert transport.registry.filters() == []


async def test_authenticate_accepts_any_entity_of_our_authority_and_is_idempotent() -> None:
    transport = memory("auth-ok")
    await transport.authenticate(US)
    await transport.authenticate(US)
    await transport.authenticate(UUri("gateway", 77, 3, 0))
    transport.require_authenticated()


@pytest.mark.parametrize("authority", ["veh1", "", "*", "gateway2", "Gateway"])
async def test_authenticate_refuses_another_authority_every_time(authority: str) -> None:
    transport = memory("auth-no")
    for _ in range(2):
        with pytest.raises(UStatusError) as caught:
            await transport.authenticate(UUri(authority, 4, 1, 0))
        assert caught.value.code is UCode.UNAUTHENTICATED
    with pytest.raises(UStatusError, match="authenticate"):
        transport.require_authenticated()


# send


async def ready(bus: str, **options: Any) -> MemoryTransport:
    transport = memory(bus, **options)
    await transport.authenticate(US)
    await transport.start()
    return transport


@pytest.mark.parametrize(
    "message",
    [
        UMessage(bytes(16), Attributes(UMessageType.PUBLISH, TOPIC)),
        UMessage(new_id(NOW_MS), Attributes(UMessageType.PUBLISH, TOPIC._replace(resource=7))),
        UMessage(new_id(NOW_MS), Attributes(UMessageType.REQUEST, US, UUri("veh1", 1, 1, 1))),
        UMessage(new_id(NOW_MS), Attributes(UMessageType.UNSPECIFIED, TOPIC)),
    ],
)
async def test_send_refuses_an_invalid_message_at_once(message: UMessage) -> None:
    transport = await ready("send-invalid")
    with pytest.raises(UStatusError) as caught:
        transport.send(message)
    assert caught.value.code is UCode.INVALID_ARGUMENT
    assert transport.sent == []


async def test_send_completes_when_the_confirmation_comes_and_not_before() -> None:
    transport = await ready("send-confirm")
    transport.is_withholding = True
    first, second = publish(NOW_MS, TOPIC, b"1"), publish(NOW_MS, TOPIC, b"2")
    waiting: list[Any] = [transport.send(first), transport.send(second)]
    assert not any(future.done() for future in waiting)
    transport.release_withheld(1)
    assert [future.done() for future in waiting] == [True, False]
    transport.release_withheld()
    await asyncio.gather(*waiting)
    assert transport.sent == [first, second]


@pytest.mark.parametrize(
    "error", [RefusedError(UCode.RESOURCE_EXHAUSTED, "full"), PermanentError(UCode.PERMISSION_DENIED, "no")]
)
async def test_send_raises_what_the_destination_says(error: SendError) -> None:
    transport = await ready("send-refused")
    transport.refuse = lambda message: error
    with pytest.raises(type(error)) as caught:
        await transport.send(publish(NOW_MS, TOPIC))
    assert caught.value.code is error.code


async def test_send_without_link_raises_unavailable() -> None:
    transport = await ready("send-lost")
    transport.is_withholding = True
    waiting = transport.send(publish(NOW_MS, TOPIC))
    transport.lose_link()
    with pytest.raises(LinkLostError) as caught:
        await waiting
    assert caught.value.code is UCode.UNAVAILABLE
    with pytest.raises(LinkLostError):
        await transport.send(publish(NOW_MS, TOPIC))


async def test_caller_who_gave_up_waiting_does_no_harm() -> None:
    transport = await ready("send-cancel")
    transport.is_withholding = True
    given_up: Any = transport.send(publish(NOW_MS, TOPIC))
    waiting = transport.send(publish(NOW_MS, TOPIC))
    given_up.cancel()
    transport.release_withheld()
    await waiting
    assert given_up.cancelled()
    assert len(transport.sent) == 2


def test_change_of_state_is_reported_once() -> None:
    told: list[LinkState] = []
    transport = MemoryTransport(
        TransportContext("here", "gateway", events=StateEvents(told.append)), MemoryOptions(bus="state")
    )
    for state in (LinkState.DOWN, LinkState.ALONE, LinkState.ALONE, LinkState.UP, LinkState.UP, LinkState.DOWN):
        transport.set_state(state)
    assert told == [LinkState.ALONE, LinkState.UP, LinkState.DOWN]


# acknowledgement


@given(st.integers(1, 50))
def test_source_is_told_once_when_the_last_holder_has_released(holders: int) -> None:
    received = Copy()
    received.holders = holders
    for _ in range(holders - 1):
        received.release()
        assert received.acknowledged == 0
    received.release()
    assert received.acknowledged == 1


def test_copies_are_released_with_the_first() -> None:
    first, copies = Copy(), [Copy() for _ in range(3)]
    for copy in copies:
        first.attach(copy)
    assert [copy.acknowledged for copy in copies] == [0, 0, 0]
    first.release()
    assert [copy.acknowledged for copy in (first, *copies)] == [1, 1, 1, 1]


def test_of_copies_beyond_a_few_the_oldest_are_released() -> None:
    first, copies = Copy(), [Copy() for _ in range(100)]
    for copy in copies:
        first.attach(copy)
    kept = [copy for copy in copies if not copy.acknowledged]
    assert kept == copies[-len(kept) :]
    assert 0 < len(kept) < 50
    first.release()
    assert [copy.acknowledged for copy in copies] == [1] * 100


def test_copy_that_comes_after_the_release_is_released_at_once() -> None:
    first, copy = Copy(), Copy()
    first.release()
    first.attach(copy)
    assert copy.acknowledged == 1


# why the link is not up


class Watched(MemoryTransport):
    """Its clock stands still, unless a test moves it."""

    def __init__(self, bus: str) -> None:
        self.now_ms = NOW_MS
        super().__init__(TransportContext("here", "gateway", now_ms=lambda: self.now_ms), MemoryOptions(bus=bus))


async def test_the_first_failure_and_its_time_stay_beside_the_latest() -> None:
    transport = Watched("why")
    await transport.start()
    transport.now_ms += 1000
    transport.link_failed(LinkFailure.RESET, "closed by the broker", "b:1883")
    transport.set_state(LinkState.DOWN)
    for _ in range(3):
        transport.now_ms += 1000
        transport.link_failed(LinkFailure.REFUSED, "connection refused", "b:1883")
    link = transport.link
    assert (link.state, link.since_ms) == (LinkState.DOWN, NOW_MS + 1000)
    assert link.first_error == (LinkFailure.RESET, "closed by the broker", "b:1883", NOW_MS + 1000)
    assert link.last_error == (LinkFailure.REFUSED, "connection refused", "b:1883", NOW_MS + 4000)
    transport.now_ms += 1000
    transport.restore_link()
    link = transport.link
    assert (link.state, link.since_ms, link.first_error) == (LinkState.UP, NOW_MS + 5000, None)
    assert link.last_error is not None


async def test_a_failure_of_an_earlier_time_is_not_the_cause_of_a_later_one() -> None:
    """It went down for a reason, and later for no known one."""
    transport = Watched("why")
    transport.link_failed(LinkFailure.REFUSED, "connection refused")
    await transport.start()
    transport.lose_link()
    assert transport.link.first_error is None


async def test_an_endpoint_that_was_never_up_is_down_since_it_was_built() -> None:
    transport = Watched("why")
    transport.now_ms += 1000
    transport.set_state(LinkState.ALONE)
    assert (transport.link.state, transport.link.since_ms) == (LinkState.ALONE, NOW_MS)
