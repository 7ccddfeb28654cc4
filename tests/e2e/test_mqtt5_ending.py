"""The session of an MQTT endpoint that goes on with another one: what the broker keeps in it is taken, and it ends."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from streamer.transports.base import LinkState
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.transports.mqtt5 import transport
from tests.brokers import Mosquitto
from tests.e2e.mqtt_messages import TOPIC, numbered, texts
from tests.e2e.mqtt_sessions import is_kept, subscribed_to, tied, user
from tests.fault.proxy import Proxy
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint, FakeBroker
from tests.ports import HOST
from tests.waiting import until

COUNT = 3000  # more than the broker sends without acknowledgements

pytestmark = pytest.mark.mosquitto


async def stopped(endpoint: Endpoint, inbox: RecordingListener, sender: Endpoint, count: int = COUNT) -> None:
    """The endpoint has run, and the broker keeps so many messages for it."""
    async with endpoint.running(), sender.running():
        await subscribed_to(endpoint, TOPIC, inbox)
        await sender.up()
        await endpoint.transport.stop()
        sender.submit(numbered(count))
        await until(lambda: len(sender.confirmed) == count, "what the broker has")


def other_id(before: Mosquitto, after: Mosquitto) -> tuple[Endpoint, str]:
    return Endpoint(before.url, "gateway", client_id="new"), before.url


def other_broker(before: Mosquitto, after: Mosquitto) -> tuple[Endpoint, str]:
    return Endpoint(after.url, "gateway"), after.url


def clean_start(before: Mosquitto, after: Mosquitto) -> tuple[Endpoint, str]:
    return Endpoint(after.url, "gateway", clean_start=True), after.url


@pytest.mark.parametrize("change", [other_id, other_broker, clean_start])
async def test_what_the_old_session_holds_is_taken_and_it_ends(
    change: Callable[[Mosquitto, Mosquitto], tuple[Endpoint, str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    inbox, later = RecordingListener(), RecordingListener()
    with Mosquitto() as before, Mosquitto() as after:
        old = Endpoint(before.url, "gateway")
        await stopped(old, inbox, Endpoint(before.url, "veh1"))
        states = list(old.states)
        successor, url = change(before, after)
        async with successor.running(), Endpoint(url, "veh1").running() as car:
            await subscribed_to(successor, TOPIC, later)
            await car.up()
            await old.transport.end_session(successor.transport)
            assert inbox.payloads == texts(COUNT)
            assert not await is_kept(before, "gateway")
            car.submit(numbered(10))
            await until(lambda: later.payloads == texts(10), "what comes to the new session")
        assert successor.states == [LinkState.UP, LinkState.DOWN]
        assert old.states == states  # the state is that of the successor
    assert "session_ended endpoint=gateway" in caplog.text


async def test_a_broker_behind_another_port_goes_on_with_the_session_which_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """It may be another one that has had a session of this client for long: nobody can tell."""
    caplog.set_level("INFO")
    inbox, later = RecordingListener(), RecordingListener()
    with Mosquitto() as server:
        async with Proxy(server.port) as way:
            old = Endpoint(server.url, "gateway")
            await stopped(old, inbox, Endpoint(server.url, "veh1"), 5)
            async with Endpoint(f"mqtt://{HOST}:{way.port}", "gateway").running() as successor:
                await successor.transport.register_listener(TOPIC, None, later)
                await old.transport.end_session(successor.transport)
                await until(lambda: later.payloads == texts(5), "the session's messages")
            assert successor.states == [LinkState.UP, LinkState.DOWN]
    assert inbox.payloads == []
    assert caplog.text.count("session_taken_for_the_same endpoint=gateway") == 1
    assert f"earlier_broker={HOST}:{server.port}" in caplog.text


async def test_a_session_is_ended_although_the_broker_of_the_last_connection_gave_none(fake: FakeBroker) -> None:
    inbox = RecordingListener()
    with Mosquitto() as before, Mosquitto() as after:
        async with Proxy(before.port) as way:
            old = Endpoint([f"mqtt://{HOST}:{way.port}", fake.url], prefer="last-good")
            async with old.running(), Endpoint(before.url, "veh1").running() as sender:
                await subscribed_to(old, TOPIC, inbox)
                await way.sever()
                peer = await fake.peer()
                await peer.accept(session_expiry_interval=0)
                await peer.grant()
                await old.up()
                await old.transport.stop()
                await way.heal()
                await sender.up()
                sender.submit(numbered(5))
                await until(lambda: len(sender.confirmed) == 5, "what the broker has")
                async with Endpoint(after.url, "gateway").running() as successor:
                    await successor.up()
                    await old.transport.end_session(successor.transport)
        assert inbox.payloads == texts(5)
        assert not await is_kept(before, "gateway")


async def test_a_network_of_another_kind_goes_on_with_no_session() -> None:
    inbox = RecordingListener()
    with Mosquitto() as server:
        old = Endpoint(server.url, "gateway")
        await stopped(old, inbox, Endpoint(server.url, "veh1"))
        successor = MemoryTransport(old.transport.context, MemoryOptions())
        await successor.start()
        await old.transport.end_session(successor)
        await successor.stop()
        assert inbox.payloads == texts(COUNT)
        assert not await is_kept(server, "gateway")


async def test_another_address_of_the_same_broker_goes_on_with_the_session(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    inbox, later = RecordingListener(), RecordingListener()
    with Mosquitto() as server:
        old = Endpoint(server.url, "gateway")
        await stopped(old, inbox, Endpoint(server.url, "veh1"))
        successor = Endpoint(server.url.replace("127.0.0.1", "localhost"), "gateway")
        async with successor.running():
            await successor.transport.register_listener(TOPIC, None, later)
            await old.transport.end_session(successor.transport)
            await until(lambda: later.payloads == texts(COUNT), "the session's messages")
        assert successor.states == [LinkState.UP, LinkState.DOWN]
        assert await is_kept(server, "gateway")
    assert inbox.payloads == []
    assert "session_ended" not in caplog.text
    assert "session_left" not in caplog.text


async def test_a_broker_that_has_one_session_for_both_ends_neither(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It makes the client id of the user name, so that of the options changes nothing."""
    inbox, later = RecordingListener(), RecordingListener()
    with tied() as server:
        old = user(server, "gateway", tmp_path, client_id="one")
        await stopped(old, inbox, user(server, "veh1", tmp_path))
        successor = user(server, "gateway", tmp_path, client_id="two")
        async with user(server, "veh1", tmp_path).running() as car, successor.running():
            await subscribed_to(successor, TOPIC, later)  # before it connects: the session's messages come at once
            await old.transport.end_session(successor.transport)
            await successor.up()
            await car.up()
            car.submit(numbered(COUNT + 10)[COUNT:])
            await until(lambda: set(inbox.payloads + later.payloads) == set(texts(COUNT + 10)), "all messages")
            assert later.payloads[-10:] == texts(COUNT + 10)[-10:]
    assert "reason=the broker has ended a connection over it" in caplog.text


