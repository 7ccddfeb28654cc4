"""Dead letters reach who listens; what was not allowed is reported to where it came from only, and not without end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from streamer.config.models import ReportRateConfig
from streamer.transports.base import TransportContext
from streamer.transports.errors import PermanentError
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.uprotocol.message import UMessage, UMessageType, UPriority
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.constants import with_constants
from tests.flow.harness import (
    CLIMATE,
    CLOUD_APP,
    DEAD_LETTERS,
    SPEED,
    VEHICLE_APP,
    RouterHarness,
    bad_request,
    configuration,
    three_networks,
)
from tests.listeners import RecordingListener

VICTIM = UUri("phone1", 0xEE, 1, 0)
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"
SECRET = b"the payload of the stranger" * 40


def spoofed(harness: RouterHarness, token: str | None = None) -> None:
    """A Request that arrives from the cloud and claims to be from the phone."""
    harness.arrive("cloud", harness.ask(source=VICTIM, payload=SECRET, token=token))
    harness.pass_time(2000)


# the confused deputy


@pytest.mark.parametrize("endpoints", [["origin"], ["phone"], ["origin", "phone", "vehicle"]])
async def test_whoever_a_stranger_claims_to_be_hears_nothing_of_it(endpoints: list[str]) -> None:
    config = three_networks(dead_letter={"endpoints": endpoints})
    async with RouterHarness(config, addressed=("cloud", "phone")) as harness:
        spoofed(harness)
        harness.arrive("cloud", bad_request(harness.ask(source=VICTIM, payload=SECRET)))
        assert harness.transports["phone"].sent == []


async def test_a_report_about_a_spoofed_source_is_addressed_to_nobody_in_particular() -> None:
    async with RouterHarness(three_networks(), addressed=("cloud", "phone")) as harness:
        spoofed(harness)
        harness.arrive("cloud", bad_request(harness.ask(source=VICTIM, payload=SECRET)))
        letters = [m for m in harness.transports["cloud"].sent if m.attributes.source == DEAD_LETTERS]
        assert [letter.attributes.sink for letter in letters] == [everything_at("*")] * 2


async def test_a_stranger_is_told_neither_payload_nor_who_lives_where() -> None:
    async with RouterHarness(three_networks()) as harness:
        spoofed(harness, token="hunter2")
        (letter,) = harness.dead_letters("cloud")
        assert letter.status.code == UCode.UNAUTHENTICATED
        assert not letter.message.HasField("payload")
        (answer,) = harness.sent("cloud")
        assert (answer.attributes.type, answer.attributes.commstatus) == (UMessageType.RESPONSE, UCode.UNAUTHENTICATED)
        for told in (letter.status.message.encode(), answer.payload or b""):
            assert b"vehicle" not in told
            assert b"phone" not in told


async def test_what_no_route_allows_is_reported_without_its_payload() -> None:
    config = configuration(routes=[{"from": "vehicle", "to": "cloud"}])
    async with RouterHarness(config) as harness:
        harness.arrive("cloud", harness.ask(payload=SECRET))
        (letter,) = harness.dead_letters("cloud")
        assert letter.status.code == UCode.PERMISSION_DENIED
        assert not letter.message.HasField("payload")


async def test_whoever_lives_there_is_told_what_was_wrong_with_what_they_sent() -> None:
    async with RouterHarness() as harness:
        harness.arrive("cloud", bad_request(harness.ask(payload=SECRET)))
        (letter,) = harness.dead_letters("cloud")
        assert "priority" in letter.status.message


# amplification


async def test_what_a_stranger_causes_is_not_much_larger_than_what_it_sent() -> None:
    async with RouterHarness(three_networks()) as harness:
        message = harness.ask(source=VICTIM, payload=SECRET, traceparent=TRACE, token="y" * 1000)
        harness.arrive("cloud", message)
        harness.pass_time(2000)
        assert sum(len(m.payload or b"") for m in harness.transports["cloud"].sent) < 512


async def test_reports_have_a_rate_for_each_source_authority() -> None:
    config = configuration(dead_letter={"report_rate": with_constants(ReportRateConfig, messages=5, burst_s=4)})
    async with RouterHarness(config) as harness:
        strange = UUri("veh1", 0xEE, 1, 0)
        asked = [harness.ask(source=strange, method=CLIMATE._replace(resource=number)) for number in range(1, 1001)]
        harness.arrive("cloud", *asked)
        harness.pass_time(2000)  # those that may be copies are waited for
        assert len(harness.dead_letters("cloud")) == 20
        assert len(harness.sent("cloud")) == 20
        harness.arrive("cloud", bad_request(harness.ask()))
        assert len(harness.sent("cloud")) == 21  # somebody else's
        assert harness.outcomes("none") == {"rejected": 1001}
        assert harness.router.account().reports_suppressed == {"vehicle": 0, "cloud": 980}


async def test_invented_authorities_have_no_more_than_their_share_of_reports() -> None:
    config = configuration(dead_letter={"report_rate": with_constants(ReportRateConfig, messages=1, burst_s=2)})
    async with RouterHarness(config) as harness:
        invented = [CLOUD_APP._replace(authority=f"invented-{number}") for number in range(2000)]
        harness.arrive("cloud", *(bad_request(harness.ask(source=source)) for source in invented))
        assert len(harness.dead_letters("cloud")) == 256 + 2


async def test_reports_about_accepted_messages_have_no_rate() -> None:
    config = configuration(dead_letter={"report_rate": with_constants(ReportRateConfig, messages=1, burst_s=1)})
    async with RouterHarness(config) as harness:
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", *(harness.ask(ttl=100) for _ in range(50)))
        harness.pass_time(200)
        assert len(harness.dead_letters("cloud")) == 50
        assert len(harness.sent("cloud")) == 50


# in the queues


async def test_what_was_never_accepted_pushes_no_report_about_accepted_messages_out() -> None:
    config = configuration(dead_letter={"queue": {"messages": 20}, "report_rate": None})
    async with RouterHarness(config) as harness:
        harness.transports["cloud"].is_withholding = True
        harness.transports["vehicle"].lose_link()
        accepted = [harness.ask(ttl=100, priority=UPriority.CS4) for _ in range(10)]
        harness.arrive("cloud", *accepted)
        harness.pass_time(200)
        harness.transports["cloud"].lose_link()
        harness.arrive("cloud", *(bad_request(harness.ask(priority=UPriority.CS6)) for _ in range(1000)))
        harness.transports["cloud"].is_withholding = False
        harness.transports["cloud"].restore_link()
        told = {letter.message.attributes.id.lsb for letter in harness.dead_letters("cloud")}
        assert {int.from_bytes(message.id[8:], "big") for message in accepted} <= told
        assert {message.id for message in accepted} <= {m.attributes.reqid for m in harness.sent("cloud")}


# tokens


@pytest.mark.parametrize("endpoints", [["origin"], ["vehicle"], ["origin", "vehicle", "cloud"]])
async def test_no_dead_letter_on_the_wire_has_a_token(endpoints: list[str]) -> None:
    async with RouterHarness(configuration(dead_letter={"endpoints": endpoints})) as harness:
        harness.transports["cloud"].refuse = lambda message: None
        late = harness.ask(token="hunter2")
        harness.clock.ms += 5000
        harness.arrive("cloud", late)
        harness.arrive("cloud", bad_request(harness.ask(token="hunter2")), harness.ask(source=VEHICLE_APP, token="hunter2"))
        harness.arrive("vehicle", harness.notify(source=SPEED._replace(authority="x"), token="hunter2"))
        harness.pass_time(2000)
        everything = [m for name in ("vehicle", "cloud") for m in harness.transports[name].sent]
        assert len(everything) >= 3
        assert not any(b"hunter2" in (m.payload or b"") for m in everything)


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
