"""Version 3 on the wire: converts between its messages and the service's records. Pure.

An Update reports a change of state. A change of expiry or sample period alone is not reported.
"""

from streamer.features.usubscription import wire
from streamer.features.usubscription.entries import (
    Cause,
    Command,
    CommandResponse,
    ReceivedUpdate,
    SubscribeAttributes,
    Subscription,
    SubscriptionState,
    Update,
)
from streamer.features.usubscription.followed import Page, Query, Relation
from streamer.features.usubscription.requests import (
    Fetch,
    Listed,
    Register,
    Reset,
    Subscribe,
    Subscribed,
    Unregister,
    Unsubscribe,
    VersionMethod,
)
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import ANY_AUTHORITY, UUri, everything_at
from streamer.uprotocol.uuid import created_ms
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION

ENTITY = USUBSCRIPTION
SUBSCRIBE, UNSUBSCRIBE, FETCH_SUBSCRIPTIONS, REGISTER, UNREGISTER, FETCH_SUBSCRIBERS, RESET = 1, 2, 3, 6, 7, 8, 9

MAX_DETAILS_BYTES = 2048

REGISTERS_BY_TOPIC = True

_STATES = frozenset(SubscriptionState)
_COUNTS = (pb.SubscriptionStatus.SUBSCRIBED, pb.SubscriptionStatus.SUBSCRIBE_PENDING)


def topic(is_set: bool, uri: v1.UUri, requester: UUri) -> UUri:
    """Return the topic in a request; an empty authority becomes the requester's. Raises `UStatusError`."""
    if not is_set:
        raise wire.invalid("topic: expected one, found none")
    return wire.check_topic(wire.exact("topic", uri, requester))


def subscriber(is_set: bool, uri: v1.UUri, requester: UUri) -> UUri:
    """Return the subscriber in a request; an empty authority becomes the requester's. Raises `UStatusError`."""
    if not is_set:
        raise wire.invalid("subscriber: expected one, found none")
    found = wire.exact("subscriber", uri, requester)
    if not found.is_entity:
        raise wire.invalid(f"subscriber {found}: expected a uEntity (resource 0)")
    return found


def subscribe_attributes(attributes: pb.SubscribeAttributes) -> SubscribeAttributes:
    """Return the attributes in a request. Times are rounded up to milliseconds. Raises `UStatusError`."""
    expire_ms = wire.time_ms("attributes.expire", attributes.expire) if attributes.HasField("expire") else None
    details = pb.SubscribeAttributes(details=attributes.details).SerializeToString(deterministic=True)
    if len(details) > MAX_DETAILS_BYTES:
        raise wire.invalid(f"attributes.details: expected at most {MAX_DETAILS_BYTES} bytes, found {len(details)}")
    sample_period_ms = attributes.sample_period_ms if attributes.HasField("sample_period_ms") else None
    return SubscribeAttributes(expire_ms, sample_period_ms, details)


# Requests and responses


def _subscribe(request: UMessage, source: UUri) -> Subscribe:
    proto = wire.read(request, pb.SubscriptionRequest)
    name = topic(proto.HasField("topic"), proto.topic, source)
    return Subscribe(name, subscribe_attributes(proto.attributes))


def subscription_response(result: Subscribed) -> pb.SubscriptionResponse:
    """Return the payload of the response to Subscribe."""
    return pb.SubscriptionResponse(status=_status(result.state, ""), topic=uri_to_proto(result.topic))


def _unsubscribe(request: UMessage, source: UUri) -> Unsubscribe:
    proto = wire.read(request, pb.UnsubscribeRequest)
    return Unsubscribe(topic(proto.HasField("topic"), proto.topic, source))


