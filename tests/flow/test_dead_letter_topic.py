"""The dead letter topic is a topic like any other: a uEntity that listens to it gets every dead letter.

Dispatching 1: uEntities can subscribe to the dead letter topic.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streamer.transports.base import TransportContext
from streamer.transports.errors import PermanentError
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto
from streamer.uprotocol.status import UCode
from tests.flow.harness import DEAD_LETTERS, RouterHarness, configuration
from tests.listeners import RecordingListener


class DeadLetterReader(RecordingListener):
    """A uEntity of somebody else's that reads dead letters."""

    @property
    def told(self) -> list[tuple[UMessage, int]]:
        """The messages that failed, each with its code."""
        letters = [pb.DeadLetter.FromString(message.payload or b"") for message in self.messages]
        return [(message_from_proto(letter.message), letter.status.code) for letter in letters]


@asynccontextmanager
async def reading(harness: RouterHarness, network: str) -> AsyncIterator[tuple[MemoryTransport, DeadLetterReader]]:
    """Join a network of the router and listen to the dead letter topic there, and to nothing else."""
    options = MemoryOptions(bus=harness.transports[network].bus)
    transport, reader = MemoryTransport(TransportContext("reader", network), options), DeadLetterReader()
    await transport.authenticate(DEAD_LETTERS._replace(authority=network, resource=0))
    await transport.start()
    await transport.register_listener(DEAD_LETTERS, None, reader)
    yield transport, reader
    await transport.stop()


async def test_who_listens_to_the_dead_letter_topic_is_told_of_every_failure_and_of_nothing_else() -> None:
    async with RouterHarness() as harness, reading(harness, "vehicle") as (_, reader):
        harness.transports["cloud"].refuse = lambda message: (
            PermanentError(UCode.PERMISSION_DENIED, "no") if message.payload == b"bad" else None
        )
        fine, denied, late = harness.speed(b"fine"), harness.speed(b"bad"), harness.notify(b"late", ttl=1000)
        harness.arrive("vehicle", fine, denied)
        harness.clock.ms += 1001
        harness.arrive("vehicle", late)
        assert reader.told == [(denied, UCode.PERMISSION_DENIED), (late, UCode.DEADLINE_EXCEEDED)]
        assert {message.attributes.type for message in reader.messages} == {UMessageType.PUBLISH}


async def test_who_no_longer_listens_is_not_told() -> None:
    async with RouterHarness() as harness, reading(harness, "vehicle") as (transport, reader):
        harness.transports["cloud"].refuse = lambda message: PermanentError(UCode.INTERNAL, "no")
        harness.arrive("vehicle", harness.speed())
        assert len(reader.told) == 1
        await transport.unregister_listener(DEAD_LETTERS, None, reader)
        harness.arrive("vehicle", harness.speed())
        assert len(harness.dead_letters("vehicle")) == 2
        assert len(reader.told) == 1


async def test_several_networks_can_be_told() -> None:
    config = configuration(dead_letter={"endpoints": ["vehicle", "cloud"]})
    async with (
        RouterHarness(config) as harness,
        reading(harness, "vehicle") as (_, near),
        reading(harness, "cloud") as (_, far),
    ):
        harness.transports["vehicle"].refuse = lambda message: (
            PermanentError(UCode.INTERNAL, "no") if message.attributes.type is UMessageType.REQUEST else None
        )
        request = harness.ask()
        harness.arrive("cloud", request)
        assert near.told == far.told == [(request, UCode.INTERNAL)]
