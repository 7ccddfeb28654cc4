"""uProtocol over Zenoh, by `eclipse-zenoh`."""

import asyncio
import json
import struct
import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import zenoh

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from tests.independent.message import Plain, Uri, segments
from tests.waiting import until


def zenoh_key(message: Plain) -> str:
    sink = "{}/{}/{}/{}/{}" if message.type == 1 else segments(message.sink)  # type: ignore[arg-type]
    return f"up/{segments(message.source)}/{sink}"


def _uri_to_proto(uri: Uri | None) -> pb.UUri | None:
    if uri is None:
        return None
    return pb.UUri(authority_name=uri[0], ue_id=uri[1], ue_version_major=uri[2], resource_id=uri[3])


def _id_to_proto(value: bytes | None) -> pb.UUID | None:
    if value is None:
        return None
    msb, lsb = struct.unpack(">QQ", value)
    return pb.UUID(msb=msb, lsb=lsb)


def to_attributes(message: Plain) -> pb.UAttributes:
    numbers: dict[str, Any] = {  # of enums, which may have any number on the wire
        "type": message.type,
        "priority": message.priority,
        "commstatus": message.commstatus,
        "payload_format": message.payload_format,
    }
    return pb.UAttributes(
        id=_id_to_proto(message.id),
        source=_uri_to_proto(message.source),
        sink=_uri_to_proto(message.sink),
        ttl=message.ttl,
        permission_level=message.permission_level,
        reqid=_id_to_proto(message.reqid),
        token=message.token,
        traceparent=message.traceparent,
        **numbers,
    )


def attachment_of(message: Plain) -> bytes:
    return b"\x01" + to_attributes(message).SerializeToString()


def from_attributes(attributes: pb.UAttributes, payload: bytes) -> Plain:
    def uri(value: pb.UUri) -> Uri:
        return value.authority_name, value.ue_id, value.ue_version_major, value.resource_id

    def optional(name: str) -> Any:
        return getattr(attributes, name) if attributes.HasField(name) else None

    return Plain(
        type=attributes.type,
        source=uri(attributes.source),
        sink=uri(attributes.sink) if attributes.HasField("sink") else None,
        payload=payload,
        priority=attributes.priority,
        ttl=optional("ttl"),
        permission_level=optional("permission_level"),
        commstatus=optional("commstatus"),
        reqid=struct.pack(">QQ", attributes.reqid.msb, attributes.reqid.lsb) if attributes.HasField("reqid") else None,
        token=optional("token"),
        traceparent=optional("traceparent"),
        payload_format=attributes.payload_format,
        id=struct.pack(">QQ", attributes.id.msb, attributes.id.lsb),
    )


EVERYTHING = ("up/*/*/*/*/*/{}/{}/{}/{}/{}", "up/*/*/*/*/0/*/*/*/*/*", "up/*/*/*/*/*/*/*/*/*/0")
"""Keys that together match every message, each once: Publishes; Requests; Notifications and Responses."""


class ZenohSide:
    """A uEntity's Zenoh peer. ``arrived`` holds what came, in order."""

    def __init__(
        self,
        *,
        connect: Iterable[str] = (),
        listen: Iterable[str] = (),
        keys: Iterable[str] = EVERYTHING,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """``settings``: more of Zenoh's own, by path."""
        self.arrived: list[Plain] = []
        self.news = asyncio.Event()
        self._settings = {
            "mode": "peer",
            "listen/endpoints": list(listen),
            "connect/endpoints": list(connect),
            "scouting/multicast/enabled": False,
            **settings,
        }
        self._keys = list(keys)
        self._subscribed: set[str] = set()  # keys to which somebody had subscribed
        self._lock = threading.Lock()

    def _open(self) -> None:
        config = zenoh.Config()
        for key, value in self._settings.items():
            config.insert_json5(key, json.dumps(value))
        self.session = zenoh.open(config)
        self._subscribers = [
            self.session.declare_subscriber(key, self._take, allowed_origin=zenoh.Locality.REMOTE) for key in self._keys
        ]

    def _take(self, sample: zenoh.Sample) -> None:
        assert sample.attachment is not None
        attachment = sample.attachment.to_bytes()
        assert attachment[:1] == b"\x01"
        plain = from_attributes(pb.UAttributes.FromString(attachment[1:]), sample.payload.to_bytes())
        with self._lock:
            self.arrived.append(plain)
        self._loop.call_soon_threadsafe(self.news.set)

    async def __aenter__(self) -> "ZenohSide":
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.session.close)

    async def send(self, messages: Iterable[Plain], is_wanted: bool = True) -> None:
        """Put in order, from a thread; a full queue blocks the thread and drops nothing.

        Zenoh drops what nobody has subscribed to, so before a key is used for the first time, wait for its subscription.
        ``is_wanted``: False if nobody has to subscribe.
        """
        messages = list(messages)
        if is_wanted:
            for key in {zenoh_key(message) for message in messages} - self._subscribed:
                await until_subscribed(self.session, key)
                self._subscribed.add(key)
        await asyncio.to_thread(self._put_all, messages)

    async def until_subscribed(self, message: Plain) -> None:
        """Wait until somebody has subscribed to the key of a message."""
        await until_subscribed(self.session, zenoh_key(message))

    def _put_all(self, messages: list[Plain]) -> None:
        for message in messages:
            self.put_raw(zenoh_key(message), message.payload, attachment_of(message))

    def put_raw(self, key: str, payload: bytes, attachment: bytes | None) -> None:
        self.session.put(key, payload, attachment=attachment, congestion_control=zenoh.CongestionControl.BLOCK)


def is_matched(publisher: zenoh.Publisher) -> bool:
    """Whether somebody has subscribed to the publisher's key."""
    status: Any = publisher.matching_status  # the stubs say bool; it is a MatchingStatus
    return bool(status.matching)


async def until_subscribed(session: zenoh.Session, key: str) -> None:
    """Wait until somebody has subscribed to a key."""
    publisher = session.declare_publisher(key)
    await until(lambda: is_matched(publisher), f"a subscription to {key}")
    publisher.undeclare()
