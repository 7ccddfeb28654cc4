from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[UCode]
    CANCELLED: _ClassVar[UCode]
    UNKNOWN: _ClassVar[UCode]
    INVALID_ARGUMENT: _ClassVar[UCode]
    DEADLINE_EXCEEDED: _ClassVar[UCode]
    NOT_FOUND: _ClassVar[UCode]
    ALREADY_EXISTS: _ClassVar[UCode]
    PERMISSION_DENIED: _ClassVar[UCode]
    RESOURCE_EXHAUSTED: _ClassVar[UCode]
    FAILED_PRECONDITION: _ClassVar[UCode]
    ABORTED: _ClassVar[UCode]
    OUT_OF_RANGE: _ClassVar[UCode]
    UNIMPLEMENTED: _ClassVar[UCode]
    INTERNAL: _ClassVar[UCode]
    UNAVAILABLE: _ClassVar[UCode]
    DATA_LOSS: _ClassVar[UCode]
    UNAUTHENTICATED: _ClassVar[UCode]

class UMessageType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UMESSAGE_TYPE_UNSPECIFIED: _ClassVar[UMessageType]
    UMESSAGE_TYPE_PUBLISH: _ClassVar[UMessageType]
    UMESSAGE_TYPE_REQUEST: _ClassVar[UMessageType]
    UMESSAGE_TYPE_RESPONSE: _ClassVar[UMessageType]
    UMESSAGE_TYPE_NOTIFICATION: _ClassVar[UMessageType]

class UPriority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UPRIORITY_UNSPECIFIED: _ClassVar[UPriority]
    UPRIORITY_CS0: _ClassVar[UPriority]
    UPRIORITY_CS1: _ClassVar[UPriority]
    UPRIORITY_CS2: _ClassVar[UPriority]
    UPRIORITY_CS3: _ClassVar[UPriority]
    UPRIORITY_CS4: _ClassVar[UPriority]
    UPRIORITY_CS5: _ClassVar[UPriority]
    UPRIORITY_CS6: _ClassVar[UPriority]

class UPayloadFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UPAYLOAD_FORMAT_UNSPECIFIED: _ClassVar[UPayloadFormat]
    UPAYLOAD_FORMAT_PROTOBUF_WRAPPED_IN_ANY: _ClassVar[UPayloadFormat]
    UPAYLOAD_FORMAT_PROTOBUF: _ClassVar[UPayloadFormat]
    UPAYLOAD_FORMAT_JSON: _ClassVar[UPayloadFormat]
    UPAYLOAD_FORMAT_SOMEIP: _ClassVar[UPayloadFormat]
    UPAYLOAD_FORMAT_SOMEIP_TLV: _ClassVar[UPayloadFormat]
    UPAYLOAD_FORMAT_RAW: _ClassVar[UPayloadFormat]
    UPAYLOAD_FORMAT_TEXT: _ClassVar[UPayloadFormat]
    UPAYLOAD_FORMAT_SHM: _ClassVar[UPayloadFormat]