async def test_what_cannot_be_acknowledged_in_time_stays_in_the_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transport, "END_S", 1.0)
    inbox, again = RecordingListener(releases=False), RecordingListener()
    with Mosquitto() as server:
        old = Endpoint(server.url, "gateway")
        await stopped(old, inbox, Endpoint(server.url, "veh1"), 5)
        async with Endpoint(server.url, "gateway", client_id="new").running() as successor:
            await old.transport.end_session(successor.transport)
        assert inbox.payloads == texts(5)
        async with Endpoint(server.url, "gateway").running() as back:
            await back.transport.register_listener(TOPIC, None, again)
            await until(lambda: again.payloads == texts(5), "what was left")
    assert "session_left endpoint=gateway" in caplog.text
    assert "reason=not everything could be taken within 1 s" in caplog.text


async def test_while_the_new_connection_is_not_up_the_old_session_is_left_as_it_is(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transport, "END_S", 0.1)
    inbox = RecordingListener()
    with Mosquitto() as server:
        old = Endpoint(server.url, "gateway")
        await stopped(old, inbox, Endpoint(server.url, "veh1"), 5)
        async with Endpoint(fake.url, "gateway").running() as successor:
            await old.transport.end_session(successor.transport)
        assert await is_kept(server, "gateway")
    assert inbox.payloads == []
    assert "reason=the new connection is not up" in caplog.text


async def test_a_broker_that_is_gone_is_tried_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transport, "END_S", 0.2)
    with Mosquitto() as before, Mosquitto() as after:
        old = Endpoint(before.url, "gateway")
        await stopped(old, RecordingListener(), Endpoint(before.url, "veh1"), 5)
        before.stop()
        async with Endpoint(after.url, "gateway").running() as successor:
            await successor.up()
            await old.transport.end_session(successor.transport)
    assert "reason=no connection" in caplog.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"keep_alive_s": 9}),  # the same session
        ({"session_expiry_s": 0}, {"client_id": "new"}),  # it ended with the connection
        ({"clean_start": True}, {"client_id": "new"}),
    ],
)
async def test_where_nothing_is_left_to_end_the_broker_is_not_asked(
    fake: FakeBroker, before: dict[str, Any], after: dict[str, Any]
) -> None:
    old = Endpoint(fake.url, "gateway", **before)
    async with old.running():
        await (await fake.peer()).accept()
        await old.up()
    async with Endpoint(fake.url, "gateway", **after).running() as successor:
        await (await fake.peer()).accept()
        await successor.up()
        await old.transport.end_session(successor.transport)
    assert fake._peers.empty()


async def test_one_that_never_was_connected_has_no_session(fake: FakeBroker) -> None:
    old, successor = Endpoint(fake.url, "gateway"), Endpoint(fake.url, "gateway", client_id="new")
    await old.transport.end_session(successor.transport)
    assert fake._peers.empty()


async def test_a_stop_meanwhile_leaves_the_rest_in_the_session(fake: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    old, successor = Endpoint(fake.url, "gateway"), Endpoint(fake.url, "gateway", client_id="new")
    async with AsyncExitStack() as stack:
        async with old.running():
            await (await fake.peer()).accept()
            await old.up()
        await stack.enter_async_context(successor.running())
        await (await fake.peer()).accept()
        await successor.up()
        ending = asyncio.create_task(old.transport.end_session(successor.transport))
        peer = await fake.peer()
        await peer.accept(session_present=True)
        await peer.next(mqtt5.PingReqPacket)  # never answered
        ending.cancel()
        assert (await peer.next(mqtt5.DisconnectPacket)).session_expiry_interval is None
        await asyncio.gather(ending, return_exceptions=True)
        assert ending.cancelled()
    assert "session_left endpoint=gateway" in caplog.text
