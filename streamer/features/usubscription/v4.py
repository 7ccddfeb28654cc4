"""Version 4 on the wire: converts between its messages and the service's records. Pure.

Every change is published. A subscriber is notified of every change except those by its own Unsubscribe.
"""

from google.protobuf.message import Message

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
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import created_ms
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION_4

ENTITY = USUBSCRIPTION_4
SUBSCRIBE, UNSUBSCRIBE, FETCH_SUBSCRIPTIONS, REGISTER, UNREGISTER, RESET = 1, 2, 3, 4, 5, 6

REGISTERS_BY_TOPIC = False

_FIRST_STATUS = pb.STATUS_UNSUBSCRIBED
_STATES = frozenset(SubscriptionState)
_COUNTS = (pb.STATUS_SUBSCRIBED, pb.STATUS_SUBSCRIBE_PENDING)


# Requests and responses


def _topic(is_set: bool, uri: v1.UUri) -> UUri:
    """Return the topic in a request. An empty authority does not become the requester's. Raises `UStatusError`."""
    if not is_set:
        raise wire.invalid("topic: expected one, found none")
    return wire.check_topic(wire.named("topic", uri, uri_from_proto(uri)))


def _subscribe(request: UMessage, source: UUri) -> Subscribe:
    proto = wire.read(request, pb.SubscribeRequest)
    topic = _topic(proto.HasField("topic"), proto.topic)
    expire_ms = wire.time_ms("expiration", proto.expiration) if proto.HasField("expiration") else None
    return Subscribe(topic, SubscribeAttributes(expire_ms, proto.sample_period if proto.HasField("sample_period") else None))


def _subscribed(result: Subscribed) -> pb.SubscribeResponse:
    return pb.SubscribeResponse(topic=uri_to_proto(result.topic), status=_status(result.state))  # type: ignore[arg-type]  # any int


def _unsubscribe(request: UMessage, source: UUri) -> Unsubscribe:
    proto = wire.read(request, pb.UnsubscribeRequest)
    return Unsubscribe(_topic(proto.HasField("topic"), proto.topic))


def _fetch(request: UMessage, source: UUri) -> Fetch:
    """Parse a request for a list. In a filter, an empty authority becomes the requester's."""
    proto = wire.read(request, pb.FetchSubscriptionsRequest)
    topic = subscriber = None
    if proto.HasField("topic_filter"):
        topic = wire.named("topic_filter", proto.topic_filter, source)
    if proto.HasField("subscriber_filter"):
        subscriber = wire.named("subscriber_filter", proto.subscriber_filter, source)
    return Fetch(topic, subscriber)


def _entry(entry: Subscription) -> pb.Subscription:
    return _subscription(entry.topic, entry.subscriber, entry.state, entry.attributes)


def _listed(result: Listed) -> pb.FetchSubscriptionsResponse:
    """Return the response. It cannot say that entries are missing, so a list that is too large raises `UStatusError`."""
    if result.has_more:
        text = "the list is larger than a message may be (usubscription.max_answer_bytes): narrow the filters"
        raise UStatusError(UCode.RESOURCE_EXHAUSTED, text)
    return pb.FetchSubscriptionsResponse(subscriptions=result.entries)  # type: ignore[arg-type]  # made by `entry`


def _register(request: UMessage, source: UUri) -> Register:
    wire.read(request, pb.NotificationsRequest)
    return Register()


def _unregister(request: UMessage, source: UUri) -> Unregister:
    wire.read(request, pb.NotificationsRequest)
    return Unregister()


def _reset(request: UMessage, source: UUri) -> Reset:
    """Parse a Reset. Any instance of the service may send one."""
    wire.read(request, pb.ResetRequest)
    wire.check_service(source, source.type_id)
    return Reset()


METHODS = {
    SUBSCRIBE: VersionMethod(_subscribe, _subscribed),
    UNSUBSCRIBE: VersionMethod(_unsubscribe, lambda _: pb.UnsubscribeResponse()),
    FETCH_SUBSCRIPTIONS: VersionMethod(_fetch, _listed, _entry),
    REGISTER: VersionMethod(_register, lambda _: pb.NotificationsResponse()),
    UNREGISTER: VersionMethod(_unregister, lambda _: pb.NotificationsResponse()),
    RESET: VersionMethod(_reset, lambda _: pb.ResetResponse()),
}

# Changes


