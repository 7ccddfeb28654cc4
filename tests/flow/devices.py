"""Whole devices on memory networks: a streamer with its services, uEntities that speak raw protobuf, and other devices.

    uEntities of dev1 ── near ── gw1 ── far ──┬── far ── gw2 ── near ── uEntities of dev2
                                              └── a remote uSubscription service that a test plays itself (`Remote`)

The clock moves only when told. What waits, waits for a condition, never for a time.
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import Message

from streamer.config import Config
from streamer.router.router import Router
from streamer.services.core import CORE, Core
from streamer.services.residents import Residents
from streamer.transports.base import LinkState, Received, TransportContext, UListener, UTransport
from streamer.transports.memory import MemoryOptions, MemoryTransport
from streamer.uprotocol.message import (
    Options,
    UMessage,
    UMessageType,
    UPayloadFormat,
    notification,
    publish,
    request,
    response,
)
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.stage import WoundClock

SUBSCRIBE, UNSUBSCRIBE, FETCH_SUBSCRIPTIONS, REGISTER, UNREGISTER, FETCH_SUBSCRIBERS, RESET = 1, 2, 3, 6, 7, 8, 9
CHANGES = 0x8000
UNSUBSCRIBED, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING = range(4)
LATE_S = 10.0

Proto = TypeVar("Proto", bound=Message)
_runs = itertools.count()


async def until(condition: Callable[[], object], what: str) -> None:
    """Let everybody work until a condition holds. Raises AssertionError when it takes too long."""
    deadline = time.monotonic() + LATE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: did not come true"
        await asyncio.sleep(0.001)


class Devices:
    """The clock and the networks that devices share. Ends what was begun in it."""

    def __init__(self, folder: Path) -> None:
        self.clock = WoundClock()
        self.run = f"devices-{next(_runs)}"
        self.folder = folder
        self.devices: dict[str, Device] = {}
        self._joined: list[MemoryTransport] = []

    async def __aenter__(self) -> "Devices":
        return self

    async def __aexit__(self, *exc: object) -> None:
        for device in self.devices.values():
            await device.stop()
        for transport in self._joined:
            await transport.stop()

    async def device(self, number: int, **usubscription: object) -> "Device":
        """Start device ``number``: streamer gw<number> with the uEntities of dev<number>; again if it was stopped."""
        device = self.devices[f"gw{number}"] = Device(self, number, usubscription)
        await device.start()
        return device

    async def client(self, number: int, ue_id: int) -> "Client":
        """A uEntity of dev<number>."""
        uri = UUri(f"dev{number}", ue_id, 1, 0)
        client = Client(self, uri)
        client.transport = await self.join(f"near-{number}", uri.authority)
        await client.transport.register_listener(everything_at("*"), uri, client)
        return client

    async def remote(self, authority: str) -> "Remote":
        """A uSubscription service of another device, played by the test."""
        remote = Remote(self, authority)
        remote.transport = await self.join("far", authority)
        await remote.transport.register_listener(everything_at("*"), UUri(authority, 0, 3, 0xFFFF), remote)
        return remote

    async def join(self, network: str, authority: str) -> MemoryTransport:
        context = TransportContext(network, authority, now_ms=self.clock.wall_ms)
        transport = MemoryTransport(context, MemoryOptions(bus=f"{self.run}-{network}"))
        await transport.authenticate(UUri(authority, 1, 1, 0))
        await transport.start()
        self._joined.append(transport)
        return transport

    def pass_time(self, ms: int) -> None:
        """Wind the clock forward and let routers and services notice."""
        self.clock.ms += ms
        self.clock.s += ms / 1000
        for device in self.devices.values():
            device.tick()


class Device:
    """A streamer as the daemon builds it, with memory transports and a file for its services."""

    def __init__(self, devices: Devices, number: int, usubscription: dict[str, object]) -> None:
        self.authority = f"gw{number}"
        self.config = Config.model_validate(
            {
                "authority": self.authority,
                "endpoints": {
                    "near": {"transport": "memory", "authorities": [f"dev{number}"]},
                    "far": {"transport": "memory", "authorities": ["*"]},
                },
                "routes": [{"from": "near", "to": "far"}, {"from": "far", "to": "near"}],
                "state": {"path": str(devices.folder / f"{self.authority}.db")},
                "usubscription": {"local": [f"dev{number}"]} | usubscription,
            }
        )
        self.near, self.far = (
            MemoryTransport(self._context(devices, name), MemoryOptions(bus=f"{devices.run}-{bus}"))
            for name, bus in (("near", f"near-{number}"), ("far", "far"))
        )
        core = Core(self._context(devices, CORE))
        self.residents = Residents(self.config, core, devices.clock)
        transports: dict[str, UTransport] = {"near": self.near, "far": self.far, CORE: core}
        self.router = Router(self.config, transports, devices.clock, lambda: 0.5, lambda after_s, call: None)
        self._tasks: list[asyncio.Task[None]] = []

    def _context(self, devices: Devices, name: str) -> TransportContext:
        return TransportContext(
            name, self.authority, on_state=lambda state: self._changed(name, state), now_ms=devices.clock.wall_ms
        )

    def _changed(self, name: str, state: LinkState) -> None:
        self.router.link_changed(name, state)

    async def start(self) -> None:
        self.residents.open(self.router)
        await self.router.start()
        self._tasks = [asyncio.create_task(work) for work in (self.residents.run(), self.router.hearing.run())]

    async def stop(self) -> None:
        """End at once, as a kill would: what is not on disk is gone."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await self.near.stop()
            await self.far.stop()
            self.residents.close()

    def tick(self) -> None:
        self.router.tick()


