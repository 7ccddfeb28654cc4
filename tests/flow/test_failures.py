"""Messages that cannot be delivered: which code, which dead letter, which answer."""

from dataclasses import replace

import pytest

from streamer.transports.base import LinkState
from streamer.transports.errors import PermanentError, RefusedError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.protobuf import message_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.clock import START_MS
from tests.flow.answers import assert_answered
from tests.flow.harness import CLIMATE, CLOUD_APP, DEAD_LETTERS, RouterHarness, bad_request, configuration


@pytest.mark.parametrize(
    ("state", "why"), [(LinkState.DOWN, "while the link to vehicle was down"), (LinkState.ALONE, "while nobody listened")]
)
async def test_deadline_exceeded_when_the_link_is_not_up_until_the_ttl_passes(state: LinkState, why: str) -> None:
    async with RouterHarness() as harness:
        harness.transports["vehicle"].set_state(state)
        request = harness.ask(ttl=1000)
        (received,) = harness.arrive("cloud", request)
        harness.pass_time(900)
        assert harness.dead_letters("cloud") == []
        assert not received.acknowledged
        harness.pass_time(200)
        assert_answered(harness, request, UCode.DEADLINE_EXCEEDED)
        (letter,) = harness.dead_letters("cloud")
        assert letter.status.message == f"its TTL passed {why}"
        assert received.acknowledged


async def test_deadline_exceeded_when_the_ttl_had_passed_on_arrival() -> None:
    async with RouterHarness() as harness:
        request = harness.ask(ttl=1000)
        harness.clock.ms += 1001
        harness.arrive("cloud", request)
        assert harness.sent("vehicle") == []
        assert_answered(harness, request, UCode.DEADLINE_EXCEEDED)
        assert harness.outcomes("none") == {"expired": 1}


async def test_permission_denied_when_no_route_leads_there() -> None:
    config = configuration(routes=[{"from": "vehicle", "to": "cloud"}])
    async with RouterHarness(config) as harness:
        request = harness.ask()
        (received,) = harness.arrive("cloud", request)
        assert_answered(harness, request, UCode.PERMISSION_DENIED)
        assert received.acknowledged


async def test_unauthenticated_when_the_source_lives_elsewhere() -> None:
    async with RouterHarness() as harness:
        request = harness.ask(source=UUri("veh1", 0xEE, 1, 0))
        harness.arrive("cloud", request)
        assert harness.sent("vehicle") == []
        assert_answered(harness, request, UCode.UNAUTHENTICATED)


async def test_resource_exhausted_when_the_queue_is_full() -> None:
    config = configuration(queue_policy={"queue": {"messages": 1, "on_full": "reject"}})
    async with RouterHarness(config) as harness:
        harness.transports["vehicle"].is_withholding = True
        first, second = harness.ask(), harness.ask()
        harness.arrive("cloud", first, second)
        assert_answered(harness, second, UCode.RESOURCE_EXHAUSTED)
        harness.transports["vehicle"].release_withheld()
        assert harness.sent("vehicle") == [first]


async def test_invalid_argument_when_attributes_are_malformed() -> None:
    async with RouterHarness() as harness:
        request = bad_request(harness.ask())
        harness.arrive("cloud", request)
        assert harness.sent("vehicle") == []
        assert_answered_with_raised_priority(harness, request)


def assert_answered_with_raised_priority(harness: RouterHarness, request: UMessage) -> None:
    (letter,) = harness.dead_letters("cloud")
    assert letter.status.code == UCode.INVALID_ARGUMENT
    assert "priority" in letter.status.message
    (answer,) = harness.sent("cloud")
    assert answer.attributes.reqid == request.id
    assert answer.attributes.commstatus is UCode.INVALID_ARGUMENT
    assert answer.attributes.problems == ()


