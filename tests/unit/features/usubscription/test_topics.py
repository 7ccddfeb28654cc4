"""004 §4 and §5: which topics and subscribers are accepted, and what remote services say about a topic."""

import pytest
from google.protobuf.message import Message

from streamer.features.usubscription import rows, v3, wire
from streamer.features.usubscription.entries import Update
from streamer.uprotocol.message import Options, UMessage, UMessageType, UPayloadFormat, notification, request, response
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import status_to_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION
from tests.unit.features.usubscription.harness import (
    APP,
    LOCAL,
    PLAIN,
    REMOTE,
    SUBSCRIBED,
    UNSUBSCRIBED,
    US,
    UsubscriptionHarness,
    status,
)

METHODS = {
    "Subscribe": (v3.SUBSCRIBE, pb.SubscriptionRequest),
    "Unsubscribe": (v3.UNSUBSCRIBE, pb.UnsubscribeRequest),
    "FetchSubscribers": (v3.FETCH_SUBSCRIBERS, pb.FetchSubscribersRequest),
    "FetchSubscriptions": (v3.FETCH_SUBSCRIPTIONS, pb.FetchSubscriptionsRequest),
    "RegisterForNotifications": (v3.REGISTER, pb.NotificationsRequest),
    "UnregisterForNotifications": (v3.UNREGISTER, pb.NotificationsRequest),
}

BAD_TOPICS = {
    "wildcard-authority": LOCAL._replace(authority="*"),
    "wildcard-ue-id": LOCAL._replace(ue_id=0xFFFF_FFFF),
    "wildcard-type": LOCAL._replace(ue_id=0x1_FFFF),
    "wildcard-instance": LOCAL._replace(ue_id=0xFFFF_00B0),
    "wildcard-version": LOCAL._replace(version=0xFF),
    "wildcard-resource": LOCAL._replace(resource=0xFFFF),
    "upper-case-authority": LOCAL._replace(authority="DEV1"),
    "authority-with-slash": LOCAL._replace(authority="dev1/x"),
    "authority-too-long": LOCAL._replace(authority="x" * 129),
    "version-too-large": LOCAL._replace(version=0x100),
    "resource-too-large": LOCAL._replace(resource=0x1_8001),
    "entity": LOCAL._replace(resource=0),
    "method": LOCAL._replace(resource=0x7FFF),
}

BAD_SUBSCRIBERS = {name: topic._replace(resource=0) for name, topic in BAD_TOPICS.items() if "resource" not in name}
BAD_SUBSCRIBERS["wildcard-resource"] = APP._replace(resource=0xFFFF)
BAD_SUBSCRIBERS["topic"] = APP._replace(resource=0x8001)
APPS = [APP._replace(ue_id=0x100 + number) for number in range(10)]
REFUSAL = status_to_proto(UCode.PERMISSION_DENIED, "é" * 1500)
PROTOS: dict[str, tuple[Message, UCode | None]] = {
    "a failure": (REFUSAL, UCode.PERMISSION_DENIED),
    "a response": (pb.SubscriptionResponse(status=status(UNSUBSCRIBED, "é" * 1500)), None),
}
del BAD_SUBSCRIBERS["entity"], BAD_SUBSCRIBERS["method"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("topic", BAD_TOPICS)
async def test_a_bad_topic_is_refused(harness: UsubscriptionHarness, method: str, topic: str) -> None:
    number, kind = METHODS[method]
    await harness.subscribe(LOCAL)
    answer = await harness.ask(harness.request(number, kind(topic=uri_to_proto(BAD_TOPICS[topic]))))
    assert answer.attributes.commstatus is UCode.INVALID_ARGUMENT
    status = v1.UStatus.FromString(answer.payload or b"")
    assert status.code == UCode.INVALID_ARGUMENT
    assert status.message.startswith("topic")
    assert "expected" in status.message
    assert (harness.service.gauges()["topics"], harness.states(APP)) == (1, [SUBSCRIBED])


@pytest.mark.parametrize("subscriber", BAD_SUBSCRIBERS)
async def test_a_bad_subscriber_is_refused(harness: UsubscriptionHarness, subscriber: str) -> None:
    proto = pb.FetchSubscriptionsRequest(subscriber=pb.SubscriberInfo(uri=uri_to_proto(BAD_SUBSCRIBERS[subscriber])))
    answer = await harness.ask(harness.request(v3.FETCH_SUBSCRIPTIONS, proto))
    assert answer.attributes.commstatus is UCode.INVALID_ARGUMENT
    assert v1.UStatus.FromString(answer.payload or b"").message.startswith("subscriber")


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"FetchSubscriptions"}))
async def test_an_absent_topic_is_refused(harness: UsubscriptionHarness, method: str) -> None:
    number, kind = METHODS[method]
    for proto in (kind(), None):
        assert await harness.refused(number, proto) is UCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", [*METHODS.values(), (v3.RESET, pb.ResetRequest)], ids=[*METHODS, "Reset"])
@pytest.mark.parametrize(
    ("payload", "form"),
    [(b"\xff\xff", 2), (b"\xff\xff", 1), (b"\xff\xff", 0), (b"{}", 3)],
    ids=["protobuf", "any", "unspecified", "json"],
)
async def test_a_payload_that_is_not_the_request_is_refused(
    harness: UsubscriptionHarness, method: tuple[int, type[Message]], payload: bytes, form: int
) -> None:
    source = UUri.parse("//dev2/0/3/0")
    message = request(
        harness.clock.ms,
        source,
        USUBSCRIPTION.at("gw1", method[0]),
        5000,
        payload,
        Options(payload_format=UPayloadFormat(form)),
    )
    answer = await harness.ask(message)
    assert answer.attributes.commstatus is UCode.INVALID_ARGUMENT
    assert method[1].DESCRIPTOR.name in str(answer.payload) or "payload format" in str(answer.payload)


