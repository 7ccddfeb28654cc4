"""What every transport keeps of uP-L1: authentication, send, the filter table, and discovery by entry point."""

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.base import (
    LinkState,
    Received,
    TransportContext,
    UTransport,
    available_transports,
    check_filter,
    load_transport,
    loadable_transports,
)
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
    transport.hold = True
    first, second = publish(NOW_MS, TOPIC, b"1"), publish(NOW_MS, TOPIC, b"2")
    waiting: list[Any] = [transport.send(first), transport.send(second)]
    assert not any(future.done() for future in waiting)
    transport.release_held(1)
    assert [future.done() for future in waiting] == [True, False]
    transport.release_held()
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
    transport.hold = True
    waiting = transport.send(publish(NOW_MS, TOPIC))
    transport.lose_link()
    with pytest.raises(LinkLostError) as caught:
        await waiting
    assert caught.value.code is UCode.UNAVAILABLE
    with pytest.raises(LinkLostError):
        await transport.send(publish(NOW_MS, TOPIC))


async def test_caller_who_gave_up_waiting_does_no_harm() -> None:
    transport = await ready("send-cancel")
    transport.hold = True
    given_up: Any = transport.send(publish(NOW_MS, TOPIC))
    waiting = transport.send(publish(NOW_MS, TOPIC))
    given_up.cancel()
    transport.release_held()
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


# the table of resource ids

ENTITY, FIRST_METHOD, LAST_METHOD, FIRST_TOPIC, LAST_TOPIC, ANY = 0, 1, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF

LEGAL_PAIRS = {
    (FIRST_TOPIC, None),
    (LAST_TOPIC, None),
    (ANY, None),
    (FIRST_TOPIC, ENTITY),
    (LAST_TOPIC, ENTITY),
    (ENTITY, FIRST_METHOD),
    (ENTITY, LAST_METHOD),
    (FIRST_METHOD, ENTITY),
    (LAST_METHOD, ENTITY),
    (ANY, ENTITY),
    (ANY, ANY),
}
RESOURCES = (ENTITY, FIRST_METHOD, LAST_METHOD, FIRST_TOPIC, LAST_TOPIC, ANY)
ALL_PAIRS = [(source, sink) for source in RESOURCES for sink in (None, *RESOURCES)]


@pytest.mark.parametrize(("source", "sink"), ALL_PAIRS)
def test_filters_are_those_of_the_table_and_no_others(source: int, sink: int | None) -> None:
    pair = UUri("veh1", 1, 1, source), None if sink is None else UUri("cloud", 1, 1, sink)
    if (source, sink) in LEGAL_PAIRS:
        check_filter(*pair)
    else:
        with pytest.raises(UStatusError) as caught:
            check_filter(*pair)
        assert caught.value.code is UCode.INVALID_ARGUMENT


@pytest.mark.parametrize("bad", [{"ue_id": 1 << 32}, {"version": 256}, {"resource": 1 << 16}, {"authority": "A"}])
def test_filter_out_of_range_is_an_invalid_argument(bad: dict[str, Any]) -> None:
    for pair in ((TOPIC._replace(**bad), None), (TOPIC, UUri("a", 1, 1, 0)._replace(**bad))):
        with pytest.raises(UStatusError) as caught:
            check_filter(*pair)
        assert caught.value.code is UCode.INVALID_ARGUMENT


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


# discovery

PLUGIN = """
from streamer.transports.base import TransportOptions, UTransport

class Options(TransportOptions):
    pigeons: int = 3

class PigeonTransport(UTransport):
    kind = "pigeon"
    Options = Options
    async def start(self): ...
    async def stop(self): ...
    def submit(self, parcels, done): ...
    async def receive(self, source_filter, sink_filter=None): ...
    async def register_listener(self, source_filter, sink_filter, listener): ...
    async def unregister_listener(self, source_filter, sink_filter, listener): ...
"""


def forget_transports() -> None:
    """What another test has installed is gone."""
    load_transport.cache_clear()
    loadable_transports.cache_clear()


@pytest.fixture
def pigeons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution of another package: a module and its dist-info."""
    (tmp_path / "pigeon_carrier.py").write_text(PLUGIN)
    info = tmp_path / "pigeon_carrier-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-carrier\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ustreamer.transports]\npigeon = pigeon_carrier:PigeonTransport\nbroken = pigeon_carrier_broken:Nothing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    forget_transports()
    yield
    forget_transports()
    sys.modules.pop("pigeon_carrier", None)


@pytest.mark.usefixtures("pigeons")
def test_transport_of_another_package_is_found_by_its_entry_point() -> None:
    assert set(available_transports()) >= {"pigeon", "memory", "mqtt5", "zenoh"}
    kind = load_transport("pigeon")
    assert issubclass(kind, UTransport)
    options = kind.Options()
    transport = kind(TransportContext("loft", "gateway"), options)
    assert transport.options is options
    assert (transport.state, transport.capacity, vars(options)["pigeons"]) == (LinkState.DOWN, 1000, 3)


@pytest.mark.usefixtures("pigeons")
def test_what_a_transport_says_nothing_about_has_a_default() -> None:
    kind = load_transport("pigeon")
    assert not kind.Options().addresses_publishes
    assert not kind.Options().proves_identity
    assert kind.filter_texts(TOPIC, None, "cloud") == {}


@pytest.mark.usefixtures("pigeons")
def test_transports_that_cannot_be_loaded_are_left_out() -> None:
    assert "broken" in available_transports()
    assert set(loadable_transports()) == set(available_transports()) - {"broken"}
    assert loadable_transports()["pigeon"] is load_transport("pigeon")


@pytest.mark.usefixtures("pigeons")
def test_transport_that_cannot_be_loaded_says_why() -> None:
    with pytest.raises(ModuleNotFoundError, match="pigeon_carrier_broken"):
        load_transport("broken")


def test_unknown_transport_is_a_lookup_error_that_names_the_installed_ones() -> None:
    forget_transports()
    with pytest.raises(LookupError, match=r"'pigeon'.*memory") as caught:
        load_transport("pigeon")
    assert "mqtt5" in str(caught.value)


def test_memory_transport_is_found_by_its_entry_point() -> None:
    assert load_transport("memory") is MemoryTransport
