"""What tests of transports listen with, and filters that count."""

from streamer.transports.base import Received, UListener
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import UUri


class Ear(UListener):
    """Takes messages singly."""

    def __init__(self) -> None:
        self.heard: list[UMessage] = []

    def on_receive(self, received: Received) -> None:
        self.heard.append(received.message)
        received.release()


class CountingUri(UUri):
    """Counts how often it was compared, of all of its kind."""

    compared = 0

    def matches(self, other: UUri) -> bool:
        CountingUri.compared += 1
        return super().matches(other)


def counting(uri: UUri) -> UUri:
    return CountingUri(*uri)
