from streamer.uprotocol.proto import uprotocol_v1_pb2 as _uprotocol_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetLastMessagesRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _uprotocol_v1_pb2.UUriBatch
    def __init__(self, topics: _Optional[_Union[_uprotocol_v1_pb2.UUriBatch, _Mapping]] = ...) -> None: ...

class MessageResponse(_message.Message):
    __slots__ = ("topic", "status", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: _uprotocol_v1_pb2.UUri
    status: _uprotocol_v1_pb2.UStatus
    message: _uprotocol_v1_pb2.UMessage
    def __init__(self, topic: _Optional[_Union[_uprotocol_v1_pb2.UUri, _Mapping]] = ..., status: _Optional[_Union[_uprotocol_v1_pb2.UStatus, _Mapping]] = ..., message: _Optional[_Union[_uprotocol_v1_pb2.UMessage, _Mapping]] = ...) -> None: ...

class GetLastMessagesResponse(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[MessageResponse]
    def __init__(self, responses: _Optional[_Iterable[_Union[MessageResponse, _Mapping]]] = ...) -> None: ...
