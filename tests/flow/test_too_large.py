"""Messages that are too large to be received: their senders are told, as far as is known, and nothing else happens."""

from dataclasses import replace

import pytest

from streamer.uprotocol.message import UMessage, UPriority
from streamer.uprotocol.protobuf import message_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.answers import assert_answered
from tests.flow.harness import ORDERS, RouterHarness, configuration

WHOLE_BYTES = 50_000_000


async def test_a_request_is_answered_and_its_dead_letter_has_what_is_known() -> None:
    async with RouterHarness() as harness:
        request = replace(harness.ask(), payload=b"x" * 4096)
        received = harness.refuse("cloud", request, WHOLE_BYTES)
        assert_answered(harness, request, UCode.RESOURCE_EXHAUSTED)
        (letter,) = harness.dead_letters("cloud")
        assert (letter.status.message, letter.payload_bytes) == ("too large", WHOLE_BYTES)
        assert message_from_proto(letter.message) == request
        assert received.acknowledged
        assert harness.sent("vehicle") == []
        assert harness.outcomes("none") == {"rejected": 1}


async def test_a_message_that_is_whole_says_so() -> None:
    async with RouterHarness() as harness:
        harness.arrive("cloud", harness.ask(source=UUri("veh1", 0xEE, 1, 0)))
        (letter,) = harness.dead_letters("cloud")
        assert not letter.HasField("payload_bytes")


async def test_it_is_reported_once_however_often_it_comes() -> None:
    async with RouterHarness() as harness:
        message = harness.notify(b"x")
        for _ in range(3):
            assert harness.refuse("vehicle", message, WHOLE_BYTES).acknowledged
        assert len(harness.dead_letters("vehicle")) == 1
        assert harness.outcomes("none") == {"rejected": 1, "duplicate": 2}


def cut(message: UMessage) -> UMessage:
    """Without the attributes that come last."""
    return replace(message, attributes=replace(message.attributes, ttl=None, priority=UPriority.UNSPECIFIED))


async def test_a_request_whose_attributes_are_not_all_known_is_not_called_invalid() -> None:
    async with RouterHarness() as harness:
        harness.refuse("cloud", cut(harness.ask()), WHOLE_BYTES)
        (letter,) = harness.dead_letters("cloud")
        assert letter.status.code == UCode.RESOURCE_EXHAUSTED


async def test_what_is_not_allowed_comes_first() -> None:
    async with RouterHarness(configuration(permissions={"endpoints": {"cloud": {"rules": []}}})) as harness:
        harness.refuse("vehicle", harness.notify(b"secret"), WHOLE_BYTES)
        (letter,) = harness.dead_letters("vehicle")
        assert (letter.status.code, letter.status.message) == (UCode.PERMISSION_DENIED, "not allowed")
        assert letter.message.payload == b""


async def test_what_nobody_wants_is_not_reported() -> None:
    everything = {"from": "cloud", "to": "vehicle", "publish": ["//cloud/FFFFFFFF/FF/9001"]}
    async with RouterHarness(configuration(routes=[everything])) as harness:
        harness.refuse("cloud", harness.speed(source=ORDERS), WHOLE_BYTES)
        assert harness.outcomes("none") == {"unwanted": 1}
        assert harness.dead_letters("cloud") == []


@pytest.mark.parametrize("endpoint", ["vehicle", "cloud"])
async def test_a_part_of_a_message_is_never_sent_on(endpoint: str) -> None:
    """Neither as a message nor as a copy of one."""
    async with RouterHarness() as harness:
        message = harness.notify(b"part") if endpoint == "vehicle" else harness.ask(payload=b"part")
        harness.refuse(endpoint, message, WHOLE_BYTES)
        harness.pass_time(5000)
        assert [each for name in harness.transports for each in harness.sent(name) if each.payload == b"part"] == []
