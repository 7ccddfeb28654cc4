"""Answers Requests to one of our uEntities: reads the payload, calls the method, responds in the form of the Request.

A method raises `UStatusError` to refuse: the caller gets its code as commstatus, and a UStatus as payload (uP-L2
`rpc.adoc`). For the router, a Request is delivered once its Response is safe with the router.

Parsing can make an object of every few bytes that a sender chooses. So the length of a payload is checked first, also by
services that read other messages than Requests (`payload_of`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.message import DecodeError, Message

from streamer.transports.local import LocalTransport
from streamer.uprotocol.message import UMessage, UMessageType, UPayloadFormat, response
from streamer.uprotocol.protobuf import status_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import FIRST_TOPIC, UUri
from streamer.uprotocol.well_known import EntityId

logger = logging.getLogger("ustreamer.rpc")
_refusals = logging.getLogger("ustreamer.services")  # those by permissions are in the audit log instead

MAX_BYTES = 4096
"""The longest payload that is parsed: twice what the largest Request needs, or a notification of one subscription."""

_FORMATS = (UPayloadFormat.UNSPECIFIED, UPayloadFormat.PROTOBUF, UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY)
_SHOWN = 128  # most characters of an unexpected type URL in an error text


class Method(NamedTuple):
    """The type of a method's request, and the function from caller and request to response; may raise `UStatusError`."""

    request: type[Message]
    call: Callable[[UUri, Any], Awaitable[Message]]


class RpcService:
    """The methods of one uEntity, by resource id; those for Notifications, whose answer is not sent, by that of the topic.

    Calls begin in the order in which their messages arrive.
    """

    def __init__(self, transport: LocalTransport, entity: EntityId, methods: Mapping[int, Method]) -> None:
        self._transport = transport
        self._name = f"{entity.ue_id:X}/{entity.version:X}"
        self._methods = methods
        self._tasks: set[asyncio.Task[None]] = set()  # bounded by the window of the local endpoint
        transport.serve(entity, self.take)

    def take(self, message: UMessage, done: Callable[[], None]) -> None:
        """Answer a Request to the uEntity, or call the method of a Notification. ``done`` is called once it is handled."""
        kind, topic = message.attributes.type, message.attributes.source.resource
        if kind is not UMessageType.REQUEST and (kind is not UMessageType.NOTIFICATION or topic not in self._methods):
            done()
            return
        task = asyncio.get_running_loop().create_task(self._answer(message, done), name=f"rpc {self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: UMessage, done: Callable[[], None]) -> None:
        form = message.attributes.payload_format
        code, answer = UCode.OK, None
        try:
            answer = await self._call(message)
        except UStatusError as exc:
            log_refusal(message, exc)
            code, answer = exc.code, status_to_proto(exc.code, exc.message)
        except Exception as exc:  # the caller gets a response all the same
            logger.exception("method_failed sink=%s", message.attributes.sink)
            code = UCode.INTERNAL
            answer = status_to_proto(code, f"the method failed: {type(exc).__name__}")
        if message.attributes.type is not UMessageType.REQUEST:
            done()
            return
        if form is not UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY:
            form = UPayloadFormat.PROTOBUF
        await asyncio.sleep(0)  # the router applies what the method has changed before the Response goes out
        status = None if code is UCode.OK else code
        payload = _encoded(answer, form)
        self._transport.emit([response(self._transport.context.now_ms(), message, payload, status, form)], done)

    async def _call(self, message: UMessage) -> Message:
        sink = message.attributes.sink
        assert sink is not None
        method = self._methods.get(sink.resource or message.attributes.source.resource)
        if method is None:
            known = ", ".join(f"{number:X}" for number in sorted(self._methods) if number < FIRST_TOPIC)
            raise UStatusError(UCode.UNIMPLEMENTED, f"{sink}: expected one of the methods {known}")
        return await method.call(message.attributes.source, _decoded(message, method.request))


def payload_of(message: UMessage, max_bytes: int | None = MAX_BYTES) -> bytes:
    """Return the payload; b"" if absent. Raises `UStatusError` (INVALID_ARGUMENT) if it is longer (None: never)."""
    payload = message.payload or b""
    if max_bytes is not None and len(payload) > max_bytes:
        raise UStatusError(UCode.INVALID_ARGUMENT, f"payload: expected at most {max_bytes} bytes, found {len(payload)}")
    return payload


def log_refusal(message: UMessage, error: UStatusError) -> None:
    """Log which uEntity requested what, and why the service refused it.

    The authority is the first field: repeated lines of one authority are limited, whatever uEntities it invents.
    """
    if error.code is not UCode.PERMISSION_DENIED:
        attributes = message.attributes
        source, sink = attributes.source, attributes.sink
        text = "request_refused authority=%s source=%s sink=%s code=%s reason=%s"
        _refusals.warning(text, source.authority, source, sink, error.code.name, error.message)


def _encoded(message: Message, form: UPayloadFormat) -> bytes:
    if form is UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY:
        wrapped = AnyProto()
        wrapped.Pack(message)
        message = wrapped
    return message.SerializeToString()


def _decoded(message: UMessage, kind: type[Message]) -> Message:
    """Return the parsed payload; an absent one is an empty message."""
    form, payload = message.attributes.payload_format, payload_of(message)
    name = kind.DESCRIPTOR.full_name
    if form not in _FORMATS:
        raise UStatusError(UCode.INVALID_ARGUMENT, f"payload: expected {name} as PROTOBUF or PROTOBUF_WRAPPED_IN_ANY")
    try:
        if form is not UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY:
            return kind.FromString(payload)
        wrapped, found = AnyProto.FromString(payload), kind()
        if wrapped.Unpack(found):
            return found
    except DecodeError as exc:
        raise UStatusError(UCode.INVALID_ARGUMENT, f"payload: cannot be parsed as {name}") from exc
    text = f"payload: expected {name} in the Any, found {wrapped.type_url[:_SHOWN] or 'nothing'}"
    raise UStatusError(UCode.INVALID_ARGUMENT, text)