OK: UCode
CANCELLED: UCode
UNKNOWN: UCode
INVALID_ARGUMENT: UCode
DEADLINE_EXCEEDED: UCode
NOT_FOUND: UCode
ALREADY_EXISTS: UCode
PERMISSION_DENIED: UCode
RESOURCE_EXHAUSTED: UCode
FAILED_PRECONDITION: UCode
ABORTED: UCode
OUT_OF_RANGE: UCode
UNIMPLEMENTED: UCode
INTERNAL: UCode
UNAVAILABLE: UCode
DATA_LOSS: UCode
UNAUTHENTICATED: UCode
UMESSAGE_TYPE_UNSPECIFIED: UMessageType
UMESSAGE_TYPE_PUBLISH: UMessageType
UMESSAGE_TYPE_REQUEST: UMessageType
UMESSAGE_TYPE_RESPONSE: UMessageType
UMESSAGE_TYPE_NOTIFICATION: UMessageType
UPRIORITY_UNSPECIFIED: UPriority
UPRIORITY_CS0: UPriority
UPRIORITY_CS1: UPriority
UPRIORITY_CS2: UPriority
UPRIORITY_CS3: UPriority
UPRIORITY_CS4: UPriority
UPRIORITY_CS5: UPriority
UPRIORITY_CS6: UPriority
UPAYLOAD_FORMAT_UNSPECIFIED: UPayloadFormat
UPAYLOAD_FORMAT_PROTOBUF_WRAPPED_IN_ANY: UPayloadFormat
UPAYLOAD_FORMAT_PROTOBUF: UPayloadFormat
UPAYLOAD_FORMAT_JSON: UPayloadFormat
UPAYLOAD_FORMAT_SOMEIP: UPayloadFormat
UPAYLOAD_FORMAT_SOMEIP_TLV: UPayloadFormat
UPAYLOAD_FORMAT_RAW: UPayloadFormat
UPAYLOAD_FORMAT_TEXT: UPayloadFormat
UPAYLOAD_FORMAT_SHM: UPayloadFormat

class UUri(_message.Message):
    __slots__ = ("authority_name", "ue_id", "ue_version_major", "resource_id")
    AUTHORITY_NAME_FIELD_NUMBER: _ClassVar[int]
    UE_ID_FIELD_NUMBER: _ClassVar[int]
    UE_VERSION_MAJOR_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    authority_name: str
    ue_id: int
    ue_version_major: int
    resource_id: int
    def __init__(self, authority_name: _Optional[str] = ..., ue_id: _Optional[int] = ..., ue_version_major: _Optional[int] = ..., resource_id: _Optional[int] = ...) -> None: ...

class UUriBatch(_message.Message):
    __slots__ = ("uris",)
    URIS_FIELD_NUMBER: _ClassVar[int]
    uris: _containers.RepeatedCompositeFieldContainer[UUri]
    def __init__(self, uris: _Optional[_Iterable[_Union[UUri, _Mapping]]] = ...) -> None: ...

class UUID(_message.Message):
    __slots__ = ("msb", "lsb")
    MSB_FIELD_NUMBER: _ClassVar[int]
    LSB_FIELD_NUMBER: _ClassVar[int]
    msb: int
    lsb: int
    def __init__(self, msb: _Optional[int] = ..., lsb: _Optional[int] = ...) -> None: ...

class UStatus(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: UCode
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[_Union[UCode, str]] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class UAttributes(_message.Message):
    __slots__ = ("id", "type", "source", "sink", "priority", "ttl", "permission_level", "commstatus", "reqid", "token", "traceparent", "payload_format")
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    COMMSTATUS_FIELD_NUMBER: _ClassVar[int]
    REQID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FORMAT_FIELD_NUMBER: _ClassVar[int]
    id: UUID
    type: UMessageType
    source: UUri
    sink: UUri
    priority: UPriority
    ttl: int
    permission_level: int
    commstatus: UCode
    reqid: UUID
    token: str
    traceparent: str
    payload_format: UPayloadFormat
    def __init__(self, id: _Optional[_Union[UUID, _Mapping]] = ..., type: _Optional[_Union[UMessageType, str]] = ..., source: _Optional[_Union[UUri, _Mapping]] = ..., sink: _Optional[_Union[UUri, _Mapping]] = ..., priority: _Optional[_Union[UPriority, str]] = ..., ttl: _Optional[int] = ..., permission_level: _Optional[int] = ..., commstatus: _Optional[_Union[UCode, str]] = ..., reqid: _Optional[_Union[UUID, _Mapping]] = ..., token: _Optional[str] = ..., traceparent: _Optional[str] = ..., payload_format: _Optional[_Union[UPayloadFormat, str]] = ...) -> None: ...

class UMessage(_message.Message):
    __slots__ = ("attributes", "payload")
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    attributes: UAttributes
    payload: bytes
    def __init__(self, attributes: _Optional[_Union[UAttributes, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...
