"""uProtocol over MQTT 5, by `aiomqtt`."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.independent.message import Plain, id_text, segments, uri_of, uri_text

# aiomqtt warns once for every publish that waits, which is what these tests do on purpose.
_QUIET = logging.getLogger("tests.mqtt")
_QUIET.setLevel(logging.CRITICAL)

TYPES = {"up-pub.v1": 1, "up-req.v1": 2, "up-res.v1": 3, "up-not.v1": 4}
TYPE_NAMES = {number: name for name, number in TYPES.items()}


def mqtt_topic(message: Plain, structure: str) -> str:
    if structure == "off-vehicle":
        assert message.sink is not None
        return f"{message.source[0]}/{message.sink[0]}"
    if message.type == 1:
        return segments(message.source)
    assert message.sink is not None
    return f"{segments(message.source)}/{segments(message.sink)}"


def mqtt_properties(message: Plain, is_earlier: bool = False) -> Properties:
    """``is_earlier``: as the specification had it before 1.6.0-alpha.5."""
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
    if message.reqid is not None and is_earlier:
        user.append(("9", id_text(message.reqid)))
    elif message.reqid is not None:
        properties.CorrelationData = message.reqid
    if message.payload_format and is_earlier:
        user.append(("12", str(message.payload_format)))
    elif message.payload_format:
        properties.ContentType = str(message.payload_format)
    properties.UserProperty = user
    return properties


def from_mqtt(payload: bytes, properties: Any, is_earlier: bool = False) -> Plain:
    """``is_earlier``: the payload format is read where the specification had it before 1.6.0-alpha.5."""
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
        payload_format=int(values.get("12", 0) if is_earlier else getattr(properties, "ContentType", 0)),
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
        is_earlier: bool = False,
    ) -> None:
        """``user``: name and password. ``is_earlier``: it follows the specification before 1.6.0-alpha.5."""
        self.port = port
        self._is_earlier = is_earlier
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
        self.arrived.append(from_mqtt(bytes(message.payload), message.properties, self._is_earlier))
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
        topic, properties = mqtt_topic(message, self.structure), mqtt_properties(message, self._is_earlier)
        await self.client.publish(topic, message.payload, qos=1, properties=properties, timeout=60)

    async def send_raw(self, topic: str, payload: bytes, properties: Properties) -> None:
        await self.client.publish(topic, payload, qos=1, properties=properties)
