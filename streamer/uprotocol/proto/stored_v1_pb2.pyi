from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Provenance(_message.Message):
    __slots__ = ("identity", "ceiling", "ttl")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    CEILING_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    identity: str
    ceiling: int
    ttl: int
    def __init__(self, identity: _Optional[str] = ..., ceiling: _Optional[int] = ..., ttl: _Optional[int] = ...) -> None: ...