@pytest.mark.parametrize("method", [4, 5, 10, 0x7FFF])
async def test_an_unknown_method_is_not_implemented(harness: UsubscriptionHarness, method: int) -> None:
    assert await harness.refused(method, pb.ResetRequest()) is UCode.UNIMPLEMENTED


async def test_a_topic_without_authority_is_the_requesters_own(harness: UsubscriptionHarness) -> None:
    proto = pb.SubscriptionRequest(topic=uri_to_proto(LOCAL._replace(authority="")))
    answer = await harness.call(v3.SUBSCRIBE, proto)
    assert answer.topic == uri_to_proto(LOCAL)


async def test_details_beyond_the_bound_are_refused(harness: UsubscriptionHarness) -> None:
    proto = pb.SubscriptionRequest(topic=uri_to_proto(LOCAL))
    proto.attributes.details.add(type_url="x", value=bytes(v3.MAX_DETAILS_BYTES))
    assert await harness.refused(v3.SUBSCRIBE, proto) is UCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "expire", [{"seconds": 253_402_300_800}, {"seconds": 2_000_000_000, "nanos": -1}], ids=["year", "nanos"]
)
async def test_an_expiration_that_is_not_a_valid_timestamp_is_refused(
    harness: UsubscriptionHarness, expire: dict[str, int]
) -> None:
    proto = pb.SubscriptionRequest(topic=uri_to_proto(LOCAL))
    proto.attributes.expire.seconds = expire["seconds"]
    proto.attributes.expire.nanos = expire.get("nanos", 0)
    assert await harness.refused(v3.SUBSCRIBE, proto) is UCode.INVALID_ARGUMENT


async def asked(harness: UsubscriptionHarness) -> UMessage:
    """The command to the other service, of which all apps wait for the answer."""
    for app in APPS:
        await harness.subscribe(REMOTE, app)
    (command,) = harness.commands(v3.SUBSCRIBE)
    harness.forget()
    return command


def told(harness: UsubscriptionHarness) -> list[tuple[UUri | None, str]]:
    """Who was told what about the end of its subscription."""
    updates = [each for each in harness.messages(UMessageType.NOTIFICATION) if each.attributes.source.version == 3]
    return [(each.attributes.sink, wire.read(each, pb.Update).status.message) for each in updates]


@pytest.mark.parametrize(("proto", "code"), PROTOS.values(), ids=PROTOS)
async def test_a_long_text_in_an_answer_is_cut_before_it_is_kept_for_each_subscriber(
    harness: UsubscriptionHarness, proto: Message, code: UCode | None
) -> None:
    command = await asked(harness)
    harness.core.is_safe = False
    payload = proto.SerializeToString()
    await harness.send(response(harness.clock.ms, command, payload, code, UPayloadFormat.PROTOBUF))
    assert told(harness) == [(app, "é" * wire.MAX_TEXT) for app in APPS]
    kept = [message for _, message in rows.outbox(harness.state) if message.attributes.source.version == 3]
    assert max(len(message.payload or b"") for message in kept) < 1024


async def test_a_long_text_in_an_update_is_cut(harness: UsubscriptionHarness) -> None:
    await harness.answered(await asked(harness), SUBSCRIBED)
    harness.forget()
    harness.clock.advance(1)
    us = pb.SubscriberInfo(uri=uri_to_proto(US))
    proto = pb.Update(topic=uri_to_proto(REMOTE), subscriber=us, status=status(UNSUBSCRIBED, "x" * 3000))
    source = USUBSCRIPTION.at("dev2", CHANGES)
    await harness.send(notification(harness.clock.ms, source, US, proto.SerializeToString(), PLAIN))
    assert told(harness) == [(app, "x" * wire.MAX_TEXT) for app in APPS]


async def test_one_turn_makes_no_more_updates_than_the_outbox_may_keep(
    harness: UsubscriptionHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command = await asked(harness)
    harness.service._outbox.max_bytes = 3500
    made, make = [], v3.update_message

    def counted(now_ms: int, update: Update) -> UMessage:
        made.append(update)
        return make(now_ms, update)

    monkeypatch.setattr(v3, "update_message", counted)
    payload = REFUSAL.SerializeToString()
    await harness.send(response(harness.clock.ms, command, payload, UCode.PERMISSION_DENIED, UPayloadFormat.PROTOBUF))
    assert [sink for sink, _ in told(harness)] == APPS[:3]
    assert len(made) == 3
    assert "usubscription_updates_given_up" in caplog.text
    assert await harness.subscribers(REMOTE) == {}


async def test_what_ends_the_subscriptions_elsewhere_is_kept_even_if_there_is_no_room_for_updates(
    harness: UsubscriptionHarness,
) -> None:
    await harness.answered(await asked(harness), SUBSCRIBED)
    harness.forget()
    harness.service._outbox.max_bytes = 1
    await harness.call(v3.RESET, pb.ResetRequest(), UUri.parse("//dev1/0/3/0"))
    assert len(harness.commands(v3.UNSUBSCRIBE)) == 1
    assert len(told(harness)) == 1
