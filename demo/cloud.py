"""The simulated cloud: an independent MQTT client (aiomqtt), with the uProtocol mapping written out by hand."""

import asyncio
import json
import uuid
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from demo import scenario
from demo.ledger import NO_ANSWER, Ledger
from demo.processes import HOST, START_S, DemoError
from demo.timing import now_ms, now_s, ticks
from streamer.uprotocol.message import UMessage, request
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.protobuf import id_from_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri

CLIMATE_S = 0.5
SILENT_S = 2.9
LATE_S = 2.3
ASLEEP_S = 1.5

ASLEEP_MS = 3000
"""The TTL of a Request that nobody gets."""
SILENT_PATIENCE_S = 0.3
"""How many seconds longer than the TTL a caller waits for a service that never answers."""

_LETTERS = f"{scenario.GATEWAY}/"


class Cloud:
    """All uEntities at authority ``cloud``. Entering the context connects and subscribes."""

    def __init__(self, port: int, ledger: Ledger) -> None:
        self._ledger = ledger
        self._client = aiomqtt.Client(HOST, port, identifier="demo-cloud", protocol=aiomqtt.ProtocolVersion.V5)
        self._port = port
        self._is_answered = asyncio.Event()

    async def __aenter__(self) -> "Cloud":
        try:
            await self._client.__aenter__()
            await self._client.subscribe(f"+/{scenario.CLOUD}", qos=1)
        except aiomqtt.MqttError as exc:
            raise DemoError(f"the simulated cloud cannot connect to the broker at {HOST}:{self._port}: {exc}") from exc
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._client.__aexit__(None, None, None)
        except aiomqtt.MqttError:
            return  # disconnected already

    async def listen(self) -> None:
        """Receive messages until cancelled. Raises `DemoError` if the connection to the broker is lost."""
        try:
            async for message in self._client.messages:
                self._take(message)
        except aiomqtt.MqttError as exc:
            raise DemoError(f"the simulated cloud lost the broker: {exc}") from exc

    def _take(self, packet: aiomqtt.Message) -> None:
        fields: dict[str, str] = dict(getattr(packet.properties, "UserProperty", ()))
        payload = packet.payload if isinstance(packet.payload, bytes) else b""
        try:
            kind, source, ident = fields["2"], UUri.parse(fields["3"]), uuid.UUID(fields["1"]).bytes
        except (KeyError, ValueError):
            self._ledger.unknown += 1
            return
        if source.authority == scenario.GATEWAY:
            letter = pb.DeadLetter.FromString(payload)
            reason = UCode(letter.status.code).name
            self._ledger.report(id_from_proto(letter.message.attributes.id), reason, letter.status.message)
            if letter.message.attributes.HasField("reqid"):  # a Response that had to be dropped: nothing else will come
                self._ledger.answer(id_from_proto(letter.message.attributes.reqid), reason)
            return
        code = UCode(int(fields.get("8", "0")))
        if kind == "up-res.v1":
            asked = getattr(packet.properties, "CorrelationData", b"")
            if asked in self._ledger.warm_up:
                self._is_answered.set()
            self._ledger.answer(asked, code.name)
            if code is not UCode.OK:  # an answer by the streamer, not by the service
                return
        self._ledger.arrive(ident, now_s())

    async def warm_up(self) -> None:
        """Send Requests until the vehicle answers one, which shows that both directions work. Raises `DemoError`."""
        try:
            async with asyncio.timeout(START_S):
                while not self._is_answered.is_set():
                    message = request(now_ms(), scenario.CLOUD_APP, scenario.CLIMATE, ttl=1000)
                    self._ledger.warm_up.send(message.id, now_s())
                    await self._publish(message)
                    try:
                        async with asyncio.timeout(0.5):
                            await self._is_answered.wait()
                    except TimeoutError:
                        continue
        except TimeoutError:
            raise DemoError(f"no Request got from the cloud to the vehicle and back within {START_S:.0f} s") from None

    async def run(self, stop: asyncio.Event) -> None:
        """Call the vehicles' services, until ``stop``."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._climate(stop), name="cloud-climate")
            tasks.create_task(self._silent(stop), name="cloud-silent")
            tasks.create_task(self._late(stop), name="cloud-late")
            tasks.create_task(self._asleep(stop), name="cloud-asleep")

    async def _climate(self, stop: asyncio.Event) -> None:
        async for number in ticks(CLIMATE_S, 0.0, stop):
            payload = json.dumps({"celsius": 18 + number % 6}).encode()
            await self._call(
                scenario.CLIMATE_FLOW, request(now_ms(), scenario.CLOUD_APP, scenario.CLIMATE, scenario.TTL_MS, payload)
            )

    async def _silent(self, stop: asyncio.Event) -> None:
        """Call a service that never answers: only the caller's own time-out ends the call."""
        async for _ in ticks(SILENT_S, 0.5, stop):
            message = request(now_ms(), scenario.CLOUD_APP, scenario.SILENT, ttl=1000)
            await self._call(scenario.SILENT_FLOW, message, SILENT_PATIENCE_S)

    async def _late(self, stop: asyncio.Event) -> None:
        """Send Requests with an old creation time, which have expired when the streamer receives them."""
        async for _ in ticks(LATE_S, 0.2, stop):
            made_ms = now_ms() - scenario.TTL_MS - 1000
            await self._call(scenario.LATE_FLOW, request(made_ms, scenario.CLOUD_APP, scenario.CLIMATE, scenario.TTL_MS))

    async def _asleep(self, stop: asyncio.Event) -> None:
        """Call a vehicle that is not connected: the Request waits in the streamer until its TTL is over."""
        async for _ in ticks(ASLEEP_S, 0.4, stop):
            await self._call(
                scenario.ASLEEP_FLOW, request(now_ms(), scenario.CLOUD_APP, scenario.SLEEPERS_CLIMATE, ASLEEP_MS)
            )

    async def _call(self, flow: str, message: UMessage, patience_s: float = scenario.PATIENCE_S) -> None:
        ledger = self._ledger
        ledger.flows[flow].send(message.id, now_s())
        ledger.calls[flow].ask(message.id)
        wait_s = (message.attributes.ttl or 0) / 1000 + patience_s
        asyncio.get_running_loop().call_later(wait_s, ledger.answer, message.id, NO_ANSWER)
        await self._publish(message)

    async def _publish(self, message: UMessage) -> None:
        attributes = message.attributes
        if attributes.sink is None or attributes.ttl is None:
            raise AssertionError("the cloud sends nothing but Requests")
        properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho leaves it out
        properties.UserProperty = [
            ("uP", "1"),
            ("1", str(uuid.UUID(bytes=message.id))),
            ("2", "up-req.v1"),
            ("3", str(attributes.source)),
            ("4", str(attributes.sink)),
            ("5", attributes.priority.name),
            ("6", str(attributes.ttl)),
        ]
        # Without an expiry interval: the streamer says what has expired. A broker without one would drop it silently.
        topic = f"{attributes.source.authority}/{attributes.sink.authority}"
        try:
            await self._client.publish(topic, message.payload or b"", qos=1, properties=properties)
        except aiomqtt.MqttError as exc:
            raise DemoError(f"the simulated cloud cannot publish: {exc}") from exc
