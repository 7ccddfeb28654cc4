"""Reading payloads in their three forms, and writing responses in the same form."""

from dataclasses import replace
from typing import cast

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from streamer.features.host.rpc import MAX_BYTES
from streamer.features.usubscription import v3, v4, wire
from streamer.features.usubscription.entries import Command, SubscribeAttributes, Subscription, SubscriptionState, Update
from streamer.features.usubscription.requests import Subscribe, Subscribed
from streamer.features.usubscription.versions import Version
from streamer.uprotocol.message import Options, UMessage, UPayloadFormat, request, response
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import status_to_proto, uri_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import MAX_AUTHORITY_LENGTH, UUri
from streamer.uprotocol.uuid import new_id
from streamer.uprotocol.well_known import USUBSCRIPTION
from tests.unit.features.usubscription.harness import APP, LOCAL, REMOTE

NOW_MS = 1_700_000_000_000
PROTO = pb.SubscriptionRequest(topic=uri_to_proto(LOCAL))


def _any(proto: Message) -> bytes:
    wrapped = Any()
    wrapped.Pack(proto)
    return wrapped.SerializeToString()


def _request(payload: bytes, form: UPayloadFormat) -> UMessage:
    return request(NOW_MS, APP, USUBSCRIPTION.at("dev1", 1), 5000, payload, Options(payload_format=form))


