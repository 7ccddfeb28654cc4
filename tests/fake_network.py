"""A shared network without a network: what was said and who listens can be read."""

from collections.abc import Callable, Collection

from streamer.transports.shared_network import SharedNetwork


class FakeNetwork(SharedNetwork):
    def __init__(self, nodes: Collection[str] = ()) -> None:
        self.own = "own"
        self.nodes = nodes
        self.takes: list[Callable[[bytes], None]] = []
        self.said: list[bytes] = []

    def others(self) -> Collection[str]:
        return self.nodes

    def listen(self, take: Callable[[bytes], None]) -> None:
        self.takes.append(take)

    def say(self, payload: bytes) -> None:
        self.said.append(payload)
