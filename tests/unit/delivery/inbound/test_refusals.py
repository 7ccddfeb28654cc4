"""The failure of a message that a transport could not hand over."""

from streamer.delivery.inbound import refusals
from streamer.routing.permissions import denied
from streamer.transports.base import Received, Refused
from streamer.uprotocol.message import UMessage, publish
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri

MESSAGE: UMessage = publish(1000, UUri("alpha", 0x100, 1, 0x8001), b"part")


def test_what_is_not_allowed_in_a_part_of_a_message_says_that_it_is_a_part() -> None:
    refused = Refused(Received(MESSAGE), UCode.RESOURCE_EXHAUSTED, "too large: 2 MiB", 2_000_000)
    failure = refusals.by_transport(refused, denied(UCode.PERMISSION_DENIED, "it has no token"))
    assert (failure.code, failure.text) == (UCode.PERMISSION_DENIED, "it has no token; too large: 2 MiB")
    assert failure.payload_bytes == 2_000_000
