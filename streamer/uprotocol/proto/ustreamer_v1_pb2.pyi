import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from streamer.uprotocol.proto import uprotocol_v1_pb2 as _uprotocol_v1_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeadLetter(_message.Message):
    __slots__ = ("message", "status", "route", "endpoint", "attempts", "first_time", "last_time", "streamer")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    STREAMER_FIELD_NUMBER: _ClassVar[int]
    message: _uprotocol_v1_pb2.UMessage
    status: _uprotocol_v1_pb2.UStatus
    route: str
    endpoint: str
    attempts: int
    first_time: _timestamp_pb2.Timestamp
    last_time: _timestamp_pb2.Timestamp
    streamer: str
    def __init__(self, message: _Optional[_Union[_uprotocol_v1_pb2.UMessage, _Mapping]] = ..., status: _Optional[_Union[_uprotocol_v1_pb2.UStatus, _Mapping]] = ..., route: _Optional[str] = ..., endpoint: _Optional[str] = ..., attempts: _Optional[int] = ..., first_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., streamer: _Optional[str] = ...) -> None: ...
