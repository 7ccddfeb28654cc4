"""RPC to one of our uEntities: payload forms, failures, and when a Request is done."""

import asyncio
import io
import logging
from typing import Any, TypeVar

import pytest
from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from streamer.features.host.rpc import MAX_BYTES, Method, RpcService
from streamer.logs.lines import HumanFormatter
from streamer.logs.output import LineHandler
from streamer.uprotocol.message import Options, UMessage, UPayloadFormat, notification, request
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USTREAMER
from tests.unit.features.host.local_transport import RecordingLocalTransport

NOW_MS = 1_700_000_000_000
CALLER = UUri("veh1", 0xA8000, 2, 0)
DOUBLE, CRASH, HEARD, CRASHING = 1, 0x1F, 0x8000, 0x8001

Proto = TypeVar("Proto", bound=Message)

PROTOBUF, IN_ANY = UPayloadFormat.PROTOBUF, UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY
PLAIN = Options(payload_format=PROTOBUF)


async def double(caller: UUri, number: Any) -> Message:
    if number.value < 0:
        raise UStatusError(UCode.OUT_OF_RANGE, f"{caller} asked for {number.value}")
    return Int32Value(value=2 * number.value)


async def crash(caller: UUri, number: Any) -> Message:
    raise ZeroDivisionError


class RpcHarness:
    """A uEntity with two methods. ``done`` has the ids of the messages that it is done with."""

    def __init__(self) -> None:
        self.transport = RecordingLocalTransport("gw1", USTREAMER)
        self.heard: list[Any] = []
        methods = {DOUBLE: double, CRASH: crash, HEARD: self._hear, CRASHING: crash}
        self.rpc = RpcService(
            self.transport, USTREAMER, {number: Method(Int32Value, call) for number, call in methods.items()}
        )
        self.done: asyncio.Queue[bytes] = asyncio.Queue()

    async def _hear(self, caller: UUri, number: Any) -> Message:
        self.heard.append((caller, number.value))
        return Int32Value()

    def take(self, message: UMessage) -> None:
        self.rpc.take(message, lambda: self.done.put_nowait(message.id))

    async def call(
        self, payload: bytes | None, form: UPayloadFormat = PROTOBUF, method: int = DOUBLE, caller: UUri = CALLER
    ) -> UMessage:
        """The response to one request."""
        message = request(NOW_MS, caller, USTREAMER.at("gw1", method), 5000, payload, Options(payload_format=form))
        self.take(message)
        assert await asyncio.wait_for(self.done.get(), 10) == message.id
        (answer,) = [said.check() for said in self.transport.said if said.attributes.reqid == message.id]
        assert (answer.attributes.source, answer.attributes.sink) == (message.attributes.sink, caller)
        return answer


def wrapped(message: Message) -> bytes:
    found = AnyProto()
    found.Pack(message)
    return found.SerializeToString()


def unwrapped(answer: UMessage, kind: type[Proto]) -> Proto:
    """The payload of a response that is wrapped in Any."""
    assert answer.attributes.payload_format is IN_ANY
    found = kind()
    assert AnyProto.FromString(answer.payload or b"").Unpack(found)
    return found


def status_of(answer: UMessage) -> tuple[UCode | None, int, str]:
    """The code in the attributes, and code and text of the payload."""
    status = unwrapped(answer, pb.UStatus) if answer.attributes.payload_format is IN_ANY else None
    status = status or pb.UStatus.FromString(answer.payload or b"")
    return answer.attributes.commstatus, status.code, status.message


@pytest.mark.parametrize("form", [PROTOBUF, UPayloadFormat.UNSPECIFIED])
async def test_plain_protobuf_is_answered_with_plain_protobuf(form: UPayloadFormat) -> None:
    answer = await RpcHarness().call(Int32Value(value=21).SerializeToString(), form)
    assert (answer.attributes.commstatus, answer.attributes.payload_format) == (None, PROTOBUF)
    assert Int32Value.FromString(answer.payload or b"").value == 42


async def test_any_is_answered_with_any() -> None:
    answer = await RpcHarness().call(wrapped(Int32Value(value=21)), IN_ANY)
    assert unwrapped(answer, Int32Value).value == 42


async def test_no_payload_is_an_empty_message() -> None:
    answer = await RpcHarness().call(None, UPayloadFormat.UNSPECIFIED)
    assert Int32Value.FromString(answer.payload or b"").value == 0


@pytest.mark.parametrize("form", [PROTOBUF, IN_ANY])
async def test_a_refusal_has_its_code_and_text_in_the_form_of_the_request(form: UPayloadFormat) -> None:
    proto = Int32Value(value=-1)
    answer = await RpcHarness().call(wrapped(proto) if form is IN_ANY else proto.SerializeToString(), form)
    assert answer.attributes.payload_format is form
    assert status_of(answer) == (UCode.OUT_OF_RANGE, 11, f"{CALLER} asked for -1")


