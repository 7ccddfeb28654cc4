"""A broker and a Zenoh router hold a client to its own topics: what it says of itself inside a message is not believed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from streamer.transports.errors import Malformed
from streamer.uprotocol.uri import everything_at
from tests.brokers import Mosquitto
from tests.independent.message import Plain
from tests.independent.mqtt import mqtt_properties
from tests.independent.zenoh import attachment_of, zenoh_key
from tests.listeners import RecordingListener
from tests.mqtt_peer import Endpoint
from tests.ports import HOST
from tests.transport_events import EventLog
from tests.waiting import until
from tests.zenoh_peers import free_endpoint, raw_peer, running, until_matched, until_up

WORDS = {"evil": "e", "gateway": "g"}
ACL = """
user evil
topic write evil/#
user gateway
topic readwrite #
"""
ANYTHING = everything_at("*")
EVERYTHING_AT_VEH1 = ("veh1", 0xFFFFFFFF, 0xFF, 0xFFFF)
BACKEND, EVIL = ("backend", 1, 1, 0), ("evil", 1, 1, 0)
METHOD, OTHER_METHOD = ("veh1", 0xB, 1, 7), ("veh2", 0xB, 1, 7)


def request(source: tuple[str, int, int, int], sink: tuple[str, int, int, int] = METHOD, **changes: Any) -> Plain:
    return Plain(2, source, sink, b"x", priority=5, ttl=60_000, **changes)


class Evil:
    """A client that may publish below ``evil/`` only."""

    def __init__(self, client: aiomqtt.Client) -> None:
        self._client = client

    async def publish(self, topic: str, message: Plain) -> None:
        await self._client.publish(topic, message.payload, qos=1, properties=mqtt_properties(message))


@asynccontextmanager
async def held_to_its_topics(
    structure: str, directory: Path, inbox: RecordingListener
) -> AsyncIterator[tuple[Evil, Endpoint]]:
    acl, password = directory / "acl", directory / "password"
    acl.write_text(ACL)
    password.write_text(WORDS["gateway"])
    with Mosquitto(users=WORDS, extra=(f"acl_file {acl}",)) as broker:
        endpoint = Endpoint(broker.url, topics=structure, username="gateway", password_file=password)
        async with (
            endpoint.running(),
            aiomqtt.Client(
                HOST, broker.port, username="evil", password=WORDS["evil"], protocol=aiomqtt.ProtocolVersion.V5
            ) as client,
        ):
            await endpoint.transport.register_listener(ANYTHING, ANYTHING, inbox)
            await endpoint.transport.register_listener(ANYTHING, None, inbox)
            await endpoint.up()
            await until(lambda: not endpoint.transport._link.session.has_requests, "the subscriptions")
            yield Evil(client), endpoint


OFF_VEHICLE = {
    "Request in another's name": ("evil/veh1", request(BACKEND)),
    "Request to another device": ("evil/veh1", request(EVIL, OTHER_METHOD)),
    "Response in another's name": (
        "evil/veh1",
        Plain(3, ("backend", 1, 1, 7), ("veh1", 0xA, 1, 0), priority=5, ttl=1000, reqid=request(BACKEND).id),
    ),
    "Notification in another's name": ("evil/veh1", Plain(4, ("backend", 1, 1, 0x8000), ("veh1", 0xA, 1, 0))),
    "Publish in another's name": ("evil/veh1", Plain(1, ("backend", 1, 1, 0x8000), EVERYTHING_AT_VEH1)),
    "Publish for everybody": ("evil/veh1", Plain(1, ("evil", 1, 1, 0x8000), ("*", 0xFFFFFFFF, 0xFF, 0xFFFF))),
    "Publish without a sink": ("evil/veh1", Plain(1, ("evil", 1, 1, 0x8000))),
}
IN_VEHICLE = {
    "Request in another's name": ("evil/1/0/1/0/veh1/B/0/1/7", request(BACKEND)),
    "Request to another device": ("evil/1/0/1/0/veh1/B/0/1/7", request(EVIL, OTHER_METHOD)),
    "Request of another uEntity": ("evil/1/0/1/0/veh1/B/0/1/7", request(("evil", 2, 1, 0))),
    "Publish in another's name": ("evil/1/0/1/8000", Plain(1, ("backend", 1, 1, 0x8000))),
    "Publish on another topic": ("evil/1/0/1/8000", Plain(1, ("evil", 1, 1, 0x8001))),
}
ON_MQTT = [
    pytest.param(structure, *attack, id=f"{structure}, {name}")
    for structure, attacks in (("off-vehicle", OFF_VEHICLE), ("in-vehicle", IN_VEHICLE))
    for name, attack in attacks.items()
]
HONEST = {"off-vehicle": ("evil/veh1", request(EVIL)), "in-vehicle": ("evil/1/0/1/0/veh1/B/0/1/7", request(EVIL))}


@pytest.mark.mosquitto
@pytest.mark.parametrize(("structure", "topic", "attack"), ON_MQTT)
async def test_message_on_a_topic_that_is_not_its_own_is_malformed(
    structure: str, topic: str, attack: Plain, tmp_path: Path
) -> None:
    inbox = RecordingListener()
    async with held_to_its_topics(structure, tmp_path, inbox) as (evil, endpoint):
        await evil.publish(topic, attack)
        await evil.publish(*HONEST[structure])
        await until(lambda: inbox.messages, "the honest message")
        assert [message.id for message in inbox.messages] == [HONEST[structure][1].id]
        assert [error.reason for error in endpoint.malformed] == [Malformed.ADDRESS]


ACCESS_CONTROL = {
    "enabled": True,
    "default_permission": "deny",
    "rules": [
        {
            "id": "own",
            "permission": "allow",
            "messages": ["put"],
            "flows": ["ingress", "egress"],
            "key_exprs": ["up/evil/**"],
        },
        {
            "id": "listen",
            "permission": "allow",
            "messages": ["declare_subscriber"],
            "flows": ["ingress", "egress"],
            "key_exprs": ["up/**"],
        },
    ],
    "subjects": [{"id": "all"}],
    "policies": [{"rules": ["own", "listen"], "subjects": ["all"]}],
}
ON_ZENOH = {
    "Request in another's name": ("up/evil/1/0/1/0/veh1/B/0/1/7", request(BACKEND)),
    "Request to another device": ("up/evil/1/0/1/0/veh1/B/0/1/7", request(EVIL, OTHER_METHOD)),
    "Publish in another's name": ("up/evil/1/0/1/8000/{}/{}/{}/{}/{}", Plain(1, ("backend", 1, 1, 0x8000))),
    "Publish on any topic": ("up/evil/*/0/1/8000/{}/{}/{}/{}/{}", Plain(1, ("evil", 1, 1, 0x8000))),
    "Publish as a Notification": ("up/evil/1/0/1/8000/veh1/A/0/1/0", Plain(1, ("evil", 1, 1, 0x8000))),
}


@pytest.mark.parametrize(("key", "attack"), ON_ZENOH.values(), ids=ON_ZENOH)
async def test_message_on_a_key_that_is_not_its_own_is_malformed(key: str, attack: Plain) -> None:
    events, inbox, endpoint = EventLog(), RecordingListener(), free_endpoint()
    honest = request(EVIL)
    with raw_peer(mode="router", listen=[endpoint], access_control=ACCESS_CONTROL):
        async with running(events, mode="client", connect=[endpoint]) as transport:
            await until_up(transport)
            await transport.register_listener(ANYTHING, ANYTHING, inbox)
            await transport.register_listener(ANYTHING, None, inbox)
            with raw_peer(mode="client", connect=[endpoint]) as evil:
                for each in (zenoh_key(honest), zenoh_key(Plain(1, ("evil", 1, 1, 0x8000)))):
                    await until_matched(evil, each)
                evil.put(zenoh_key(request(BACKEND)), b"refused by the router", attachment=attachment_of(request(BACKEND)))
                evil.put(key, attack.payload, attachment=attachment_of(attack))
                evil.put(zenoh_key(honest), honest.payload, attachment=attachment_of(honest))
                await until(lambda: inbox.messages and events.malformed, "the honest message, and the other")
                assert [message.id for message in inbox.messages] == [honest.id]
                assert {error.reason for error in events.malformed} == {Malformed.ADDRESS}


async def test_message_is_treated_in_no_higher_class_than_its_sample() -> None:
    inbox, endpoint = RecordingListener(), free_endpoint()
    async with running(listen=[endpoint]) as transport:
        await transport.register_listener(ANYTHING, ANYTHING, inbox)
        with raw_peer(connect=[endpoint]) as peer:
            urgent = replace(request(EVIL), priority=7)
            await until_matched(peer, zenoh_key(urgent))
            peer.put(zenoh_key(urgent), b"x", attachment=attachment_of(urgent))  # with Zenoh's default priority
            await until(lambda: inbox.messages, "the message")
    attributes = inbox.messages[0].attributes
    assert attributes.priority_class == 2
    assert int(attributes.priority) == 7