async def test_unknown_when_a_transport_raises_an_error_that_is_not_a_send_error(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(queue_policy={"retry": {"attempts": 1}})
    async with RouterHarness(config) as harness:

        def broken(parcels: object, done: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(harness.transports["vehicle"], "submit", broken)
        request = harness.ask()
        harness.arrive("cloud", request)
        assert_answered(harness, request, UCode.UNKNOWN)


async def test_internal_when_the_destination_fails_for_good() -> None:
    async with RouterHarness() as harness:
        harness.transports["vehicle"].refuse = lambda message: PermanentError(UCode.INTERNAL, "broken")
        request = harness.ask()
        harness.arrive("cloud", request)
        assert_answered(harness, request, UCode.INTERNAL)
        assert harness.outcomes("cloud-vehicle") == {"dead_lettered": 1}


async def test_dead_letter_has_the_message_the_reason_the_route_and_the_attempts() -> None:
    config = configuration(queue_policy={"retry": {"attempts": 3, "initial_ms": 500}})
    async with RouterHarness(config) as harness:
        harness.transports["cloud"].refuse = lambda message: (
            None if message.attributes.source == DEAD_LETTERS else RefusedError(UCode.RESOURCE_EXHAUSTED, "quota")
        )
        message = harness.notify(b"payload", token="secret", traceparent=f"00-{'a' * 32}-{'b' * 16}-01", ttl=60_000)
        harness.arrive("vehicle", message)
        harness.pass_time(500)
        harness.pass_time(1000)
        (letter,) = harness.dead_letters("vehicle")
        told = message_from_proto(letter.message)
        assert told == replace(message, attributes=replace(message.attributes, token=None))
        assert (letter.route, letter.endpoint, letter.attempts) == ("vehicle-cloud", "cloud", 3)
        assert letter.first_time.ToMilliseconds() == START_MS
        assert letter.last_time.ToMilliseconds() == START_MS + 1500
        assert (letter.status.code, letter.status.message) == (UCode.RESOURCE_EXHAUSTED, "quota")
        assert harness.dead_letters("cloud") == []


async def test_dead_letters_can_go_to_named_endpoints() -> None:
    config = configuration(dead_letter={"endpoints": ["origin", "vehicle"]})
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        request = harness.ask(method=CLIMATE)
        harness.clock.ms += 5000
        harness.arrive("cloud", request)
        (at_origin,) = harness.dead_letters("cloud")
        (elsewhere,) = harness.dead_letters("vehicle")
        assert message_from_proto(at_origin.message) == message_from_proto(elsewhere.message) == request
        (letter,) = [m for m in harness.transports["cloud"].sent if m.attributes.source == DEAD_LETTERS]
        assert letter.attributes.sink == everything_at("cloud")


async def test_dead_letter_that_cannot_be_delivered_is_counted_and_not_reported_again() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        harness.transports["vehicle"].refuse = lambda message: PermanentError(UCode.INTERNAL, "no")
        harness.arrive("cloud", harness.ask())
        assert harness.outcomes("dead-letter/cloud") == {"dead_lettered": 1}
        assert harness.outcomes("rpc-error/cloud") == {"dead_lettered": 1}
        assert harness.dead_letters("cloud") == harness.dead_letters("vehicle") == []


async def test_dead_letters_are_bounded_and_the_oldest_go_first() -> None:
    async with RouterHarness(configuration(dead_letter={"queue": {"messages": 3}})) as harness:
        harness.transports["cloud"].is_withholding = True
        late = [harness.notify(sink=UUri("veh1", 1, 1, 0), source=UUri("cloud", 1, 1, 0x8000), ttl=1) for _ in range(10)]
        harness.clock.ms += 10
        harness.transports["cloud"].set_state(type(harness.transports["cloud"].state).DOWN)
        harness.arrive("cloud", *late)
        assert harness.queued("dead-letter/cloud") == 3
        assert harness.outcomes("dead-letter/cloud") == {"dead_lettered": 7}
        harness.transports["cloud"].is_withholding = False
        harness.transports["cloud"].restore_link()
        assert [letter.message.attributes.id.lsb for letter in harness.dead_letters("cloud")] == [
            int.from_bytes(message.id[8:], "big") for message in late[-3:]
        ]


async def test_failed_response_is_a_dead_letter_but_gets_no_answer() -> None:
    async with RouterHarness() as harness:
        harness.clock.ms -= 10_000
        request = harness.ask()
        harness.clock.ms += 10_000
        harness.arrive("cloud", request)
        harness.transports["vehicle"].lose_link()
        before = len(harness.sent("cloud"))
        assert before == 1
        assert [m.attributes.sink for m in harness.sent("cloud")] == [CLOUD_APP]


async def test_dead_letter_of_another_streamer_is_counted_and_not_reported() -> None:
    async with RouterHarness() as harness:
        foreign = harness.speed(b"a letter", source=UUri("gateway.veh2", 4, 1, 0x8001))
        harness.router.ingresses["vehicle"].on_receive(MemoryReceived(foreign))
        assert harness.outcomes("none") == {"rejected": 1}  # nobody of that authority lives behind this endpoint
        assert harness.dead_letters("vehicle") == []


async def test_echo_of_a_publish_that_lost_its_sink_on_the_way_is_a_duplicate() -> None:
    async with RouterHarness() as harness:
        order = harness.speed(source=UUri("cloud", 0xC0, 1, 0x9000))
        attributes = replace(order.attributes, sink=everything_at("veh1"))
        harness.arrive("cloud", replace(order, attributes=attributes))
        (sent,) = harness.sent("vehicle")
        harness.router.ingresses["vehicle"].on_receive(MemoryReceived(sent))
        assert harness.outcomes("none") == {"duplicate": 1}
        assert harness.dead_letters("vehicle") == []