@pytest.mark.parametrize(
    ("payload", "form", "expected"),
    [
        (b"\xff\xff", PROTOBUF, "payload: cannot be parsed as google.protobuf.Int32Value"),
        (b"\xff\xff", IN_ANY, "payload: cannot be parsed as google.protobuf.Int32Value"),
        (
            wrapped(StringValue()),
            IN_ANY,
            "payload: expected google.protobuf.Int32Value in the Any, found type.googleapis.com/google.protobuf.StringValue",
        ),
        (b"", IN_ANY, "payload: expected google.protobuf.Int32Value in the Any, found nothing"),
        (b"{}", UPayloadFormat.JSON, "payload: expected google.protobuf.Int32Value as PROTOBUF or PROTOBUF_WRAPPED_IN_ANY"),
    ],
    ids=["garbage", "garbage in any", "another message", "empty any", "json"],
)
async def test_a_bad_payload_is_answered_with_what_was_expected(payload: bytes, form: UPayloadFormat, expected: str) -> None:
    assert status_of(await RpcHarness().call(payload, form)) == (UCode.INVALID_ARGUMENT, 3, expected)


@pytest.mark.parametrize("form", [UPayloadFormat.UNSPECIFIED, PROTOBUF, IN_ANY])
async def test_a_payload_that_is_too_long_is_refused_before_it_is_parsed(form: UPayloadFormat) -> None:
    answer = await RpcHarness().call(b"\xff" * (MAX_BYTES + 1), form)  # garbage: parsing it would fail
    text = f"payload: expected at most {MAX_BYTES} bytes, found {MAX_BYTES + 1}"
    assert status_of(answer) == (UCode.INVALID_ARGUMENT, 3, text)


async def test_a_payload_as_long_as_it_may_be_is_parsed() -> None:
    unknown = b"\xf8\x07\x00" * ((MAX_BYTES - 2) // 3)  # fields that nobody knows
    answer = await RpcHarness().call(Int32Value(value=21).SerializeToString() + unknown)
    assert Int32Value.FromString(answer.payload or b"").value == 42


async def test_the_name_of_an_unexpected_type_is_not_repeated_if_it_is_long() -> None:
    answer = await RpcHarness().call(AnyProto(type_url="x" * 4000).SerializeToString(), IN_ANY)
    assert status_of(answer)[2].endswith(f"found {'x' * 128}")


async def test_an_unknown_method_is_unimplemented() -> None:
    answer = await RpcHarness().call(None, UPayloadFormat.UNSPECIFIED, 0x99)
    assert status_of(answer) == (UCode.UNIMPLEMENTED, 12, "//gw1/4/1/99: expected one of the methods 1, 1F")


async def test_a_fault_of_a_method_is_an_internal_error_and_the_next_request_is_fine() -> None:
    harness = RpcHarness()
    answer = await harness.call(None, UPayloadFormat.UNSPECIFIED, CRASH)
    assert status_of(answer) == (UCode.INTERNAL, 13, "the method failed: ZeroDivisionError")
    assert (await harness.call(None, UPayloadFormat.UNSPECIFIED)).attributes.commstatus is None


@pytest.mark.parametrize("topic", [HEARD, CRASHING, 0x8002])
async def test_a_notification_is_done_without_an_answer(topic: int) -> None:
    harness, source = RpcHarness(), CALLER._replace(resource=topic)
    payload = Int32Value(value=7).SerializeToString()
    harness.take(message := notification(NOW_MS, source, USTREAMER.at("gw1"), payload, PLAIN))
    assert await asyncio.wait_for(harness.done.get(), 10) == message.id
    assert harness.transport.said == []
    assert harness.heard == ([(source, 7)] if topic == HEARD else [])


async def test_a_request_is_done_only_once_its_response_is_safe() -> None:
    harness = RpcHarness()
    harness.transport.is_safe = False
    calling = asyncio.create_task(harness.call(None, UPayloadFormat.UNSPECIFIED))
    async with asyncio.timeout(10):
        while not harness.transport.unsafe:
            await asyncio.sleep(0)
    assert harness.done.empty()
    harness.transport.make_safe()
    await calling


async def test_one_authority_has_one_line_however_many_uentities_it_invents() -> None:
    harness, written = RpcHarness(), io.StringIO()
    handler = LineHandler(HumanFormatter(), 10, lambda: 0.0)
    handler.setStream(written)
    logger = logging.getLogger("ustreamer.services")
    logger.addHandler(handler)
    try:
        for number in range(20):
            await harness.call(b"\xff", caller=CALLER._replace(ue_id=number + 1))
        await harness.call(b"\xff", caller=CALLER._replace(authority="veh2"))
    finally:
        logger.removeHandler(handler)
    assert written.getvalue().count("request_refused") == 2
    handler.close()
    assert "left_out=18" in written.getvalue()


async def test_a_refusal_has_a_log_line_with_who_asked_and_why(caplog: pytest.LogCaptureFixture) -> None:
    await RpcHarness().call(Int32Value(value=-1).SerializeToString())
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("request_refused")]
    asked = f"authority=veh1 source={CALLER} sink={USTREAMER.at('gw1', DOUBLE)}"
    assert line == f"request_refused {asked} code=OUT_OF_RANGE reason={CALLER} asked for -1"