FORMS = {
    "protobuf": (_request(PROTO.SerializeToString(), UPayloadFormat.PROTOBUF), False),
    "any": (_request(_any(PROTO), UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY), True),
    "unspecified-protobuf": (_request(PROTO.SerializeToString(), UPayloadFormat.UNSPECIFIED), False),
    "unspecified-any": (_request(_any(PROTO), UPayloadFormat.UNSPECIFIED), True),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_request_is_read_in_every_form(form: str) -> None:
    assert wire.read(FORMS[form][0], pb.SubscriptionRequest) == PROTO


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_has_the_form_of_the_request(form: str) -> None:
    message, is_wrapped = FORMS[form]
    answer = wire.granted(NOW_MS, message, v3.subscription_response(Subscribed(LOCAL, SubscriptionState.SUBSCRIBED)))
    failure = wire.refused(NOW_MS, message, UCode.INTERNAL, "why")
    assert answer.attributes.commstatus is UCode.OK
    assert failure.attributes.commstatus is UCode.INTERNAL
    for said in (answer, failure):
        assert (said.attributes.source, said.attributes.sink) == (message.attributes.sink, APP)
        assert said.attributes.reqid == message.id
        assert (said.attributes.priority, said.attributes.ttl) == (message.attributes.priority, 5000)
    if is_wrapped:
        assert answer.attributes.payload_format is UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY
        assert Any.FromString(answer.payload or b"").TypeName() == pb.SubscriptionResponse.DESCRIPTOR.full_name
        assert Any.FromString(failure.payload or b"").TypeName() == v1.UStatus.DESCRIPTOR.full_name
    else:
        assert answer.attributes.payload_format is UPayloadFormat.PROTOBUF
        assert pb.SubscriptionResponse.FromString(answer.payload or b"").status.state == pb.SubscriptionStatus.SUBSCRIBED
        assert v1.UStatus.FromString(failure.payload or b"") == status_to_proto(UCode.INTERNAL, "why")


class Parsed:
    """Stands for a class of messages, and counts how many bytes it is given to parse."""

    DESCRIPTOR = Any.DESCRIPTOR

    def __init__(self) -> None:
        self.bytes = 0

    def FromString(self, payload: bytes) -> Any:  # noqa: N802  # protobuf's name
        self.bytes += len(payload)
        return Any.FromString(payload)


@pytest.mark.parametrize("form", [0, 1, 2], ids=["unspecified", "any", "protobuf"])
@pytest.mark.parametrize(
    "content", [b"\x12\x00", b"\x0a\x00", b"\xf8\x07\x00\xf8\x07\x00"], ids=["values", "types", "unknown"]
)
def test_a_payload_that_is_too_long_is_refused_before_it_is_parsed(
    form: int, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = Parsed()
    monkeypatch.setattr(wire, "Any", parsed)
    message = _request(content * MAX_BYTES, UPayloadFormat(form))
    with pytest.raises(
        UStatusError, match=f"expected at most {MAX_BYTES} bytes, found {len(content) * MAX_BYTES}"
    ) as caught:
        wire.read(message, cast(type[Message], parsed))
    assert caught.value.code is UCode.INVALID_ARGUMENT
    assert parsed.bytes == 0


def test_the_answer_to_a_payload_that_is_too_long_costs_no_more_than_another(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = Parsed()
    monkeypatch.setattr(wire, "Any", parsed)
    message = _request(b"\x0a\x00" * MAX_BYTES, UPayloadFormat.UNSPECIFIED)
    answer = wire.refused(NOW_MS, message, UCode.INVALID_ARGUMENT, "too long")
    assert answer.attributes.payload_format is UPayloadFormat.PROTOBUF
    assert parsed.bytes == 0


def test_the_largest_request_that_keeps_the_bounds_is_read() -> None:
    topic = UUri("a" * MAX_AUTHORITY_LENGTH, 0xFFFE_FFFE, 0xFE, 0xFFFE)
    proto = pb.SubscriptionRequest(topic=uri_to_proto(topic))
    proto.attributes.expire.seconds, proto.attributes.expire.nanos = 253_402_300_799, 999_999_999
    proto.attributes.sample_period_ms = 0xFFFF_FFFF
    proto.attributes.details.add(type_url="x", value=bytes(v3.MAX_DETAILS_BYTES - 9))
    message = _request(_any(proto), UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY)
    found = v3.METHODS[v3.SUBSCRIBE].read(message, APP)
    assert isinstance(found, Subscribe)
    assert (found.topic, len(found.attributes.details)) == (topic, v3.MAX_DETAILS_BYTES)


UNKNOWN = b"\xfa\x7f\x00" * MAX_BYTES
"""Fields that nobody knows: a payload with them is valid, and too long."""


def test_what_another_service_answers_is_not_parsed_if_it_is_too_long() -> None:
    command = Command(new_id(NOW_MS), REMOTE, True, 0, 300_000)
    asked = v3.command_message("gw1", command)
    for unknown, text in ((b"", "why"), (UNKNOWN, "")):
        payload = status_to_proto(UCode.PERMISSION_DENIED, "why").SerializeToString() + unknown
        refusal = response(NOW_MS, asked, payload, UCode.PERMISSION_DENIED, UPayloadFormat.PROTOBUF)
        assert v3.command_response(refusal)[1:4] == (UCode.PERMISSION_DENIED, None, text)
    for unknown, state in ((b"", SubscriptionState.SUBSCRIBED), (UNKNOWN, None)):
        proto = v3.subscription_response(Subscribed(REMOTE, SubscriptionState.SUBSCRIBED))
        consent = response(NOW_MS, asked, proto.SerializeToString() + unknown, None, UPayloadFormat.PROTOBUF)
        assert v3.command_response(consent)[1:4] == (UCode.OK, state, "")


@pytest.mark.parametrize("version", [v3, v4])
def test_an_update_of_another_service_is_not_parsed_if_it_is_too_long(version: Version) -> None:
    sink = USUBSCRIPTION.at("gw1")
    about = Update(sink, "dev2", REMOTE, sink, SubscriptionState.UNSUBSCRIBED, "", SubscribeAttributes())
    update = version.update_message(NOW_MS, about)
    assert version.received_update(update, sink) is not None
    assert version.received_update(replace(update, payload=(update.payload or b"") + UNKNOWN), sink) is None


@pytest.mark.parametrize("version", [v3, v4])
def test_an_update_about_a_topic_without_authority_is_about_one_of_the_service_s_own(version: Version) -> None:
    sink = USUBSCRIPTION.at("gw1")
    local = REMOTE._replace(authority="")
    about = Update(sink, "dev2", local, sink, SubscriptionState.UNSUBSCRIBED, "", SubscribeAttributes())
    found = version.received_update(version.update_message(NOW_MS, about), sink)
    assert found is not None
    assert found.topic == REMOTE


def test_another_message_in_any_is_refused() -> None:
    message = _request(_any(pb.UnsubscribeRequest(topic=PROTO.topic)), UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY)
    with pytest.raises(
        UStatusError, match=r"expected a uprotocol.core.usubscription.v3.SubscriptionRequest, found a 'type.*Unsub"
    ):
        wire.read(message, pb.SubscriptionRequest)


@given(st.binary(max_size=60), st.sampled_from([0, 1, 2, 3, 6]))
def test_any_payload_is_read_or_refused(payload: bytes, form: int) -> None:
    message = _request(payload, UPayloadFormat(form))
    codes = set()
    for kind in (pb.SubscriptionRequest, pb.FetchSubscriptionsRequest, pb.ResetRequest):
        try:
            wire.read(message, kind)
        except UStatusError as exc:
            codes.add(exc.code)
    assert codes <= {UCode.INVALID_ARGUMENT}


@given(st.integers(-62_135_596_800, 253_402_300_799), st.integers(0, 999_999_999))
def test_an_expiration_is_never_earlier_than_asked_and_less_than_a_millisecond_later(seconds: int, nanos: int) -> None:
    attributes = pb.SubscribeAttributes()
    attributes.expire.seconds, attributes.expire.nanos = seconds, nanos
    expire_ms = v3.subscribe_attributes(attributes).expire_ms
    assert expire_ms is not None
    assert 0 <= expire_ms * 1_000_000 - (seconds * 1_000_000_000 + nanos) < 1_000_000


def test_the_last_time_that_there_is_is_answered_as_a_time() -> None:
    last = Timestamp(seconds=253_402_300_799, nanos=999_999_999)
    answered = wire.timestamp(wire.time_ms("expiration", last))
    assert (answered.seconds, answered.nanos) == (253_402_300_799, 999_000_000)


@pytest.mark.parametrize("sample_period_ms", [None, 0, 40])
@pytest.mark.parametrize("expire_ms", [None, NOW_MS + 1234])
@pytest.mark.parametrize("details", [0, 2])
def test_attributes_come_back_as_they_were_given(sample_period_ms: int | None, expire_ms: int | None, details: int) -> None:
    attributes = pb.SubscribeAttributes(sample_period_ms=sample_period_ms)
    if expire_ms is not None:
        attributes.expire.FromMilliseconds(expire_ms)
    for number in range(details):
        attributes.details.add(type_url=f"type.googleapis.com/x{number}", value=bytes([number]))
    entry = Subscription(1, LOCAL, APP, "dev1", SubscriptionState.SUBSCRIBED, v3.subscribe_attributes(attributes))
    assert v3.subscription(entry).attributes == attributes
    message = v3.update_message(NOW_MS, Update(APP, "dev1", LOCAL, APP, SubscriptionState.SUBSCRIBED, "", entry.attributes))
    assert wire.read(message, pb.Update).attributes == attributes


def test_an_update_says_what_has_changed() -> None:
    message = v3.update_message(
        NOW_MS, Update(APP, "dev1", REMOTE, APP, SubscriptionState.UNSUBSCRIBED, "why", SubscribeAttributes())
    )
    assert wire.read(message, pb.Update).status == pb.SubscriptionStatus(
        state=pb.SubscriptionStatus.UNSUBSCRIBED, message="why"
    )


@pytest.mark.parametrize("subscribe", [True, False])
def test_a_command_message_has_the_id_and_the_ttl_of_the_command(subscribe: bool) -> None:
    command = Command(new_id(NOW_MS), REMOTE, subscribe, 0, 300_000)
    message = v3.command_message("gw1", command)
    assert (message.id, message.attributes.ttl) == (command.id, 300_000)
    assert message.check() is message


def test_a_response_with_an_unknown_state_does_not_count() -> None:
    command = Command(new_id(NOW_MS), REMOTE, True, 0, 300_000)
    answer = wire.granted(NOW_MS, v3.command_message("gw1", command), pb.SubscriptionResponse())
    unknown = pb.SubscriptionResponse.FromString(b"\x0a\x02\x08\x09").SerializeToString()
    found = v3.command_response(replace(answer, payload=unknown))
    assert (found.code, found.state) == (UCode.OK, None)
