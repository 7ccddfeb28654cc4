import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from streamer.uprotocol.proto import uprotocol_v1_pb2 as _uprotocol_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubscriptionStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_UNSPECIFIED: _ClassVar[SubscriptionStatus]
    STATUS_UNSUBSCRIBED: _ClassVar[SubscriptionStatus]
    STATUS_SUBSCRIBE_PENDING: _ClassVar[SubscriptionStatus]
    STATUS_SUBSCRIBED: _ClassVar[SubscriptionStatus]
    STATUS_UNSUBSCRIBE_PENDING: _ClassVar[SubscriptionStatus]
STATUS_UNSPECIFIED: SubscriptionStatus
STATUS_UNSUBSCRIBED: SubscriptionStatus
STATUS_SUBSCRIBE_PENDING: SubscriptionStatus
STATUS_SUBSCRIBED: SubscriptionStatus
STATUS_UNSUBSCRIBE_PENDING: SubscriptionStatus

class Subscription(_message.Message):
    __slots__ = ("topic", "subscriber", "status", "expiration", "sample_period")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    subscriber: _uprotocol_v1_pb2.UUri
    status: SubscriptionStatus
    expiration: _timestamp_pb2.Timestamp
    sample_period: int
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., subscriber: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., status: _Optional[_Union[SubscriptionStatus, str]] = ..., expiration: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sample_period: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("topic", "expiration", "sample_period")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    expiration: _timestamp_pb2.Timestamp
    sample_period: int
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., expiration: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sample_period: _Optional[int] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("topic", "status")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    status: SubscriptionStatus
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., status: _Optional[_Union[SubscriptionStatus, str]] = ...) -> None: ...

class UnsubscribeRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ...) -> None: ...

class UnsubscribeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FetchSubscriptionsRequest(_message.Message):
    __slots__ = ("topic_filter", "subscriber_filter")
    TOPIC_FILTER_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FILTER_FIELD_NUMBER: _ClassVar[int]
    topic_filter: _uprotocol_v1_pb2.UUri
    subscriber_filter: _uprotocol_v1_pb2.UUri
    def __init__(self, topic_filter: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., subscriber_filter: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ...) -> None: ...

class FetchSubscriptionsResponse(_message.Message):
    __slots__ = ("subscriptions",)
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ...) -> None: ...

class NotificationsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NotificationsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
