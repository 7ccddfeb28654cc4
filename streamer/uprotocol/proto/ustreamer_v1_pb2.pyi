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

class Link(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_UNSPECIFIED: _ClassVar[Link]
    LINK_ONLINE: _ClassVar[Link]
    LINK_OFFLINE: _ClassVar[Link]
LINK_UNSPECIFIED: Link
LINK_ONLINE: Link
LINK_OFFLINE: Link

class DeadLetter(_message.Message):
    __slots__ = ("message", "status", "route", "endpoint", "attempts", "first_time", "last_time", "streamer", "payload_bytes")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    STREAMER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    message: _uprotocol_v1_pb2.UMessage
    status: _uprotocol_v1_pb2.UStatus
    route: str
    endpoint: str
    attempts: int
    first_time: _timestamp_pb2.Timestamp
    last_time: _timestamp_pb2.Timestamp
    streamer: str
    payload_bytes: int
    def __init__(self, message: _Optional[_Union[_uprotocol_v1_pb2.UMessage, _Mapping]] = ..., status: _Optional[_Union[_uprotocol_v1_pb2.UStatus, _Mapping]] = ..., route: _Optional[str] = ..., endpoint: _Optional[str] = ..., attempts: _Optional[int] = ..., first_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., streamer: _Optional[str] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("ready", "reasons", "version", "started", "uptime_s", "interval_ms", "queued", "routes", "routes_left_out", "endpoints", "dead_letters", "journal", "config_fingerprint", "link", "connected", "pair", "notes")
    READY_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    ROUTES_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    PAIR_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    version: str
    started: _timestamp_pb2.Timestamp
    uptime_s: int
    interval_ms: int
    queued: int
    routes: _containers.RepeatedCompositeFieldContainer[RouteStatus]
    routes_left_out: int
    endpoints: _containers.RepeatedCompositeFieldContainer[EndpointStatus]
    dead_letters: int
    journal: JournalStatus
    config_fingerprint: str
    link: Link
    connected: _timestamp_pb2.Timestamp
    pair: PairStatus
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ready: _Optional[bool] = ..., reasons: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., started: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., uptime_s: _Optional[int] = ..., interval_ms: _Optional[int] = ..., queued: _Optional[int] = ..., routes: _Optional[_Iterable[_Union[RouteStatus, _Mapping]]] = ..., routes_left_out: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[EndpointStatus, _Mapping]]] = ..., dead_letters: _Optional[int] = ..., journal: _Optional[_Union[JournalStatus, _Mapping]] = ..., config_fingerprint: _Optional[str] = ..., link: _Optional[_Union[Link, str]] = ..., connected: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., pair: _Optional[_Union[PairStatus, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class RouteStatus(_message.Message):
    __slots__ = ("name", "queued", "bytes", "oldest_age_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    queued: int
    bytes: int
    oldest_age_ms: int
    def __init__(self, name: _Optional[str] = ..., queued: _Optional[int] = ..., bytes: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ...) -> None: ...

class EndpointStatus(_message.Message):
    __slots__ = ("name", "transport", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    transport: str
    state: str
    def __init__(self, name: _Optional[str] = ..., transport: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class PairStatus(_message.Message):
    __slots__ = ("epoch", "protected", "problem")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    protected: bool
    problem: str
    def __init__(self, epoch: _Optional[int] = ..., protected: _Optional[bool] = ..., problem: _Optional[str] = ...) -> None: ...

class JournalStatus(_message.Message):
    __slots__ = ("state", "problem", "bytes", "max_bytes")
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    state: str
    problem: str
    bytes: int
    max_bytes: int
    def __init__(self, state: _Optional[str] = ..., problem: _Optional[str] = ..., bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class DispatchRule(_message.Message):
    __slots__ = ("topic", "sink")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    sink: _uprotocol_v1_pb2.UUri
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., sink: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ...) -> None: ...

class StopDispatchRequest(_message.Message):
    __slots__ = ("rule",)
    RULE_FIELD_NUMBER: _ClassVar[int]
    rule: DispatchRule
    def __init__(self, rule: _Optional[_Union[DispatchRule, _Mapping]] = ...) -> None: ...

class StopDispatchResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: _Optional[bool] = ...) -> None: ...

class StartDispatchRequest(_message.Message):
    __slots__ = ("rule",)
    RULE_FIELD_NUMBER: _ClassVar[int]
    rule: DispatchRule
    def __init__(self, rule: _Optional[_Union[DispatchRule, _Mapping]] = ...) -> None: ...

class StartDispatchResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FetchStopsRequest(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class FetchStopsResponse(_message.Message):
    __slots__ = ("stops", "has_more_records")
    STOPS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    stops: _containers.RepeatedCompositeFieldContainer[DispatchStop]
    has_more_records: bool
    def __init__(self, stops: _Optional[_Iterable[_Union[DispatchStop, _Mapping]]] = ..., has_more_records: _Optional[bool] = ...) -> None: ...

class DispatchStop(_message.Message):
    __slots__ = ("rule", "lanes", "messages")
    RULE_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    rule: DispatchRule
    lanes: int
    messages: int
    def __init__(self, rule: _Optional[_Union[DispatchRule, _Mapping]] = ..., lanes: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...

class PingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RegisterMulticastReceiverRequest(_message.Message):
    __slots__ = ("multicast_id", "offset")
    MULTICAST_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    multicast_id: str
    offset: int
    def __init__(self, multicast_id: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class RegisterMulticastReceiverResponse(_message.Message):
    __slots__ = ("topics", "has_more_records")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_RECORDS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[MulticastTopic]
    has_more_records: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[MulticastTopic, _Mapping]]] = ..., has_more_records: _Optional[bool] = ...) -> None: ...

class MulticastTopic(_message.Message):
    __slots__ = ("multicast_id", "topic", "mqtt_in_vehicle", "mqtt_off_vehicle", "zenoh")
    MULTICAST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MQTT_IN_VEHICLE_FIELD_NUMBER: _ClassVar[int]
    MQTT_OFF_VEHICLE_FIELD_NUMBER: _ClassVar[int]
    ZENOH_FIELD_NUMBER: _ClassVar[int]
    multicast_id: str
    topic: _uprotocol_v1_pb2.UUri
    mqtt_in_vehicle: str
    mqtt_off_vehicle: str
    zenoh: str
    def __init__(self, multicast_id: _Optional[str] = ..., topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., mqtt_in_vehicle: _Optional[str] = ..., mqtt_off_vehicle: _Optional[str] = ..., zenoh: _Optional[str] = ...) -> None: ...

class UnregisterMulticastReceiverRequest(_message.Message):
    __slots__ = ("multicast_id",)
    MULTICAST_ID_FIELD_NUMBER: _ClassVar[int]
    multicast_id: str
    def __init__(self, multicast_id: _Optional[str] = ...) -> None: ...

class UnregisterMulticastReceiverResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResolveMulticastRequest(_message.Message):
    __slots__ = ("multicast_id",)
    MULTICAST_ID_FIELD_NUMBER: _ClassVar[int]
    multicast_id: str
    def __init__(self, multicast_id: _Optional[str] = ...) -> None: ...

class ResolveMulticastResponse(_message.Message):
    __slots__ = ("topic", "mqtt_in_vehicle", "zenoh")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MQTT_IN_VEHICLE_FIELD_NUMBER: _ClassVar[int]
    ZENOH_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    mqtt_in_vehicle: str
    zenoh: str
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., mqtt_in_vehicle: _Optional[str] = ..., zenoh: _Optional[str] = ...) -> None: ...

class AuditRows(_message.Message):
    __slots__ = ("run", "number", "authorities", "classes")
    RUN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AUTHORITIES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    run: int
    number: int
    authorities: _containers.RepeatedScalarFieldContainer[str]
    classes: _containers.RepeatedCompositeFieldContainer[AuditClass]
    def __init__(self, run: _Optional[int] = ..., number: _Optional[int] = ..., authorities: _Optional[_Iterable[str]] = ..., classes: _Optional[_Iterable[_Union[AuditClass, _Mapping]]] = ...) -> None: ...

class AuditClass(_message.Message):
    __slots__ = ("source", "sink", "ue_id", "ue_version_major", "resource_id", "minutes")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    UE_ID_FIELD_NUMBER: _ClassVar[int]
    UE_VERSION_MAJOR_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    source: int
    sink: int
    ue_id: int
    ue_version_major: int
    resource_id: int
    minutes: _containers.RepeatedCompositeFieldContainer[AuditMinute]
    def __init__(self, source: _Optional[int] = ..., sink: _Optional[int] = ..., ue_id: _Optional[int] = ..., ue_version_major: _Optional[int] = ..., resource_id: _Optional[int] = ..., minutes: _Optional[_Iterable[_Union[AuditMinute, _Mapping]]] = ...) -> None: ...

class AuditMinute(_message.Message):
    __slots__ = ("minute", "sums")
    MINUTE_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    minute: int
    sums: _containers.RepeatedCompositeFieldContainer[AuditSum]
    def __init__(self, minute: _Optional[int] = ..., sums: _Optional[_Iterable[_Union[AuditSum, _Mapping]]] = ...) -> None: ...

class AuditSum(_message.Message):
    __slots__ = ("what", "messages", "ids")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    what: _containers.RepeatedScalarFieldContainer[int]
    messages: int
    ids: bytes
    def __init__(self, what: _Optional[_Iterable[int]] = ..., messages: _Optional[int] = ..., ids: _Optional[bytes] = ...) -> None: ...
