"""Bytes are counted per endpoint and per route: what messages took on the wire, and their payload."""

from streamer.delivery.lifecycle.reload import Reload
from streamer.transports.base import ByteCounts, Report
from streamer.transports.errors import MayHaveArrivedError, PermanentError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.status import UCode
from tests.flow.harness import SPEED, RouterHarness


def of_route(harness: RouterHarness, name: str) -> tuple[ByteCounts, ByteCounts]:
    """What a route has carried: on the wire, and of payload."""
    account = next(account for account in harness.router.accounts() if account.name == name)
    return account.stats.wire_bytes, account.stats.payload_bytes


def of_endpoint(harness: RouterHarness, name: str) -> tuple[ByteCounts | None, ByteCounts]:
    account = next(account for account in harness.router.endpoint_accounts() if account.name == name)
    return account.wire_bytes, account.payload_bytes


async def test_payload_is_counted_where_it_comes_in_and_where_it_leaves() -> None:
    async with RouterHarness() as harness:
        harness.arrive("vehicle", harness.speed(b"12345"), harness.speed(b""), harness.speed(b"678"))
        assert of_route(harness, "vehicle-cloud")[1] == ByteCounts(sent=8, received=8)
        assert of_endpoint(harness, "vehicle")[1] == ByteCounts(received=8)
        assert of_endpoint(harness, "cloud")[1] == ByteCounts(sent=8)
        assert of_endpoint(harness, "cloud")[0] is None  # its transport does not know


async def test_what_no_route_takes_counts_at_its_endpoint_and_as_without_a_route() -> None:
    async with RouterHarness() as harness:
        harness.arrive("vehicle", harness.notify(b"lost", source=SPEED._replace(authority="nobody")))
        assert of_route(harness, "none")[1].received == 4
        assert of_endpoint(harness, "vehicle")[1].received == 4


async def test_a_packet_counts_whatever_became_of_the_message_and_its_payload_with_it() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding, cloud.loss = True, MayHaveArrivedError()
        harness.arrive("vehicle", harness.speed(b"12345"))
        cloud.lose_link()  # before it was written
        assert of_route(harness, "vehicle-cloud") == (ByteCounts(), ByteCounts(received=5))
        cloud.restore_link()
        harness.pass_time(100)
        ((parcel, _),) = cloud._unconfirmed
        parcel.wire_bytes = 150
        cloud.lose_link()
        assert parcel.wire_bytes == 0
        assert of_route(harness, "vehicle-cloud") == (ByteCounts(sent=150), ByteCounts(sent=5, received=5))
        cloud.is_withholding = False
        cloud.restore_link()
        harness.pass_time(100)
        assert of_route(harness, "vehicle-cloud") == (ByteCounts(sent=150), ByteCounts(sent=10, received=5))
        assert of_endpoint(harness, "cloud")[1] == ByteCounts(sent=10)


async def test_a_message_that_is_refused_before_it_is_sent_counts_nothing() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].refuse = lambda message: PermanentError(UCode.INVALID_ARGUMENT, "too long a topic")
        harness.arrive("vehicle", harness.speed(b"12345"))
        assert of_route(harness, "vehicle-cloud")[1] == ByteCounts(received=5)


async def test_the_size_of_a_received_packet_counts_on_each_route_that_takes_the_message() -> None:
    async with RouterHarness() as harness:
        for _ in range(2):
            received = MemoryReceived(harness.speed(b"123"))
            received.wire_bytes = 90
            harness.transports["vehicle"].inject(received)
        assert of_route(harness, "vehicle-cloud")[0] == ByteCounts(received=180)
        copy = MemoryReceived(received.message)
        copy.wire_bytes = 90
        harness.transports["vehicle"].inject(copy)  # a duplicate is on the account of its endpoint
        assert of_route(harness, "none") == (ByteCounts(received=90), ByteCounts(received=3))


async def test_what_an_endpoint_has_carried_survives_that_a_reload_replaces_its_transport() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].report = lambda: Report(wire_bytes=ByteCounts(10, 20))  # type: ignore[method-assign]
        harness.arrive("vehicle", harness.speed(b"1"))
        assert of_endpoint(harness, "cloud") == (ByteCounts(10, 20), ByteCounts(sent=1))
        await Reload(harness.router, harness.config, {"cloud": harness.other_transport("cloud")}).run()
        assert of_endpoint(harness, "cloud") == (ByteCounts(10, 20), ByteCounts(sent=1))
        harness.transports["cloud"].report = lambda: Report(wire_bytes=ByteCounts(1, 2))  # type: ignore[method-assign]
        assert of_endpoint(harness, "cloud")[0] == ByteCounts(11, 22)
