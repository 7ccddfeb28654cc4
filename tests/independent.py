"""The other side in end-to-end tests: uProtocol over `aiomqtt` and `eclipse-zenoh`, mapped without any code of ours.

Only the generated protobuf modules are shared; they are the specification's tables. `Plain` is a message in plain Python
types, so that a mistake in our vocabulary cannot hide in the comparison.
"""

import asyncio
import contextlib
import json
import logging
import os
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import aiomqtt
import zenoh
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb

# aiomqtt warns once for every publish that waits, which is what these tests do on purpose.
_QUIET = logging.getLogger("tests.mqtt")
_QUIET.setLevel(logging.CRITICAL)

TYPES = {"up-pub.v1": 1, "up-req.v1": 2, "up-res.v1": 3, "up-not.v1": 4}
TYPE_NAMES = {number: name for name, number in TYPES.items()}
Uri = tuple[str, int, int, int]
"""Authority, ue_id, version, resource."""


def uuid7(ms: int | None = None) -> bytes:
    """A UUIDv7 as 16 bytes."""
    now = time.time_ns() // 1_000_000 if ms is None else ms
    random = bytearray(os.urandom(10))
    random[0] = 0x70 | random[0] & 0xF
    random[2] = 0x80 | random[2] & 0x3F
    return now.to_bytes(6, "big") + bytes(random)


@dataclass(frozen=True)
class Plain:
    """A message. None is absent; priority and payload_format 0 are unspecified."""

    type: int
    source: Uri
    sink: Uri | None = None
    payload: bytes = b""
    priority: int = 0
    ttl: int | None = None
    permission_level: int | None = None
    commstatus: int | None = None
    reqid: bytes | None = None
    token: str | None = None
    traceparent: str | None = None
    payload_format: int = 0
    id: bytes = field(default_factory=uuid7)

    @property
    def flow(self) -> tuple[Uri, Uri | None]:
        return self.source, self.sink

    def addressed_to(self, authority: str) -> "Plain":
        """As an off-vehicle broker carries a Publish."""
        return replace(self, sink=(authority, 0xFFFFFFFF, 0xFF, 0xFFFF))


def uri_text(uri: Uri) -> str:
    return f"//{uri[0]}/{uri[1]:X}/{uri[2]:X}/{uri[3]:X}"


def uri_of(text: str) -> Uri:
    authority, ue_id, version, resource = text.removeprefix("//").split("/")
    return authority, int(ue_id, 16), int(version, 16), int(resource, 16)


def id_text(value: bytes) -> str:
    digits = value.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def segments(uri: Uri) -> str:
    return f"{uri[0]}/{uri[1] & 0xFFFF:X}/{uri[1] >> 16:X}/{uri[2]:X}/{uri[3]:X}"


# MQTT 5


def mqtt_topic(message: Plain, structure: str) -> str:
    if structure == "off-vehicle":
        assert message.sink is not None
        return f"{message.source[0]}/{message.sink[0]}"
    if message.type == 1:
        return segments(message.source)
    assert message.sink is not None
    return f"{segments(message.source)}/{segments(message.sink)}"


