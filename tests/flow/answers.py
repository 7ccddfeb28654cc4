"""What the source of a failed Request gets."""

from dataclasses import replace

from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_from_proto
from streamer.uprotocol.status import UCode
from tests.flow.harness import RouterHarness


def assert_answered(harness: RouterHarness, request: UMessage, code: UCode) -> None:
    """The cloud got a dead letter with the request and the code, and a Response that says the same."""
    (letter,) = harness.dead_letters("cloud")
    is_allowed = code not in (UCode.UNAUTHENTICATED, UCode.PERMISSION_DENIED)
    assert message_from_proto(letter.message) == (request if is_allowed else replace(request, payload=None))
    assert letter.status.code == code
    assert letter.status.message
    assert letter.streamer == "gateway.veh1"
    (answer,) = [m for m in harness.sent("cloud") if m.attributes.type is UMessageType.RESPONSE]
    assert answer.attributes.source == request.attributes.sink
    assert answer.attributes.sink == request.attributes.source
    assert answer.attributes.reqid == request.id
    assert answer.attributes.commstatus is code
    assert answer.attributes.ttl == request.attributes.ttl
    assert pb.UStatus.FromString(answer.payload or b"").code == code
    assert answer.attributes.problems == ()
