"""Packets and samples that are no messages."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.independent.message import Plain
from tests.independent.mqtt import mqtt_properties
from tests.independent.zenoh import ZenohSide, attachment_of, to_attributes


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
    "code": [with_property("2", "up-xyz.v1"), with_property("5", "CS9"), with_property("8", "99"), with_content_type],
    "number": [with_property("6", "soon"), with_property("7", "-1")],
}


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
