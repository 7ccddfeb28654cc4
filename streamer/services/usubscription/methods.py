"""The methods of the service (004 §4, §7.2, §9): from a Request to a response and a change of the registry. Pure."""

from google.protobuf.message import Message

from streamer.services.access import Access
from streamer.services.usubscription import wire
from streamer.services.usubscription.entries import Change, Subscription
from streamer.services.usubscription.registry import SubscriptionRegistry
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTION


class Methods:
    """``page``: the most entries in one response. ``access`` says who may call what. A reload sets both."""

    def __init__(self, registry: SubscriptionRegistry, page: int, access: Access) -> None:
        self.access = access
        self._registry = registry
        self.page = page
        self._methods = {
            wire.SUBSCRIBE: self._subscribe,
            wire.UNSUBSCRIBE: self._unsubscribe,
            wire.FETCH_SUBSCRIPTIONS: self._fetch_subscriptions,
            wire.REGISTER: self._register,
            wire.UNREGISTER: self._unregister,
            wire.FETCH_SUBSCRIBERS: self._fetch_subscribers,
            wire.RESET: self._reset,
        }

    def call(self, now_ms: int, request: UMessage) -> tuple[Message, Change]:
        """The payload of the response, and what changed. Raises `UStatusError` for the response if nothing changed."""
        source, sink = request.attributes.source, request.attributes.sink
        assert sink is not None
        method = self._methods.get(sink.resource)
        if method is None:
            raise UStatusError(UCode.UNIMPLEMENTED, f"method {sink.resource:X}: expected one of 1, 2, 3, 6, 7, 8, 9")
        if not source.is_entity or source.has_wildcard or not source.authority:
            raise UStatusError(UCode.INVALID_ARGUMENT, f"source {source}: expected a uEntity (resource 0), no wildcard")
        return method(now_ms, request, source, sink)

    def _subscribe(self, now_ms: int, request: UMessage, source: UUri, sink: UUri) -> tuple[Message, Change]:
        proto = wire.read(request, pb.SubscriptionRequest)
        topic = wire.topic(proto.HasField("topic"), proto.topic, source)
        attributes = wire.subscribe_attributes(proto.attributes)
        self._check_topic(source, topic, "subscribe to")
        state, change = self._registry.subscribe(now_ms, topic, source, sink.authority, attributes)
        return wire.subscription_response(topic, state), change

    def _unsubscribe(self, now_ms: int, request: UMessage, source: UUri, sink: UUri) -> tuple[Message, Change]:
        proto = wire.read(request, pb.UnsubscribeRequest)
        topic = wire.topic(proto.HasField("topic"), proto.topic, source)
        return pb.UnsubscribeResponse(), self._registry.unsubscribe(now_ms, topic, source)

    def _fetch_subscribers(self, now_ms: int, request: UMessage, source: UUri, sink: UUri) -> tuple[Message, Change]:
        proto = wire.read(request, pb.FetchSubscribersRequest)
        topic = wire.topic(proto.HasField("topic"), proto.topic, source)
        self._check_fetch(source)
        found, has_more = self._registry.of_topic(topic, proto.offset, self.page)
        entries = [wire.subscriber_info(entry) for entry in found]
        return pb.FetchSubscribersResponse(subscribers=entries, has_more_records=has_more), Change()

    def _fetch_subscriptions(self, now_ms: int, request: UMessage, source: UUri, sink: UUri) -> tuple[Message, Change]:
        proto = wire.read(request, pb.FetchSubscriptionsRequest)
        found: list[Subscription]
        match proto.WhichOneof("request"):
            case "topic":
                topic = wire.topic(True, proto.topic, source)
                self._check_fetch(source)
                found, has_more = self._registry.of_topic(topic, proto.offset, self.page)
            case "subscriber":
                info = proto.subscriber
                subscriber = wire.subscriber(info.HasField("uri"), info.uri, source)
                if subscriber != source:
                    self._check_fetch(source)
                found, has_more = self._registry.of_subscriber(subscriber, proto.offset, self.page)
            case _:
                self._check_fetch(source)
                found, has_more = self._registry.of_everybody(proto.offset, self.page)
        entries = [wire.subscription(entry) for entry in found]
        return pb.FetchSubscriptionsResponse(subscriptions=entries, has_more_records=has_more), Change()

    def _register(self, now_ms: int, request: UMessage, source: UUri, sink: UUri) -> tuple[Message, Change]:
        proto = wire.read(request, pb.NotificationsRequest)
        topic = wire.topic(proto.HasField("topic"), proto.topic, source)
        self._check_topic(source, topic, "be notified of")
        return pb.NotificationsResponse(), self._registry.register(topic, source, sink.authority)

    def _unregister(self, now_ms: int, request: UMessage, source: UUri, sink: UUri) -> tuple[Message, Change]:
        proto = wire.read(request, pb.NotificationsRequest)
        topic = wire.topic(proto.HasField("topic"), proto.topic, source)
        return pb.NotificationsResponse(), self._registry.unregister(topic, source)

    def _reset(self, now_ms: int, request: UMessage, source: UUri, sink: UUri) -> tuple[Message, Change]:
        if source.ue_id != USUBSCRIPTION.ue_id:
            raise UStatusError(UCode.PERMISSION_DENIED, f"source {source}: only another uSubscription service (ue_id 0) may")
        wire.read(request, pb.ResetRequest)
        if not self.access.may_reset(source):
            raise UStatusError(UCode.PERMISSION_DENIED, f"{source} may not reset subscriptions here (usubscription.reset)")
        if source.authority in self.access.local:
            return pb.ResetResponse(), self._registry.reset(now_ms)
        return pb.ResetResponse(), self._registry.reset_of(now_ms, source.authority)

    def _check_topic(self, source: UUri, topic: UUri, what: str) -> None:
        if not self.access.may_subscribe(source, topic):
            raise UStatusError(
                UCode.PERMISSION_DENIED,
                f"{source} may not {what} {topic}: no route publishes it to {source.authority}, and "
                f"usubscription.subscribe at {self.access.authority} does not permit it",
            )

    def _check_fetch(self, source: UUri) -> None:
        if not self.access.may_fetch(source):
            raise UStatusError(
                UCode.PERMISSION_DENIED, f"{source} may list only its own subscriptions (usubscription.fetch)"
            )
