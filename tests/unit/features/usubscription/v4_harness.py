"""Clients that ask in version 4, beside those of `harness` that ask in version 3."""

from typing import Any, NamedTuple

from google.protobuf.message import Message

from streamer.features.usubscription import v4, wire
from streamer.features.usubscription.entries import SubscriptionState
from streamer.uprotocol.message import UMessage, UMessageType, request
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION_4
from tests.unit.features.usubscription.harness import APP, PLAIN, WATCHER, UsubscriptionHarness

TOPIC_OF_CHANGES = USUBSCRIPTION_4.at("dev1", 0x8000)

ANSWERS = {
    v4.SUBSCRIBE: pb.SubscribeResponse,
    v4.UNSUBSCRIBE: pb.UnsubscribeResponse,
    v4.FETCH_SUBSCRIPTIONS: pb.FetchSubscriptionsResponse,
    v4.REGISTER: pb.NotificationsResponse,
    v4.UNREGISTER: pb.NotificationsResponse,
    v4.RESET: pb.ResetResponse,
}


class Told(NamedTuple):
    """A subscription as a message tells it."""

    topic: UUri
    subscriber: UUri
    state: SubscriptionState
    expire_ms: int | None = None
    period_ms: int | None = None


def told(proto: pb.Subscription) -> Told:
    return Told(
        uri_from_proto(proto.topic),
        uri_from_proto(proto.subscriber),
        state_of(proto.status),
        proto.expiration.ToMilliseconds() if proto.HasField("expiration") else None,
        proto.sample_period if proto.HasField("sample_period") else None,
    )


def state_of(status: int) -> SubscriptionState:
    """By name: the numbers differ."""
    return SubscriptionState[pb.SubscriptionStatus.Name(status).removeprefix("STATUS_")]


class V4:
    """Asks the service of ``harness``."""

    def __init__(self, harness: UsubscriptionHarness) -> None:
        self.harness = harness

    def request(self, method: int, proto: Message, source: UUri = APP, at: str = "dev1") -> UMessage:
        sink = USUBSCRIPTION_4.at(at, method)
        return request(self.harness.clock.ms, source, sink, 5000, proto.SerializeToString(), PLAIN)

    async def call(self, method: int, proto: Message, source: UUri = APP, at: str = "dev1") -> Any:
        """The response to a request that has to succeed."""
        answer = await self.harness.ask(self.request(method, proto, source, at))
        assert answer.attributes.commstatus is UCode.OK, answer
        assert answer.attributes.source == USUBSCRIPTION_4.at(at, method)
        return wire.read(answer, ANSWERS[method], max_bytes=None)

    async def refused(self, method: int, proto: Message, source: UUri = APP) -> UCode:
        """The code of a request that has to fail."""
        answer = await self.harness.ask(self.request(method, proto, source))
        assert answer.attributes.commstatus not in (None, UCode.OK)
        return answer.attributes.commstatus

    async def subscribe(
        self, topic: UUri, source: UUri = APP, expire_ms: int | None = None, period_ms: int | None = None
    ) -> SubscriptionState:
        proto = pb.SubscribeRequest(topic=uri_to_proto(topic), sample_period=period_ms)
        if expire_ms is not None:
            proto.expiration.FromMilliseconds(expire_ms)
        answer = await self.call(v4.SUBSCRIBE, proto, source)
        assert uri_from_proto(answer.topic) == topic
        return state_of(answer.status)

    async def unsubscribe(self, topic: UUri, source: UUri = APP) -> None:
        answer = await self.call(v4.UNSUBSCRIBE, pb.UnsubscribeRequest(topic=uri_to_proto(topic)), source)
        assert answer == pb.UnsubscribeResponse()

    async def fetch(self, topic: UUri | None = None, subscriber: UUri | None = None, source: UUri = WATCHER) -> list[Told]:
        proto = pb.FetchSubscriptionsRequest(
            topic_filter=None if topic is None else uri_to_proto(topic),
            subscriber_filter=None if subscriber is None else uri_to_proto(subscriber),
        )
        return [told(each) for each in (await self.call(v4.FETCH_SUBSCRIPTIONS, proto, source)).subscriptions]

    async def register(self, source: UUri = WATCHER) -> None:
        await self.call(v4.REGISTER, pb.NotificationsRequest(), source)

    async def unregister(self, source: UUri = WATCHER) -> None:
        await self.call(v4.UNREGISTER, pb.NotificationsRequest(), source)

    def notified(self, sink: UUri) -> list[Told]:
        """What Notifications in version 4 tell ``sink``."""
        found = [each for each in self.harness.messages(UMessageType.NOTIFICATION) if each.attributes.sink == sink]
        return [told(wire.read(each, pb.Subscription)) for each in found if each.attributes.source == TOPIC_OF_CHANGES]

    def published(self) -> list[Told]:
        """What is published on the topic of changes."""
        found = self.harness.messages(UMessageType.PUBLISH)
        assert {each.attributes.source for each in found} <= {TOPIC_OF_CHANGES}
        return [told(wire.read(each, pb.Subscription)) for each in found]