def reports(update: Update) -> bool:
    """Whether this version notifies of this change."""
    return update.is_observed or update.cause is not Cause.LEFT


def update_message(now_ms: int, update: Update) -> UMessage:
    """Return the Notification of a change, or its Publish."""
    proto = _subscription(update.topic, update.subscriber, update.state, update.attributes)
    return wire.change_message(now_ms, ENTITY, update, proto)


# Other devices' services


def command_message(authority: str, command: Command) -> UMessage:
    """Return the Request to the service at the topic's authority, with ourselves as the subscriber."""
    name = uri_to_proto(command.topic)
    proto: Message
    if command.subscribe:
        proto = pb.SubscribeRequest(topic=name, sample_period=command.period_ms or None)
    else:
        proto = pb.UnsubscribeRequest(topic=name)
    method = SUBSCRIBE if command.subscribe else UNSUBSCRIBE
    return wire.command_request(authority, ENTITY, method, command, proto)


def command_response(message: UMessage) -> CommandResponse:
    """Parse the Response to one of our commands. An OK to Subscribe that cannot be parsed does not count."""
    if message.attributes.commstatus in (None, UCode.OK) and message.attributes.source.resource == SUBSCRIBE:
        try:
            return wire.command_response(message, _state(wire.read(message, pb.SubscribeResponse).status))
        except (UStatusError, ValueError):
            pass
    return wire.command_response(message)


def received_update(message: UMessage, ourselves: UUri) -> ReceivedUpdate | None:
    """Parse another service's notification. None: it is about another subscriber, or a topic of another authority."""
    try:
        proto = wire.read(message, pb.Subscription)
        state = _state(proto.status)
    except (UStatusError, ValueError):
        return None
    name = wire.named_there(proto.topic, message)
    is_from_its_service = message.attributes.source == ENTITY.at(name.authority, CHANGES)
    if not is_from_its_service or uri_from_proto(proto.subscriber) != ourselves:
        return None
    return ReceivedUpdate(name, state, "", created_ms(message.id))


# A service that is followed


def query_request(query: Query) -> pb.FetchSubscriptionsRequest:
    """Return the Request for a whole query: version 4 has no pages."""
    return pb.FetchSubscriptionsRequest(
        topic_filter=None if query.topic is None else uri_to_proto(query.topic),
        subscriber_filter=None if query.subscriber is None else uri_to_proto(query.subscriber),
    )


def page(message: UMessage) -> Page:
    """Parse the Response to `query_request`. Raises `UStatusError`."""
    proto = wire.read(message, pb.FetchSubscriptionsResponse, max_bytes=None)
    found: dict[Relation, int] = {}
    for entry in proto.subscriptions:
        if entry.status in _COUNTS:
            relation = wire.named_there(entry.topic, message), wire.named_there(entry.subscriber, message)
            found[relation] = entry.sample_period
    return Page(found, len(proto.subscriptions), False)


def registration(name: UUri | None) -> pb.NotificationsRequest:
    """Return the payload of the Request that registers, or unregisters, for all notifications."""
    return pb.NotificationsRequest()


def followed_change(message: UMessage) -> tuple[Relation, int | None]:
    """Parse a notification: a subscription and its period (ms); None: the subscription has ended. Raises `UStatusError`."""
    proto = wire.read(message, pb.Subscription)
    if proto.status - _FIRST_STATUS not in _STATES:
        raise wire.invalid("status: expected a state")
    relation = wire.named_there(proto.topic, message), wire.named_there(proto.subscriber, message)
    return relation, proto.sample_period if proto.status in _COUNTS else None


def _subscription(
    topic: UUri, subscriber: UUri, state: SubscriptionState, attributes: SubscribeAttributes
) -> pb.Subscription:
    expire_ms = attributes.expire_ms
    return pb.Subscription(
        topic=uri_to_proto(topic),
        subscriber=uri_to_proto(subscriber),
        status=_status(state),  # type: ignore[arg-type]  # the stubs want the generated type; any int is what the runtime takes
        expiration=None if expire_ms is None else wire.timestamp(expire_ms),
        sample_period=attributes.sample_period_ms,
    )


def _status(state: SubscriptionState) -> int:
    return int(state) + _FIRST_STATUS


def _state(status: int) -> SubscriptionState:
    """Return the state. Raises ValueError for one that is unspecified or unknown."""
    return SubscriptionState(status - _FIRST_STATUS)
