"""Messages with addresses of the device itself."""

from typing import Any

from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide, mqtt_properties, mqtt_topic
from tests.independent.zenoh import ZenohSide, attachment_of, zenoh_key


def local(uri: Uri) -> Uri:
    return "", *uri[1:]


def as_local(text: str) -> str:
    """As an address without authority is written: independent code writes ``///`` for it."""
    return text.replace("///", "/")


async def send_as(side: MqttSide | ZenohSide, message: Plain, written: Plain) -> None:
    """Send on the topic or key of ``message`` what says of itself what ``written`` does."""
    if isinstance(side, ZenohSide):
        side.put_raw(zenoh_key(message), written.payload, attachment_of(written))
        return
    properties: Any = mqtt_properties(written)  # it has no types
    pairs = [(key, as_local(value)) for key, value in properties.UserProperty]
    del properties.UserProperty
    properties.UserProperty = pairs
    await side.send_raw(mqtt_topic(message, side.structure), written.payload, properties)