class _Ear(UListener):
    """Keeps what it hears."""

    transport: MemoryTransport

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.heard: list[UMessage] = []

    def on_receive(self, received: Received) -> None:
        self.heard.append(received.message)
        received.release()

    @property
    def now_ms(self) -> int:
        return self.devices.clock.ms


class Client(_Ear):
    """A uEntity that asks, is notified, and publishes."""

    def __init__(self, devices: Devices, uri: UUri) -> None:
        super().__init__(devices)
        self.uri = uri
        self.service = uri.authority

    async def ask(self, method: int, proto: Message | bytes, form: UPayloadFormat = UPayloadFormat.PROTOBUF) -> UMessage:
        """Send a Request to our uSubscription service, and wait for its Response."""
        payload = proto if isinstance(proto, bytes) else proto.SerializeToString()
        options = Options(payload_format=form)
        asked = request(self.now_ms, self.uri, UUri(self.service, 0, 3, method), 10_000, payload, options)
        await self.transport.send(asked)
        await until(lambda: self._answers(asked), f"an answer to {asked.attributes.sink}")
        (answer,) = self._answers(asked)
        return answer

    def _answers(self, asked: UMessage) -> list[UMessage]:
        return [message for message in self.heard if message.attributes.reqid == asked.id]

    async def granted(self, method: int, proto: Message, kind: type[Proto]) -> Proto:
        """The payload of a Response that has to be OK."""
        answer = await self.ask(method, proto)
        assert answer.attributes.commstatus in (None, UCode.OK), answer
        return kind.FromString(answer.payload or b"")

    async def refused(self, method: int, proto: Message) -> v1.UStatus:
        """The status in a Response that has to be a failure; commstatus has to say the same."""
        answer = await self.ask(method, proto)
        status = v1.UStatus.FromString(answer.payload or b"")
        assert answer.attributes.commstatus is not None
        assert answer.attributes.commstatus == status.code != UCode.OK
        return status

    async def subscribe(self, topic: UUri, expire_ms: int | None = None) -> int:
        """The state that the answer tells."""
        asked = pb.SubscriptionRequest(topic=uri_to_proto(topic))
        if expire_ms is not None:
            asked.attributes.expire.FromMilliseconds(expire_ms)
        answer = await self.granted(SUBSCRIBE, asked, pb.SubscriptionResponse)
        assert uri_from_proto(answer.topic) == topic
        return answer.status.state

    async def unsubscribe(self, topic: UUri) -> None:
        await self.granted(UNSUBSCRIBE, pb.UnsubscribeRequest(topic=uri_to_proto(topic)), pb.UnsubscribeResponse)

    async def register(self, topic: UUri) -> None:
        await self.granted(REGISTER, pb.NotificationsRequest(topic=uri_to_proto(topic)), pb.NotificationsResponse)

    async def unregister(self, topic: UUri) -> None:
        await self.granted(UNREGISTER, pb.NotificationsRequest(topic=uri_to_proto(topic)), pb.NotificationsResponse)

    async def subscribers(self, topic: UUri, offset: int | None = None) -> tuple[list[UUri], bool]:
        """FetchSubscribers: one page, and whether there are more."""
        asked = pb.FetchSubscribersRequest(topic=uri_to_proto(topic), offset=offset)
        found = await self.granted(FETCH_SUBSCRIBERS, asked, pb.FetchSubscribersResponse)
        return [uri_from_proto(one.uri) for one in found.subscribers], found.has_more_records

    async def subscriptions(self, about: UUri, offset: int | None = None) -> tuple[list[tuple[UUri, UUri, int]], bool]:
        """FetchSubscriptions of a topic or a subscriber: (topic, subscriber, state), and whether there are more."""
        asked = pb.FetchSubscriptionsRequest(offset=offset)
        if about.is_topic:
            asked.topic.CopyFrom(uri_to_proto(about))
        else:
            asked.subscriber.uri.CopyFrom(uri_to_proto(about))
        found = await self.granted(FETCH_SUBSCRIPTIONS, asked, pb.FetchSubscriptionsResponse)
        entries = [(uri_from_proto(e.topic), uri_from_proto(e.subscriber.uri), e.status.state) for e in found.subscriptions]
        return entries, found.has_more_records

    async def all_is_said(self) -> None:
        """Whatever the service has said before now has arrived: it answers in order."""
        await self.subscribers(UUri(self.uri.authority, 0xFFF0, 1, 0x8000))

    @property
    def notifications(self) -> list[UMessage]:
        return [message for message in self.heard if message.attributes.type is UMessageType.NOTIFICATION]

    @property
    def updates(self) -> list[tuple[UUri, UUri, int]]:
        """What it was notified of: (topic, subscriber, state)."""
        found = [pb.Update.FromString(message.payload or b"") for message in self.notifications]
        return [(uri_from_proto(u.topic), uri_from_proto(u.subscriber.uri), u.status.state) for u in found]

    async def listen(self, topic: UUri) -> None:
        await self.transport.register_listener(topic, None, self)

    @property
    def news(self) -> list[bytes | None]:
        """The payloads of every Publish that arrived."""
        return [message.payload for message in self.heard if message.attributes.type is UMessageType.PUBLISH]

    async def publish(self, topic: UUri, payload: bytes) -> None:
        await self.transport.send(publish(self.now_ms, topic, payload))