def _fetch_subscriptions(request: UMessage, source: UUri) -> Fetch:
    proto = wire.read(request, pb.FetchSubscriptionsRequest)
    offset = proto.offset if proto.HasField("offset") else None
    match proto.WhichOneof("request"):
        case "topic":
            return Fetch(topic(True, proto.topic, source), None, offset)
        case "subscriber":
            info = proto.subscriber
            return Fetch(None, subscriber(info.HasField("uri"), info.uri, source), offset)
        case _:
            return Fetch(None, None, offset)


def subscription(entry: Subscription) -> pb.Subscription:
    """Return an entry of the response to FetchSubscriptions."""
    return pb.Subscription(
        topic=uri_to_proto(entry.topic),
        subscriber=_info(entry),
        status=_status(entry.state, ""),
        attributes=_attributes(entry.attributes),
    )


def _subscriptions(result: Listed) -> pb.FetchSubscriptionsResponse:
    return pb.FetchSubscriptionsResponse(subscriptions=result.entries, has_more_records=result.has_more)  # type: ignore[arg-type]  # made by `entry`


def _fetch_subscribers(request: UMessage, source: UUri) -> Fetch:
    proto = wire.read(request, pb.FetchSubscribersRequest)
    name = topic(proto.HasField("topic"), proto.topic, source)
    return Fetch(name, None, proto.offset if proto.HasField("offset") else None)


def _info(entry: Subscription) -> pb.SubscriberInfo:
    return pb.SubscriberInfo(uri=uri_to_proto(entry.subscriber))


def _subscribers(result: Listed) -> pb.FetchSubscribersResponse:
    return pb.FetchSubscribersResponse(subscribers=result.entries, has_more_records=result.has_more)  # type: ignore[arg-type]  # made by `entry`


def _notified(request: UMessage, source: UUri) -> UUri:
    proto = wire.read(request, pb.NotificationsRequest)
    return topic(proto.HasField("topic"), proto.topic, source)


def _register(request: UMessage, source: UUri) -> Register:
    return Register(_notified(request, source))


def _unregister(request: UMessage, source: UUri) -> Unregister:
    return Unregister(_notified(request, source))


def _reset(request: UMessage, source: UUri) -> Reset:
    wire.read(request, pb.ResetRequest)
    wire.check_service(source, source.ue_id)
    return Reset()


METHODS = {
    SUBSCRIBE: VersionMethod(_subscribe, subscription_response),
    UNSUBSCRIBE: VersionMethod(_unsubscribe, lambda _: pb.UnsubscribeResponse()),
    FETCH_SUBSCRIPTIONS: VersionMethod(_fetch_subscriptions, _subscriptions, subscription),
    REGISTER: VersionMethod(_register, lambda _: pb.NotificationsResponse()),
    UNREGISTER: VersionMethod(_unregister, lambda _: pb.NotificationsResponse()),
    FETCH_SUBSCRIBERS: VersionMethod(_fetch_subscribers, _subscribers, _info),
    RESET: VersionMethod(_reset, lambda _: pb.ResetResponse()),
}

# Changes


def reports(update: Update) -> bool:
    """Whether this version notifies of this change."""
    return update.sink is not None and update.cause is not Cause.TERMS


def update_message(now_ms: int, update: Update) -> UMessage:
    """Return the Notification of a change (004 §7)."""
    proto = pb.Update(
        topic=uri_to_proto(update.topic),
        subscriber=pb.SubscriberInfo(uri=uri_to_proto(update.subscriber)),
        status=_status(update.state, update.message),
        attributes=_attributes(update.attributes),
    )
    return wire.change_message(now_ms, ENTITY, update, proto)


# Other devices' services


def command_message(authority: str, command: Command) -> UMessage:
    """Return the Request to the service at the topic's authority, with ourselves as the subscriber (004 §4.1, §4.2)."""
    name = uri_to_proto(command.topic)
    if not command.subscribe:
        return wire.command_request(authority, ENTITY, UNSUBSCRIBE, command, pb.UnsubscribeRequest(topic=name))
    proto = pb.SubscriptionRequest(topic=name)
    if command.period_ms:
        proto.attributes.sample_period_ms = command.period_ms
    return wire.command_request(authority, ENTITY, SUBSCRIBE, command, proto)


