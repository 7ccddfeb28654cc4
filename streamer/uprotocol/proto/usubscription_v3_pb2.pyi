import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from streamer.uprotocol.proto import uprotocol_v1_pb2 as _uprotocol_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubscribeAttributes(_message.Message):
    __slots__ = ("expire", "details", "sample_period_ms")
    EXPIRE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_PERIOD_MS_FIELD_NUMBER: _ClassVar[int]
    expire: _timestamp_pb2.Timestamp
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    sample_period_ms: int
    def __init__(self, expire: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ..., sample_period_ms: _Optional[int] = ...) -> None: ...

class SubscriberInfo(_message.Message):
    __slots__ = ("uri",)
    URI_FIELD_NUMBER: _ClassVar[int]
    uri: _uprotocol_v1_pb2.UUri
    def __init__(self, uri: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ...) -> None: ...

class SubscriptionStatus(_message.Message):
    __slots__ = ("state", "message")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSUBSCRIBED: _ClassVar[SubscriptionStatus.State]
        SUBSCRIBE_PENDING: _ClassVar[SubscriptionStatus.State]
        SUBSCRIBED: _ClassVar[SubscriptionStatus.State]
        UNSUBSCRIBE_PENDING: _ClassVar[SubscriptionStatus.State]
    UNSUBSCRIBED: SubscriptionStatus.State
    SUBSCRIBE_PENDING: SubscriptionStatus.State
    SUBSCRIBED: SubscriptionStatus.State
    UNSUBSCRIBE_PENDING: SubscriptionStatus.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    state: SubscriptionStatus.State
    message: str
    def __init__(self, state: _Optional[_Union[SubscriptionStatus.State, str]] = ..., message: _Optional[str] = ...) -> None: ...

class EventDeliveryConfig(_message.Message):
    __slots__ = ("id", "type", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _any_pb2.Any
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: str
    attributes: _containers.MessageMap[str, _any_pb2.Any]
    def __init__(self, id: _Optional[str] = ..., type: _Optional[str] = ..., attributes: _Optional[_Mapping[str, _any_pb2.Any]] = ...) -> None: ...

class SubscriptionRequest(_message.Message):
    __slots__ = ("topic", "attributes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    attributes: SubscribeAttributes
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., attributes: _Optional[_Union[SubscribeAttributes, _Mapping]] = ...) -> None: ...

class SubscriptionResponse(_message.Message):
    __slots__ = ("status", "config", "topic")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    status: SubscriptionStatus
    config: EventDeliveryConfig
    topic: _uprotocol_v1_pb2.UUri
    def __init__(self, status: _Optional[_Union[SubscriptionStatus, _Mapping]] = ..., config: _Optional[_Union[EventDeliveryConfig, _Mapping]] = ..., topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ...) -> None: ...

class UnsubscribeRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ...) -> None: ...

class UnsubscribeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FetchSubscribersRequest(_message.Message):
    __slots__ = ("topic", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    offset: int
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class FetchSubscribersResponse(_message.Message):
    __slots__ = ("subscribers", "has_more_records")
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    subscribers: _containers.RepeatedCompositeFieldContainer[SubscriberInfo]
    has_more_records: bool
    def __init__(self, subscribers: _Optional[_Iterable[_Union[SubscriberInfo, _Mapping]]] = ..., has_more_records: _Optional[bool] = ...) -> None: ...

class FetchSubscriptionsRequest(_message.Message):
    __slots__ = ("topic", "subscriber", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    subscriber: SubscriberInfo
    offset: int
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., subscriber: _Optional[_Union[SubscriberInfo, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class FetchSubscriptionsResponse(_message.Message):
    __slots__ = ("subscriptions", "has_more_records")
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    has_more_records: bool
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., has_more_records: _Optional[bool] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("topic", "subscriber", "status", "attributes", "config")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    subscriber: SubscriberInfo
    status: SubscriptionStatus
    attributes: SubscribeAttributes
    config: EventDeliveryConfig
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., subscriber: _Optional[_Union[SubscriberInfo, _Mapping]] = ..., status: _Optional[_Union[SubscriptionStatus, _Mapping]] = ..., attributes: _Optional[_Union[SubscribeAttributes, _Mapping]] = ..., config: _Optional[_Union[EventDeliveryConfig, _Mapping]] = ...) -> None: ...

class NotificationsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ...) -> None: ...

class NotificationsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Update(_message.Message):
    __slots__ = ("topic", "subscriber", "status", "attributes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    subscriber: SubscriberInfo
    status: SubscriptionStatus
    attributes: SubscribeAttributes
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., subscriber: _Optional[_Union[SubscriberInfo, _Mapping]] = ..., status: _Optional[_Union[SubscriptionStatus, _Mapping]] = ..., attributes: _Optional[_Union[SubscribeAttributes, _Mapping]] = ...) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ("reason",)
    class Reason(_message.Message):
        __slots__ = ("code", "message")
        class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            UNSPECIFIED: _ClassVar[ResetRequest.Reason.Code]
            FACTORY_RESET: _ClassVar[ResetRequest.Reason.Code]
            CORRUPTED_DATA: _ClassVar[ResetRequest.Reason.Code]
        UNSPECIFIED: ResetRequest.Reason.Code
        FACTORY_RESET: ResetRequest.Reason.Code
        CORRUPTED_DATA: ResetRequest.Reason.Code
        CODE_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        code: ResetRequest.Reason.Code
        message: str
        def __init__(self, code: _Optional[_Union[ResetRequest.Reason.Code, str]] = ..., message: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: ResetRequest.Reason
    def __init__(self, reason: _Optional[_Union[ResetRequest.Reason, _Mapping]] = ...) -> None: ...

class ResetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