class Remote(_Ear):
    """Another device's uSubscription service. What it is asked waits in ``asked`` until the test answers."""

    def __init__(self, devices: Devices, authority: str) -> None:
        super().__init__(devices)
        self.authority = authority

    @property
    def asked(self) -> list[tuple[int, UUri]]:
        """Method and topic of every Request so far."""
        return [(m.attributes.sink.resource, self.topic_of(m)) for m in self.heard if m.attributes.sink is not None]

    def topic_of(self, asked: UMessage) -> UUri:
        return uri_from_proto(pb.UnsubscribeRequest.FromString(asked.payload or b"").topic)

    async def next(self, number: int) -> UMessage:
        """The Request with that number, from 1; waits until it has come."""
        await until(lambda: len(self.heard) >= number, f"Request {number} at {self.authority}")
        return self.heard[number - 1]

    async def grant(self, asked: UMessage, state: int = SUBSCRIBED) -> None:
        """Answer OK; to Subscribe with a state."""
        proto: Message = pb.UnsubscribeResponse()
        if asked.attributes.sink is not None and asked.attributes.sink.resource == SUBSCRIBE:
            proto = pb.SubscriptionResponse(topic=uri_to_proto(self.topic_of(asked)))
            proto.status.state = state  # type: ignore[assignment]  # any int of the enum
        await self._answer(asked, UCode.OK, proto)

    async def refuse(self, asked: UMessage, code: UCode) -> None:
        await self._answer(asked, code, v1.UStatus(code=int(code), message="no"))  # type: ignore[arg-type]  # any int

    async def _answer(self, asked: UMessage, code: UCode, proto: Message) -> None:
        form = UPayloadFormat.PROTOBUF
        await self.transport.send(response(self.now_ms, asked, proto.SerializeToString(), code, form))

    async def update(self, topic: UUri, subscriber: UUri, state: int) -> None:
        """Tell a subscriber how it stands."""
        proto = pb.Update(topic=uri_to_proto(topic), subscriber=pb.SubscriberInfo(uri=uri_to_proto(subscriber)))
        proto.status.state = state  # type: ignore[assignment]  # any int of the enum
        options = Options(payload_format=UPayloadFormat.PROTOBUF)
        source = UUri(self.authority, 0, 3, CHANGES)
        await self.transport.send(notification(self.now_ms, source, subscriber, proto.SerializeToString(), options))
