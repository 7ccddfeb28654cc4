"""The sessions that a real broker keeps: whether there is one, and brokers that make the client id of the user name."""

import asyncio
from pathlib import Path
from typing import Any

import mqtt5

from streamer.uprotocol.uri import UUri
from tests.brokers import Mosquitto
from tests.listeners import RecordingListener
from tests.mqtt_peer import BrokerConnection, Endpoint
from tests.ports import HOST
from tests.waiting import until


async def is_kept(server: Mosquitto, client_id: str, user: str | None = None) -> bool:
    """Whether the broker has a session for this client. It has one afterwards."""
    reader, writer = await asyncio.open_connection(HOST, server.port)
    word = None if user is None else user.encode()
    writer.write(mqtt5.ConnectPacket(client_id, username=user, password=word, session_expiry_interval=3600).write())
    peer = BrokerConnection(reader, writer)
    connack = await peer.next(mqtt5.ConnAckPacket)
    peer.drop()
    return connack.session_present


def tied(**more: Any) -> Mosquitto:
    """A broker that makes the client id of the user name. The password of a user is its name."""
    users = {name: name for name in ("gateway", "veh1")}
    return Mosquitto(users=users, extra=("use_username_as_clientid true",), **more)


def user(server: Mosquitto, name: str, folder: Path, **options: Any) -> Endpoint:
    """A client of a `tied` broker."""
    word_file = folder / name
    word_file.write_text(name)
    return Endpoint(server.url, name, username=name, password_file=word_file, **options)


async def subscribed_to(endpoint: Endpoint, topic: UUri, inbox: RecordingListener) -> None:
    """Register a listener, and wait until the broker has subscribed us."""
    await endpoint.transport.register_listener(topic, None, inbox)
    await endpoint.up()
    await until(lambda: not endpoint.transport._link.session.has_requests, "the subscription")
