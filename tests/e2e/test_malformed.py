"""Malformed packets, at length a thousand of each kind, among good traffic: all counted by reason, the good arrive."""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.e2e.topology import Topology
from tests.independent.message import Plain, inversions
from tests.independent.mqtt import MqttSide, mqtt_properties
from tests.independent.zenoh import ZenohSide, attachment_of, to_attributes
from tests.lengths import at_length
from tests.waiting import until

EACH = at_length(1000, 250)
GOOD = 5 * EACH


def good(here: str, count: int) -> list[Plain]:
    return [Plain(1, (here, 0x100 + n % 10, 1, 0x8001), payload=n.to_bytes(4, "big"), priority=2) for n in range(count)]


def put_all(side: ZenohSide, key: str, attachments: Iterable[bytes | None]) -> None:
    """Put one message for each attachment."""
    for attachment in attachments:
        side.put_raw(key, b"x", attachment)


def with_property(key: str, value: str | None) -> Callable[[Plain], Properties]:
    """The properties of a message with one user property changed, or left out."""

    def change(message: Plain) -> Properties:
        properties: Any = mqtt_properties(message)  # it has no types
        pairs = [(k, v) for k, v in properties.UserProperty if k != key]
        changed = Properties(PacketTypes.PUBLISH)
        changed.UserProperty = pairs if value is None else [*pairs, (key, value)]
        return changed

    return change


def with_content_type(message: Plain) -> Properties:
    properties = mqtt_properties(message)
    properties.ContentType = "99"
    return properties


def with_correlation(message: Plain) -> Properties:
    properties = mqtt_properties(message)
    properties.CorrelationData = b"short"
    return properties


def random_properties(message: Plain) -> Properties:
    chance = random.Random(message.id)
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [(str(chance.randrange(20)), chance.randbytes(5).hex()) for _ in range(5)]
    return properties


MQTT_KINDS = {
    "marker": [with_property("uP", None), random_properties],
    "version": [with_property("uP", "2"), with_property("uP", "one")],
    "id": [with_property("1", "no-uuid"), with_property("1", "4f2c1b6a-2d9e-4c1b-8f00-0123456789ab"), with_correlation],
    "uri": [with_property("3", "//alpha/XYZ"), with_property("3", None), with_property("4", "up://UPPER/1/1/1?x=1")],
    "code": [
        with_property("2", "up-xyz.v1"),
        with_property("5", "CS9"),
        with_property("8", "99"),
        with_content_type,
    ],
    "number": [with_property("6", "soon"), with_property("7", "-1")],
}


async def test_malformed_mqtt_packets_among_good_traffic() -> None:
    async with Topology("mqtt/off-vehicle", "zenoh") as topology:
        near, far = topology.networks
        assert isinstance(near.side, MqttSide)
        messages = [near.as_sent(m) for m in good("alpha", GOOD)]
        bad = [change(message) for changes in MQTT_KINDS.values() for change in changes for message in messages[:EACH]]
        random.Random(1).shuffle(bad)
        step = len(bad) // 10
        for part in range(10):
            await asyncio.gather(
                near.side.send(messages[part * GOOD // 10 : (part + 1) * GOOD // 10]),
                *(near.side.send_raw("alpha/beta", b"x", properties) for properties in bad[part * step : (part + 1) * step]),
            )
        await until(lambda: len(far.side.arrived) >= GOOD, what="arrival of every good message")
        await topology.daemon.until_total(GOOD, "ustreamer_outcomes_total", outcome="delivered")
        assert sorted(m.id for m in far.side.arrived) == sorted(m.id for m in messages)
        assert inversions(far.side.arrived, messages) == 0
        for reason, changes in MQTT_KINDS.items():
            await topology.daemon.until_total(EACH * len(changes), "ustreamer_malformed_packets_total", reason=reason)
        topology.daemon.check_books()


def changed(**fields: Any) -> Callable[[Plain], bytes]:
    """The attachment of a message with fields of its attributes replaced."""

    def change(message: Plain) -> bytes:
        attributes = to_attributes(message)
        for name, value in fields.items():
            if value is None:
                attributes.ClearField(name)
            elif isinstance(value, int):
                setattr(attributes, name, value)
            else:
                getattr(attributes, name).CopyFrom(value)
        return b"\x01" + attributes.SerializeToString()

    return change


def random_bytes(message: Plain) -> bytes:
    return b"\x01" + b"\xff" + random.Random(message.id).randbytes(40)


ZENOH_KINDS: dict[str, list[Callable[[Plain], bytes | None]]] = {
    "marker": [lambda message: None],
    "version": [lambda message: b"\x02" + attachment_of(message)[1:]],
    "attachment": [lambda message: attachment_of(message)[:-1], lambda message: b"\x01", random_bytes],
    "id": [changed(id=pb.UUID(msb=1, lsb=2)), changed(id=None)],
    "uri": [changed(source=pb.UUri(authority_name="UPPER CASE", ue_id=1)), changed(source=None)],
    "code": [changed(type=77), changed(priority=99), changed(commstatus=55), changed(payload_format=1000)],
}


async def test_malformed_zenoh_samples_among_good_traffic() -> None:
    async with Topology("mqtt/off-vehicle", "zenoh") as topology:
        far, near = topology.networks
        side = near.side
        assert isinstance(side, ZenohSide)
        messages = good("beta", GOOD)
        bad = [change(message) for changes in ZENOH_KINDS.values() for change in changes for message in messages[:EACH]]
        random.Random(1).shuffle(bad)
        step = len(bad) // 10
        key = "up/beta/100/0/1/8001/{}/{}/{}/{}/{}"
        for part in range(10):
            await side.send(messages[part * GOOD // 10 : (part + 1) * GOOD // 10])
            await asyncio.to_thread(put_all, side, key, bad[part * step : (part + 1) * step])
        await until(lambda: len(far.side.arrived) >= GOOD, what="arrival of every good message")
        await topology.daemon.until_total(GOOD, "ustreamer_outcomes_total", outcome="delivered")
        assert sorted(m.id for m in far.side.arrived) == sorted(m.id for m in messages)
        assert inversions(far.side.arrived, [far.as_arriving(m) for m in messages]) == 0
        for reason, changes in ZENOH_KINDS.items():
            await topology.daemon.until_total(EACH * len(changes), "ustreamer_malformed_packets_total", reason=reason)
        topology.daemon.check_books()