def command_response(message: UMessage) -> CommandResponse:
    """Parse the Response to one of our commands. An OK to Subscribe that cannot be parsed does not count."""
    if message.attributes.commstatus in (None, UCode.OK) and message.attributes.source.resource == SUBSCRIBE:
        try:
            proto = wire.read(message, pb.SubscriptionResponse)
            if proto.HasField("status"):
                return wire.command_response(message, SubscriptionState(proto.status.state), proto.status.message)
        except (UStatusError, ValueError):
            pass
    return wire.command_response(message)


def received_update(message: UMessage, ourselves: UUri) -> ReceivedUpdate | None:
    """Parse another service's Update. None: it is about another subscriber, or a topic of another authority."""
    try:
        proto = wire.read(message, pb.Update)
        state = SubscriptionState(proto.status.state)
    except (UStatusError, ValueError):
        return None
    name = wire.named_there(proto.topic, message)
    is_from_its_service = message.attributes.source == ENTITY.at(name.authority, CHANGES)
    if not is_from_its_service or uri_from_proto(proto.subscriber.uri) != ourselves or not proto.HasField("status"):
        return None
    return ReceivedUpdate(name, state, wire.passed_on(proto.status.message), created_ms(message.id))


# A service that is followed


def query_request(query: Query) -> pb.FetchSubscriptionsRequest:
    """Return the Request for the next page of a query. A query for everybody has a wildcard, unless it is bare."""
    proto = pb.FetchSubscriptionsRequest()
    if query.topic is not None:
        proto.topic.CopyFrom(uri_to_proto(query.topic))
    elif not query.is_bare:
        proto.subscriber.uri.CopyFrom(uri_to_proto(query.subscriber or everything_at(ANY_AUTHORITY)))
    if query.offset:
        proto.offset = query.offset
    return proto


def page(message: UMessage) -> Page:
    """Parse the Response to `query_request`. Raises `UStatusError`."""
    proto = wire.read(message, pb.FetchSubscriptionsResponse, max_bytes=None)
    found: dict[Relation, int] = {}
    for entry in proto.subscriptions:
        if entry.status.state in _COUNTS:
            relation = wire.named_there(entry.topic, message), wire.named_there(entry.subscriber.uri, message)
            found[relation] = entry.attributes.sample_period_ms
    return Page(found, len(proto.subscriptions), proto.has_more_records)


def registration(name: UUri | None) -> pb.NotificationsRequest:
    """Return the payload of the Request that registers, or unregisters, for the notifications about a topic."""
    assert name is not None
    return pb.NotificationsRequest(topic=uri_to_proto(name))


def followed_change(message: UMessage) -> tuple[Relation, int | None]:
    """Parse an Update: a subscription and its period (ms); None: the subscription has ended. Raises `UStatusError`."""
    update = wire.read(message, pb.Update)
    if not update.HasField("status") or int(update.status.state) not in _STATES:
        raise wire.invalid("status: expected a state")
    relation = wire.named_there(update.topic, message), wire.named_there(update.subscriber.uri, message)
    return relation, update.attributes.sample_period_ms if update.status.state in _COUNTS else None


def _status(state: SubscriptionState, text: str) -> pb.SubscriptionStatus:
    # The generated stubs want the generated enum type; any int of the enum is what the runtime takes.
    return pb.SubscriptionStatus(state=int(state), message=text)  # type: ignore[arg-type]


def _attributes(attributes: SubscribeAttributes) -> pb.SubscribeAttributes | None:
    if attributes == SubscribeAttributes():
        return None
    proto = pb.SubscribeAttributes.FromString(attributes.details)
    if attributes.expire_ms is not None:
        proto.expire.CopyFrom(wire.timestamp(attributes.expire_ms))
    if attributes.sample_period_ms is not None:
        proto.sample_period_ms = attributes.sample_period_ms
    return proto
