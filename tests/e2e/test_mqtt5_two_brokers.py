"""An endpoint with a list of brokers, scripted and real ones: which one it is connected to, and what becomes of messages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import mqtt5
import pytest

from streamer.transports.errors import MayHaveArrivedError
from streamer.transports.link_error import LinkFailure
from streamer.transports.mqtt5 import connector, dialing
from streamer.transports.mqtt5.connection import Connection
from streamer.transports.mqtt5.dialing import Way
from tests.brokers import Mosquitto
from tests.e2e.mqtt_connection import connected
from tests.e2e.mqtt_messages import TOPIC, message, numbered, texts
from tests.e2e.mqtt_sessions import is_kept, subscribed_to
from tests.fault.proxy import Proxy
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint, FakeBroker, KeepAliveChecks
from tests.ports import HOST
from tests.waiting import until

QUICK: dict[str, Any] = {"return_after_s": 0.2, "connect_timeout_s": 2}
NEVER: dict[str, Any] = {"return_after_s": 1e6}


@pytest.fixture
async def other() -> AsyncIterator[FakeBroker]:
    async with FakeBroker().running() as broker:
        yield broker


def urls(*proxies: Proxy) -> list[str]:
    return [f"mqtt://{HOST}:{proxy.port}" for proxy in proxies]


def port_of(broker: FakeBroker) -> int:
    return int(broker.url.rpartition(":")[2])


async def connected_after_tests(fake: FakeBroker, endpoint: Endpoint) -> None:
    """Accept the connection that says CONNECT: those before have only tested whether the broker accepts them."""
    while True:
        peer = await fake.peer()
        try:
            await peer.accept()
        except AssertionError:
            continue
        return await endpoint.up()


async def test_a_broker_that_refuses_gives_way_to_the_next_in_the_same_attempt(
    fake: FakeBroker, other: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint([fake.url, other.url], **NEVER)
    async with endpoint.running():
        peer = await fake.peer()
        await peer.accept(reason_code=mqtt5.ConnAckReasonCode.SERVER_BUSY)
        await connected(other, endpoint)
        await peer.closed()
    assert "link_down" not in caplog.text
    line = f"broker_not_reached endpoint=gateway address=127.0.0.1:{port_of(fake)} reason=broker text=the broker refused: "
    assert line in caplog.text


async def test_the_first_attempt_names_every_broker_that_did_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpoint(["mqtt://127.0.0.1:9", "mqtt://127.0.0.1:7"])
    async with endpoint.running():
        await until(lambda: "link_down" in caplog.text, "the end of the attempt")
    line = next(record.message for record in caplog.records if "link_down" in record.message)
    assert line.index(" address=127.0.0.1:7 reason=refused text=127.0.0.1:9: ") < line.index("; 127.0.0.1:7: ")


async def test_the_broker_in_use_is_known(fake: FakeBroker, other: FakeBroker) -> None:
    endpoint = Endpoint([fake.url, other.url], **NEVER)
    transport = endpoint.transport
    async with endpoint.running():
        assert transport.link.connected_to == ()
        peer = await connected(fake, endpoint)
        assert transport.link.connected_to == (f"{HOST}:{port_of(fake)}",)
        peer.drop()
        await (await fake.peer()).accept(reason_code=mqtt5.ConnAckReasonCode.SERVER_BUSY)
        peer = await connected(other, endpoint)
        assert transport.link.connected_to == (f"{HOST}:{port_of(other)}",)
        assert transport.link.addresses == (f"{HOST}:{port_of(fake)}", f"{HOST}:{port_of(other)}")
    assert transport.link.connected_to == ()


@pytest.mark.parametrize("session_present", [False, True])
async def test_what_one_broker_has_not_confirmed_is_given_back_at_the_next(
    fake: FakeBroker, other: FakeBroker, session_present: bool
) -> None:
    """Also if that has a session of long ago: it is not the one in which the messages were sent."""
    async with Proxy(port_of(fake)) as way:
        endpoint = Endpoint([*urls(way), other.url], **NEVER)
        async with endpoint.running():
            peer = await connected(fake, endpoint)
            endpoint.submit(numbered(3))
            for _ in range(3):
                await peer.next(mqtt5.PublishPacket)
            await way.sever()
            later = await connected(other, endpoint, session_present=session_present)
            ((payloads, error),) = endpoint.told
            assert payloads == texts(3)
            assert isinstance(error, MayHaveArrivedError)
            endpoint.submit([message("next")])
            publish = await later.next(mqtt5.PublishPacket)
            assert (publish.payload, publish.duplicate) == (b"next", False)


async def test_the_last_good_broker_is_tried_first(fake: FakeBroker, other: FakeBroker) -> None:
    async with Proxy(port_of(fake)) as way:
        endpoint = Endpoint([*urls(way), other.url], **NEVER)
        async with endpoint.running():
            await connected(fake, endpoint)
            await way.sever()
            peer = await connected(other, endpoint)
            await way.heal()
            peer.drop()
            await connected(other, endpoint)
    assert way.links == 1


async def test_a_broker_that_ends_each_connection_soon_is_left(fake: FakeBroker, other: FakeBroker) -> None:
    endpoint = Endpoint([fake.url, other.url], reconnect={"initial_ms": 20, "max_ms": 3_000_000}, **NEVER)
    async with endpoint.running():
        for _ in range(2):
            (await connected(fake, endpoint)).drop()
            await until(lambda: not endpoint.is_up, "DOWN")
        await connected(other, endpoint)


async def test_the_first_broker_is_returned_to_when_the_link_is_idle(
    fake: FakeBroker, other: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = KeepAliveChecks(monkeypatch)
    async with Proxy(port_of(fake)) as way:
        endpoint = Endpoint([*urls(way), other.url], **QUICK)
        async with endpoint.running():
            await connected(fake, endpoint)
            await way.sever()
            peer = await connected(other, endpoint)
            endpoint.submit([message("not confirmed yet")])
            publish = await peer.next(mqtt5.PublishPacket)
            assert publish.packet_id is not None
            await way.heal()
            choice, loop = endpoint.transport._link.choice, asyncio.get_running_loop()
            await until(lambda: choice.may_return(loop.time()), "the proof")
            for _ in range(3):
                await checks.next()
            assert endpoint.is_up
            peer.write(mqtt5.PubAckPacket(publish.packet_id))
            farewell = await peer.next(mqtt5.DisconnectPacket)
            assert farewell.reason_code == mqtt5.DisconnectReasonCode.NORMAL_DISCONNECTION
            await peer.closed()
            errors = dict(endpoint.transport.errors)
            await connected_after_tests(fake, endpoint)
            assert endpoint.confirmed == [b"not confirmed yet"]
            assert endpoint.transport.errors == errors  # the return is none
            assert endpoint.transport.last_error is not None
            assert "returns" not in endpoint.transport.last_error.text


async def test_the_first_broker_is_tested_again_after_a_test_that_failed_for_a_reason_nobody_expected(
    fake: FakeBroker, other: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepts, errors = dialing.accepts, iter([RuntimeError("broken")])

    async def broken_at_first(way: Way, good_address: str | None) -> bool:
        for error in errors:
            raise error
        return await accepts(way, good_address)

    monkeypatch.setattr(connector, "accepts", broken_at_first)
    async with Proxy(port_of(fake)) as way:
        endpoint = Endpoint([*urls(way), other.url], **QUICK)
        async with endpoint.running():
            await connected(fake, endpoint)
            await way.sever()
            await connected(other, endpoint)
            await way.heal()
            await connected_after_tests(fake, endpoint)
    assert next(errors, None) is None


async def test_a_connection_that_is_lost_before_it_is_taken_over_is_reported(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    dial = dialing.dial

    async def dial_and_lose(
        way: Way, make: Callable[[], Connection], first: int, good: str | None
    ) -> tuple[Connection, str]:
        connection, address = await dial(way, make, first, good)
        monkeypatch.setattr(connector, "dial", dial)
        (await fake.peer()).drop()
        await connection.lost
        return connection, address

    monkeypatch.setattr(connector, "dial", dial_and_lose)
    endpoint = Endpoint(fake.url)
    async with endpoint.running():
        await until(lambda: endpoint.transport.last_error is not None, "the error")
        assert endpoint.transport.last_error is not None
        assert endpoint.transport.last_error.reason is LinkFailure.RESET
        await connected(fake, endpoint)


async def test_the_first_broker_is_not_returned_to_if_the_last_good_one_is_preferred(
    fake: FakeBroker, other: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = KeepAliveChecks(monkeypatch)
    async with Proxy(port_of(fake)) as way:
        endpoint = Endpoint([*urls(way), other.url], prefer="last-good", **QUICK)
        async with endpoint.running():
            await connected(fake, endpoint)
            await way.sever()
            await connected(other, endpoint)
            await way.heal()
            for _ in range(5):
                await checks.next()
            assert endpoint.is_up
    assert way.links == 1


@pytest.mark.mosquitto
async def test_a_reload_empties_the_session_at_each_broker_that_is_no_longer_named() -> None:
    inbox, later = RecordingListener(), RecordingListener()
    with Mosquitto() as first, Mosquitto() as second:
        async with Proxy(first.port) as way:
            old = Endpoint([*urls(way), second.url], prefer="last-good")
            here, there = Endpoint(first.url, "veh1"), Endpoint(second.url, "veh1")
            async with old.running(), here.running(), there.running():
                await subscribed_to(old, TOPIC, inbox)
                await way.sever()
                await until(lambda: not old.is_up, "DOWN")
                await subscribed_to(old, TOPIC, inbox)
                await old.transport.stop()
                await way.heal()
                await here.up()
                await there.up()
                here.submit(numbered(50))
                there.submit([message("at the second")])
                await until(lambda: len(here.confirmed) == 50 and there.confirmed, "what the brokers have")
                successor = Endpoint([second.url])
                async with successor.running():
                    await subscribed_to(successor, TOPIC, later)
                    await until(lambda: later.received, "what the second broker has kept")
                    await old.transport.end_session(successor.transport)
        assert inbox.payloads == texts(50)
        assert later.payloads == [b"at the second"]
        assert not await is_kept(first, "gateway")
        assert await is_kept(second, "gateway")
