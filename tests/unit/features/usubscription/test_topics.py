"""004 §4 and §5: which topics and subscribers are accepted."""

import pytest
from google.protobuf.message import Message

from streamer.features.usubscription import v3
from streamer.uprotocol.message import Options, UPayloadFormat, request
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION
from tests.unit.features.usubscription.harness import APP, LOCAL, UsubscriptionHarness

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
del BAD_SUBSCRIBERS["entity"], BAD_SUBSCRIBERS["method"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("topic", BAD_TOPICS)
async def test_a_bad_topic_is_refused(harness: UsubscriptionHarness, method: str, topic: str) -> None:
    number, kind = METHODS[method]
    answer = await harness.ask(harness.request(number, kind(topic=uri_to_proto(BAD_TOPICS[topic]))))
    assert answer.attributes.commstatus is UCode.INVALID_ARGUMENT
    status = v1.UStatus.FromString(answer.payload or b"")
    assert status.code == UCode.INVALID_ARGUMENT
    assert status.message.startswith("topic")
    assert "expected" in status.message
    assert harness.service.gauges()["topics"] == 0


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
