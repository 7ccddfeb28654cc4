"""Builds the messages that report a failed message: a dead letter, and for a Request an error Response. Pure.

The dead letter is a Publish on ``//{streamer}/4/1/{resource}`` whose payload is a `DeadLetter`; the answer is a Response
whose commstatus is the reason (dispatcher specification, RPC error handling).
"""

from dataclasses import replace

from google.protobuf.timestamp_pb2 import Timestamp

from streamer.journal import codec
from streamer.journal.entries import Letter
from streamer.routing.outcome import FailedMessage
from streamer.uprotocol.message import (
    Attributes,
    InvalidMessageError,
    UMessage,
    UMessageType,
    UPayloadFormat,
    UPriority,
    response,
)
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_to_proto, status_to_proto
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id
from streamer.uprotocol.well_known import USTREAMER

_LONGEST_TTL_MS = 0xFFFF_FFFF


def dead_letter(failed: FailedMessage, authority: str, resource: int, sink: UUri | None) -> UMessage:
    """Build the dead letter of ``failed``, published by the streamer ``authority``.

    ``sink`` is the authority that it is addressed to, where the network needs one. The letter never contains the access
    token, because any reader of the topic could use it.
    """
    original = failed.message
    if failed.is_withheld:
        original = replace(original, payload=None)
    if original.attributes.token is not None:
        original = replace(original, attributes=replace(original.attributes, token=None))
    payload = pb.DeadLetter(
        message=message_to_proto(original),
        status=status_to_proto(failed.failure.code, failed.public_reason),
        route=failed.route,
        endpoint=failed.endpoint,
        attempts=failed.attempts,
        first_time=_timestamp(failed.first_ms),
        last_time=_timestamp(failed.last_ms),
        streamer=authority,
        payload_bytes=failed.failure.payload_bytes,
    ).SerializeToString()
    attributes = Attributes(
        UMessageType.PUBLISH, USTREAMER.at(authority, resource), sink, payload_format=UPayloadFormat.PROTOBUF
    )
    return UMessage(new_id(failed.last_ms), attributes, payload)


def letter_of(failed: FailedMessage, ingress: str, number: int) -> Letter:
    """Build the letter that the journal stores, to be shown and redriven: the whole message, token included.

    A message of which only a part is known cannot be redriven, so its letter names no ingress.
    """
    attributes = failed.message.attributes
    return Letter(
        number,
        failed.message.id,
        failed.route,
        ingress if failed.failure.payload_bytes is None else "",
        failed.endpoint,
        failed.failure.outcome.value,
        int(failed.failure.code),
        failed.failure.text,
        failed.attempts,
        failed.first_ms,
        failed.last_ms,
        int(attributes.type),
        str(attributes.source),
        str(failed.sink or attributes.sink or ""),
        codec.pack(failed.message),
    )


def with_ttl_from_now(message: UMessage, ttl_ms: int, now_ms: int) -> UMessage:
    """Return the message with a TTL of ``ttl_ms`` from now on; 0: none, or the longest that a Request can have."""
    attributes = message.attributes
    if ttl_ms:
        return message.ending(now_ms + ttl_ms, now_ms)
    ttl = _LONGEST_TTL_MS if attributes.type is UMessageType.REQUEST else 0
    return replace(message, attributes=replace(attributes, ttl=ttl))


def error_response(failed: FailedMessage) -> UMessage | None:
    """Build the Response that tells the sender of a Request why it failed; None for other messages.

    An invalid Request is answered if its addresses are valid; else None.
    """
    request = failed.message
    if request.attributes.type is not UMessageType.REQUEST:
        return None
    if request.attributes.priority < UPriority.CS4:
        request = replace(request, attributes=replace(request.attributes, priority=UPriority.CS4))
    code = failed.failure.code
    payload = status_to_proto(code, failed.public_reason).SerializeToString()
    try:
        return response(failed.last_ms, request, payload, commstatus=code, payload_format=UPayloadFormat.PROTOBUF)
    except InvalidMessageError:
        return None


def _timestamp(ms: int) -> Timestamp:
    return Timestamp(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
