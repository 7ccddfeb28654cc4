"""What the MQTT 5 transport's tests send: Publishes on one topic, told apart by their payloads."""

from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.uri import UUri

NOW_MS = 1_790_000_000_000
TOPIC = UUri.parse("//veh1/A8000/2/8A50")


def message(text: str = "x") -> UMessage:
    return publish(NOW_MS, TOPIC, text.encode())


def numbered(count: int) -> list[UMessage]:
    return [message(str(number)) for number in range(count)]


def texts(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]