def mqtt_properties(message: Plain) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)
    user = [("uP", "1"), ("1", id_text(message.id)), ("2", TYPE_NAMES[message.type]), ("3", uri_text(message.source))]
    if message.sink is not None:
        user.append(("4", uri_text(message.sink)))
    if message.priority:
        user.append(("5", f"CS{message.priority - 1}"))
    if message.ttl is not None:
        if message.ttl % 1000 or not message.ttl:
            user.append(("6", str(message.ttl)))
        if message.ttl:
            properties.MessageExpiryInterval = -(-message.ttl // 1000)
    if message.permission_level is not None:
        user.append(("7", str(message.permission_level)))
    if message.commstatus is not None:
        user.append(("8", str(message.commstatus)))
    if message.token is not None:
        user.append(("10", message.token))
    if message.traceparent is not None:
        user.append(("11", message.traceparent))
    if message.reqid is not None:
        properties.CorrelationData = message.reqid
    if message.payload_format:
        properties.ContentType = str(message.payload_format)
    properties.UserProperty = user
    return properties


def from_mqtt(payload: bytes, properties: Any) -> Plain:
    values = dict(properties.UserProperty)
    assert values["uP"] == "1"
    ttl = int(values["6"]) if "6" in values else None
    if ttl is None and hasattr(properties, "MessageExpiryInterval"):
        ttl = properties.MessageExpiryInterval * 1000
    return Plain(
        type=TYPES[values["2"]],
        source=uri_of(values["3"]),
        sink=uri_of(values["4"]) if "4" in values else None,
        payload=payload,
        priority=int(values["5"].removeprefix("CS")) + 1 if "5" in values else 0,
        ttl=ttl,
        permission_level=int(values["7"]) if "7" in values else None,
        commstatus=int(values["8"]) if "8" in values else None,
        reqid=getattr(properties, "CorrelationData", None),
        token=values.get("10"),
        traceparent=values.get("11"),
        payload_format=int(getattr(properties, "ContentType", 0)),
        id=bytes.fromhex(values["1"].replace("-", "")),
    )


class MqttSide:
    """A uEntity's MQTT client. ``arrived`` holds what came, in order; ``strange`` what it could not read."""

    def __init__(
        self,
        port: int,
        structure: str,
        topics: Iterable[str],
        client_id: str | None = None,
        tls: aiomqtt.TLSParameters | None = None,
        user: tuple[str, str] | None = None,
    ) -> None:
        """``user``: name and password."""
        self.port = port
        self._tls = tls
        self._user = user or (None, None)
        self.structure = structure
        self.topics = list(topics)
        self.arrived: list[Plain] = []
        self.news = asyncio.Event()
        self._client_id = client_id or f"app-{os.urandom(4).hex()}"
        self._task: asyncio.Task[None] | None = None

    def _new_client(self) -> aiomqtt.Client:
        connect = Properties(PacketTypes.CONNECT)
        connect.SessionExpiryInterval = 3600
        connect.ReceiveMaximum = 1000
        return aiomqtt.Client(
            "127.0.0.1",
            self.port,
            identifier=self._client_id,
            username=self._user[0],
            password=self._user[1],
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False,
            max_inflight_messages=1000,
            properties=connect,
            tls_params=self._tls,
            timeout=60,
            logger=_QUIET,
        )

    async def __aenter__(self) -> "MqttSide":
        self.client = self._new_client()
        await self.client.__aenter__()
        for topic in self.topics:
            await self.client.subscribe(topic, qos=1)
        self._task = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        try:
            with contextlib.suppress(aiomqtt.MqttError):  # the broker went away: that is what `is_lost` tells
                async for message in self.client.messages:
                    self._take(message)
        finally:  # aiomqtt has acknowledged what it has queued, and gives it out no more
            while not self.client._queue.empty():
                self._take(self.client._queue.get_nowait())

    def _take(self, message: aiomqtt.Message) -> None:
        self.arrived.append(from_mqtt(bytes(message.payload), message.properties))
        self.news.set()

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._task is None or self._task.done()

    async def __aexit__(self, *exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(aiomqtt.MqttError):
            await self.client.__aexit__(None, None, None)

    async def reconnect(self) -> None:
        """Come back as the same client, with what the broker has kept for it. The old connection must have ended."""
        if self._task is not None:
            await asyncio.wait_for(self._task, 30)  # it takes what had arrived; cancelling it would lose a message
        await self.__aexit__()
        await self.__aenter__()

    async def send(self, messages: Iterable[Plain]) -> None:
        """Publish in order, pipelined; returns when the broker has confirmed all."""
        chunk: list[Plain] = []
        for message in [*messages, None]:
            if message is not None:
                chunk.append(message)
            if chunk and (message is None or len(chunk) == 500):
                await asyncio.gather(*(self._publish(each) for each in chunk))
                chunk = []

    async def _publish(self, message: Plain) -> None:
        topic = mqtt_topic(message, self.structure)
        await self.client.publish(topic, message.payload, qos=1, properties=mqtt_properties(message), timeout=60)

    async def send_raw(self, topic: str, payload: bytes, properties: Properties) -> None:
        await self.client.publish(topic, payload, qos=1, properties=properties)


# Zenoh


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

    async def send(self, messages: Iterable[Plain]) -> None:
        """Put in order, from a thread; a full queue blocks the thread and drops nothing."""
        await asyncio.to_thread(self._put_all, list(messages))

    def _put_all(self, messages: list[Plain]) -> None:
        for message in messages:
            self.put_raw(zenoh_key(message), message.payload, attachment_of(message))

    def put_raw(self, key: str, payload: bytes, attachment: bytes | None) -> None:
        self.session.put(key, payload, attachment=attachment, congestion_control=zenoh.CongestionControl.BLOCK)


def is_matched(publisher: zenoh.Publisher) -> bool:
    """Whether somebody has subscribed to the publisher's key."""
    status: Any = publisher.matching_status  # the stubs say bool; it is a MatchingStatus
    return bool(status.matching)


def inversions(arrived: Iterable[Plain], sent: Iterable[Plain]) -> int:
    """How often a first arrival came after a later message of its flow, by the order of sending."""
    position = {message.id: number for number, message in enumerate(sent)}
    last: dict[object, int] = {}
    seen: set[bytes] = set()
    found = 0
    for message in arrived:
        if message.id in seen or message.id not in position:
            continue
        seen.add(message.id)
        here = position[message.id]
        if here < last.get(message.flow, -1):
            found += 1
        last[message.flow] = max(here, last.get(message.flow, -1))
    return found
