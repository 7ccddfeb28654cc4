"""A hostile broker does what it says, to a client of its own kind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import mqtt5
import pytest

from tests.brokers import Mosquitto
from tests.fault.hostile_broker import brief_sessions, refusing, taken_over, thief
from tests.fault.proxy import Proxy
from tests.mqtt_peer import BrokerConnection
from tests.ports import HOST

pytestmark = pytest.mark.mosquitto
CLIENT_ID = "honest"
TAKEN_OVER = 0x8E


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[BrokerConnection, int]]:
    """The client's side of a new session, and the reason code with which the broker answers."""
    reader, writer = await asyncio.open_connection(HOST, port)
    client = BrokerConnection(reader, writer)
    try:
        client.write(mqtt5.ConnectPacket(CLIENT_ID, session_expiry_interval=3600))
        yield client, (await client.next(mqtt5.ConnAckPacket)).reason_code
    finally:
        client.drop()


async def until_closed(client: BrokerConnection) -> None:
    """Read on until that raises."""
    while True:
        await client.next_packet()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[Mosquitto, Proxy]]:
    with Mosquitto() as broker:
        async with Proxy(broker.port) as proxy:
            yield broker, proxy


async def test_refusal_has_its_reason_and_ends_with_the_fault() -> None:
    async with proxied() as (_, proxy):
        async with refusing([proxy], 0x87), connected(proxy.port) as (_, reason):
            assert reason == 0x87
        async with connected(proxy.port) as (_, reason):
            assert reason == 0


async def test_thief_takes_the_session() -> None:
    """Some brokers say so; all of them end it."""
    async with proxied() as (broker, proxy), connected(proxy.port) as (client, _), thief(broker.port, CLIENT_ID):
        with pytest.raises((AssertionError, ConnectionError)):
            await until_closed(client)


async def test_broker_says_that_another_has_the_session() -> None:
    async with proxied() as (_, proxy), connected(proxy.port) as (client, _), taken_over([proxy]):
        assert (await client.next(mqtt5.DisconnectPacket)).reason_code == TAKEN_OVER


async def test_brief_session_ends_without_a_word() -> None:
    async with proxied() as (_, proxy), brief_sessions([proxy]), connected(proxy.port) as (client, _):
        with pytest.raises((AssertionError, ConnectionError)):
            await until_closed(client)
