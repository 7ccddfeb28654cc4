"""Dead letters and error responses: what they say."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.delivery.outcomes.dead_letter import dead_letter, error_response, letter_of
from streamer.routing.outcome import FailedMessage, Failure, Outcome
from streamer.uprotocol.message import (
    Attributes,
    UMessage,
    UMessageType,
    UPayloadFormat,
    UPriority,
    notification,
    publish,
    request,
    response,
)
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.proto import ustreamer_v1_pb2 as ustreamer
from streamer.uprotocol.protobuf import message_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import created_ms, new_id
from tests.examples import characters
from tests.unit.delivery.messages import NOW_MS
from tests.unit.uprotocol.strategies import messages

APP, METHOD, TOPIC = UUri("cloud", 0xC, 1, 0), UUri("veh1", 0xB, 1, 7), UUri("veh1", 0xA, 1, 0x8000)
FULL = Failure(Outcome.REJECTED, UCode.RESOURCE_EXHAUSTED, "the egress queue is full")


def without_token(message: UMessage) -> UMessage:
    return replace(message, attributes=replace(message.attributes, token=None))


def story(message: UMessage, failure: Failure = FULL) -> FailedMessage:
    return FailedMessage(message, failure, NOW_MS, NOW_MS + 1500, "up", "cloud", 3)


@given(messages, st.sampled_from(UCode), st.text(characters, max_size=30))
def test_dead_letter_carries_the_original_untouched_and_the_whole_story(message: UMessage, code: UCode, text: str) -> None:
    told = story(message, Failure(Outcome.DEAD_LETTERED, code, text))
    letter = dead_letter(told, "gateway", 0x8001, None)
    assert letter.check() is letter
    assert letter.attributes == Attributes(
        UMessageType.PUBLISH, UUri("gateway", 4, 1, 0x8001), payload_format=UPayloadFormat.PROTOBUF
    )
    assert created_ms(letter.id) == NOW_MS + 1500
    content = ustreamer.DeadLetter.FromString(letter.payload or b"")
    assert message_from_proto(content.message) == without_token(message)
    assert (content.status.code, content.status.message) == (code, text)
    assert (content.route, content.endpoint, content.attempts, content.streamer) == ("up", "cloud", 3, "gateway")
    assert content.first_time.ToMilliseconds() == NOW_MS
    assert content.last_time.ToMilliseconds() == NOW_MS + 1500


def test_the_access_token_never_leaves_in_a_dead_letter() -> None:
    plain = publish(NOW_MS, TOPIC, b"x")
    secret = replace(plain, attributes=replace(plain.attributes, token="hunter2"))
    letter = dead_letter(story(secret), "gateway", 0x8001, None)
    assert b"hunter2" not in (letter.payload or b"")
    content = ustreamer.DeadLetter.FromString(letter.payload or b"")
    assert message_from_proto(content.message) == plain


def test_about_a_stranger_only_the_code_and_the_header_are_told() -> None:
    sent = publish(NOW_MS, TOPIC, b"x" * 1000)
    told = replace(story(sent, Failure(Outcome.REJECTED, UCode.UNAUTHENTICATED, "lives behind vehicle")), is_withheld=True)
    content = ustreamer.DeadLetter.FromString(dead_letter(told, "gateway", 0x8001, None).payload or b"")
    assert message_from_proto(content.message) == replace(sent, payload=None)
    assert (content.status.code, content.status.message) == (UCode.UNAUTHENTICATED, "not allowed")


def test_the_reason_is_told_up_to_a_length() -> None:
    content = ustreamer.DeadLetter.FromString(
        dead_letter(story(publish(NOW_MS, TOPIC), FULL._replace(text="x" * 10_000)), "gateway", 0x8001, None).payload or b""
    )
    assert content.status.message == "x" * 500


@pytest.mark.parametrize(
    ("outcome", "route", "was_accepted"),
    [
        (Outcome.REJECTED, "", False),
        (Outcome.REJECTED, "up", False),
        (Outcome.EXPIRED, "", False),
        (Outcome.EXPIRED, "up", True),
        (Outcome.DEAD_LETTERED, "", True),
        (Outcome.DEAD_LETTERED, "up", True),
    ],
)
def test_what_was_accepted_can_be_told_from_what_was_not(outcome: Outcome, route: str, was_accepted: bool) -> None:
    failed = replace(story(publish(NOW_MS, TOPIC), FULL._replace(outcome=outcome)), route=route)
    assert failed.was_accepted is was_accepted


def test_dead_letter_is_addressed_where_the_network_wants_it() -> None:
    sink = everything_at("cloud")
    letter = dead_letter(story(publish(NOW_MS, TOPIC)), "gateway", 0x9000, sink)
    assert (letter.attributes.sink, letter.attributes.source.resource) == (sink, 0x9000)
    letter.check()


@pytest.mark.parametrize("code", [code for code in UCode if code])
def test_error_response_turns_the_request_around(code: UCode) -> None:
    asked = request(NOW_MS, APP, METHOD, 1000, b"?")
    answer = error_response(story(asked, Failure(Outcome.EXPIRED, code, "why")))
    assert answer is not None
    assert answer.attributes == Attributes(
        UMessageType.RESPONSE,
        METHOD,
        APP,
        priority=asked.attributes.priority,
        ttl=1000,
        commstatus=code,
        reqid=asked.id,
        payload_format=UPayloadFormat.PROTOBUF,
    )
    assert created_ms(answer.id) == NOW_MS + 1500
    status = pb.UStatus.FromString(answer.payload or b"")
    assert (status.code, status.message) == (code, "why")


@pytest.mark.parametrize(
    "message",
    [publish(NOW_MS, TOPIC), notification(NOW_MS, TOPIC, APP), response(NOW_MS, request(NOW_MS, APP, METHOD, 1000))],
)
def test_only_requests_are_answered(message: UMessage) -> None:
    assert error_response(story(message)) is None


ASK = Attributes(UMessageType.REQUEST, APP, METHOD, priority=UPriority.CS4, ttl=1000)


@pytest.mark.parametrize(
    ("broken", "answered"),
    [
        (replace(ASK, priority=UPriority.UNSPECIFIED), True),
        (replace(ASK, priority=UPriority.CS3), True),
        (replace(ASK, ttl=None), True),
        (replace(ASK, traceparent="x"), True),
        (replace(ASK, sink=None), False),
        (replace(ASK, sink=APP), False),
        (replace(ASK, source=METHOD), False),
        (replace(ASK, source=APP._replace(authority="")), True),
        (replace(ASK, sink=METHOD._replace(authority="")), False),
        (replace(ASK, source=APP._replace(ue_id=0xFFFF)), False),
    ],
)
def test_invalid_request_is_answered_as_far_as_its_addresses_allow(broken: Attributes, answered: bool) -> None:
    answer = error_response(story(UMessage(new_id(NOW_MS), broken)))
    assert (answer is not None) is answered
    if answer is not None:
        assert answer.check().attributes.priority >= UPriority.CS4


def test_request_with_an_invalid_id_is_not_answered() -> None:
    assert error_response(story(UMessage(bytes(16), ASK))) is None


@pytest.mark.parametrize("copy_for", [None, everything_at("fleet")])
@pytest.mark.parametrize("addressed_to", [None, everything_at("cloud")])
def test_a_kept_letter_has_the_sink_of_the_copy_that_failed_or_that_of_its_message(
    copy_for: UUri | None, addressed_to: UUri | None
) -> None:
    sent = publish(NOW_MS, TOPIC, b"x")
    sent = replace(sent, attributes=replace(sent.attributes, sink=addressed_to))
    kept = letter_of(replace(story(sent), sink=copy_for), "vehicle", 7)
    assert kept.sink == str(copy_for or addressed_to or "")
    assert (kept.number, kept.id, kept.ingress, kept.source) == (7, sent.id, "vehicle", str(TOPIC))
