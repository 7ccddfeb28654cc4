"""What tests of ``send``, ``listen`` and ``ping`` share: a network inside the process, and a uEntity on it. No tests."""

import argparse
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from streamer.main import _parser
from streamer.tools.network import Network, network_of
from streamer.transports.base import Received, TransportContext, UListener
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import everything_at

ANY = everything_at("*")


class Peer(UListener):
    """A uEntity on the bus of an endpoint. ``arrived`` is what came; ``on_message`` is called for each."""

    def __init__(self, bus: str) -> None:
        self.transport = MemoryTransport(TransportContext("peer", "peer"), MemoryOptions(bus=bus))
        self.arrived: list[UMessage] = []
        self.on_message: Callable[[UMessage], object] = lambda message: None

    def on_receive(self, received: Received) -> None:
        self.arrived.append(received.message)
        received.release()
        self.on_message(received.message)

    def send(self, *messages: UMessage) -> None:
        """Send, once the command has joined the network."""
        for message in messages:
            self.transport.send(message)


@asynccontextmanager
async def peer(bus: str) -> AsyncIterator[Peer]:
    """Yield a uEntity on a bus."""
    found = Peer(bus)
    await found.transport.authenticate(everything_at("peer"))
    for sink in (None, ANY):
        await found.transport.register_listener(ANY, sink, found)
    await found.transport.start()
    yield found
    await found.transport.stop()


def given(file: str | Path, *words: str) -> tuple[argparse.Namespace, Network]:
    """Return the arguments of a command line with --config, and its network."""
    arguments = _parser().parse_args([words[0], "--config", str(file), *words[1:]])
    return arguments, network_of(arguments)
