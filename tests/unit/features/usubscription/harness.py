"""The service with a real file, and a local transport that only keeps what is sent: it works turn by turn."""

from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from streamer.features.host.access import Access, SubscribeRule
from streamer.features.usubscription import USubscription, v3, wire
from streamer.features.usubscription.config import UsubscriptionConfig
from streamer.features.usubscription.entries import SubscriptionState
from streamer.uprotocol.message import Options, UMessage, UMessageType, UPayloadFormat, notification, request, response
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb4
from streamer.uprotocol.protobuf import status_to_proto, uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.well_known import USUBSCRIPTION, USUBSCRIPTIONS
from tests.clock import FakeClock
from tests.constants import with_constants
from tests.hosted import StateOn
from tests.unit.features.host.fake_router import FakeRouter
from tests.unit.features.host.local_transport import RecordingLocalTransport
from tests.unit.features.host.patterns import entities_at

UNSUBSCRIBED, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING = SubscriptionState

US = UUri.parse("//gw1/0/3/0")
APP = UUri.parse("//dev1/A1/1/0")
APP2 = UUri.parse("//dev1/A2/1/0")
CLOUD = UUri.parse("//cloud/C1/1/0")
WATCHER = UUri.parse("//dev1/EE/1/0")
LOCAL = UUri.parse("//dev1/B0/1/8001")
REMOTE = UUri.parse("//dev2/B0/1/8001")
REMOTE2 = UUri.parse("//dev2/B0/1/8002")

ACCESS = Access("gw1", frozenset({"gw1", "dev1"}), subscribe=(SubscribeRule(entities_at("cloud"), (everything_at("*"),)),))
"""dev1 is local, and the cloud's uEntity may subscribe to everything."""

PLAIN = Options(payload_format=UPayloadFormat.PROTOBUF)
TIMEOUT_MS = 300_000

ANSWERS = {
    v3.SUBSCRIBE: pb.SubscriptionResponse,
    v3.UNSUBSCRIBE: pb.UnsubscribeResponse,
    v3.FETCH_SUBSCRIPTIONS: pb.FetchSubscriptionsResponse,
    v3.REGISTER: pb.NotificationsResponse,
    v3.UNREGISTER: pb.NotificationsResponse,
    v3.FETCH_SUBSCRIBERS: pb.FetchSubscribersResponse,
    v3.RESET: pb.ResetResponse,
}


def method_of(asked: UMessage) -> int:
    """The method that a Request is for."""
    assert asked.attributes.sink is not None
    return asked.attributes.sink.resource


def version_of(asked: UMessage) -> int:
    """The version of the service that a Request is for."""
    assert asked.attributes.sink is not None
    return asked.attributes.sink.version


def status(standing: int, message: str = "") -> pb.SubscriptionStatus:
    number: Any = int(standing)  # the generated types want a name
    return pb.SubscriptionStatus(state=number, message=message)


class UsubscriptionHarness:
    """``options`` as in the configuration file. Tests read the messages that were sent since the last `forget`.

    Other services are asked in version 3, unless the options say something else.
    """

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.options = with_constants(UsubscriptionConfig, **{"remote_version": 3} | options)
        self.access = ACCESS
        self.clock = FakeClock()
        self.done: list[bytes] = []
        self.open()

    def open(self) -> None:
        """As the daemon does before it starts the router."""
        self.core = RecordingLocalTransport("gw1", *USUBSCRIPTIONS)
        self.state = StateOn(self.path, USubscription.TABLES)
        self.router = FakeRouter()
        self.service = USubscription(self.core, self.state, self.router, self.options, self.access, self.clock)
        self.state.open()
        self.service.restore()

    async def restart(self) -> None:
        """As after kill -9: what is not in the file is gone."""
        self.state.close()
        self.open()
        await self.service.begin()

    # Clients

    def request(self, method: int, proto: Message | None, source: UUri = APP, at: str = "dev1") -> UMessage:
        payload = None if proto is None else proto.SerializeToString()
        options = Options() if proto is None else PLAIN
        return request(self.clock.ms, source, USUBSCRIPTION.at(at, method), 5000, payload, options)

    def take(self, message: UMessage) -> None:
        """Hand a message to the service, which handles it in the next turn."""
        assert self.core.handler is not None
        self.core.handler(message, lambda: self.done.append(message.id))

    async def send(self, message: UMessage) -> UMessage | None:
        """Hand a message over and run one turn. Returns the Response, if there is one."""
        self.take(message)
        await self.service.run_once()
        found = [said for said in self.core.said if said.attributes.reqid == message.id]
        assert len(found) <= 1
        return found[0] if found else None

    async def ask(self, message: UMessage) -> UMessage:
        """`send`, if there has to be a Response."""
        answer = await self.send(message)
        assert answer is not None
        return answer

    async def call(self, method: int, proto: Message | None, source: UUri = APP, at: str = "dev1") -> Any:
        """The response to a request that has to succeed."""
        answer = await self.ask(self.request(method, proto, source, at))
        assert answer.attributes.commstatus is UCode.OK, answer
        return wire.read(answer, ANSWERS[method], max_bytes=None)

    async def refused(self, method: int, proto: Message | None, source: UUri = APP, at: str = "dev1") -> UCode:
        """The code of a request that has to fail."""
        answer = await self.ask(self.request(method, proto, source, at))
        assert answer.attributes.commstatus not in (None, UCode.OK)
        return answer.attributes.commstatus

    async def subscribe(self, topic: UUri, source: UUri = APP, at: str = "dev1", **attributes: int) -> SubscriptionState:
        """``expire_ms`` and ``sample_period_ms``, if any, are SubscribeAttributes."""
        proto = pb.SubscriptionRequest(topic=uri_to_proto(topic))
        if "expire_ms" in attributes:
            proto.attributes.expire.FromMilliseconds(attributes["expire_ms"])
        if "sample_period_ms" in attributes:
            proto.attributes.sample_period_ms = attributes["sample_period_ms"]
        answer = await self.call(v3.SUBSCRIBE, proto, source, at)
        assert uri_from_proto(answer.topic) == topic
        return SubscriptionState(answer.status.state)

    async def unsubscribe(self, topic: UUri, source: UUri = APP) -> None:
        await self.call(v3.UNSUBSCRIBE, pb.UnsubscribeRequest(topic=uri_to_proto(topic)), source)

    async def register(self, topic: UUri, source: UUri = WATCHER, at: str = "dev1") -> None:
        await self.call(v3.REGISTER, pb.NotificationsRequest(topic=uri_to_proto(topic)), source, at)

    async def unregister(self, topic: UUri, source: UUri = WATCHER) -> None:
        await self.call(v3.UNREGISTER, pb.NotificationsRequest(topic=uri_to_proto(topic)), source)

    async def subscribers(self, topic: UUri) -> dict[UUri, SubscriptionState]:
        """The listed subscribers of a topic, in order."""
        asked = pb.FetchSubscriptionsRequest(topic=uri_to_proto(topic))
        answer = await self.call(v3.FETCH_SUBSCRIPTIONS, asked, WATCHER)
        return {uri_from_proto(each.subscriber.uri): SubscriptionState(each.status.state) for each in answer.subscriptions}

    # Time

    async def pass_ms(self, ms: int) -> None:
        self.clock.advance(ms)
        await self.service.run_once()

    # Sent messages

    def forget(self) -> None:
        """Forget the messages that were sent so far."""
        self.core.said.clear()

    def messages(self, kind: UMessageType) -> list[UMessage]:
        return [message for message in self.core.said if message.attributes.type is kind]

    def updates(self, sink: UUri) -> list[tuple[UUri, UUri, SubscriptionState]]:
        """Topic, subscriber and state of every Update to ``sink``."""
        found = []
        for message in self.messages(UMessageType.NOTIFICATION):
            if message.attributes.sink == sink:
                update = wire.read(message, pb.Update)
                about = uri_from_proto(update.topic), uri_from_proto(update.subscriber.uri)
                found.append((*about, SubscriptionState(update.status.state)))
        return found

    def states(self, sink: UUri) -> list[SubscriptionState]:
        """Of every Update to ``sink``."""
        return [state for _, _, state in self.updates(sink)]

    def commands(self, method: int | None = None, any_version: bool = False) -> list[UMessage]:
        """Requests to other services, in version 3 unless ``any_version``."""
        found = [each for each in self.messages(UMessageType.REQUEST) if any_version or version_of(each) == 3]
        return [each for each in found if method is None or method_of(each) == method]

    # Other services

    async def answered(self, command: UMessage, state: SubscriptionState | None = None, text: str = "") -> None:
        """The other service answers: with a state to Subscribe, with nothing to Unsubscribe."""
        proto: Message = pb.UnsubscribeResponse()
        if state is not None:
            proto = pb.SubscriptionResponse(status=status(state, text))
        payload = proto.SerializeToString()
        await self.send(response(self.clock.ms, command, payload, None, UPayloadFormat.PROTOBUF))

    async def grant(self, command: UMessage) -> None:
        """The other service answers a Subscribe with SUBSCRIBED, in the version in which it is asked."""
        if version_of(command) == 3:
            await self.answered(command, SUBSCRIBED)
            return
        topic = wire.read(command, pb4.SubscribeRequest).topic
        proto = pb4.SubscribeResponse(topic=topic, status=pb4.STATUS_SUBSCRIBED)
        await self.send(response(self.clock.ms, command, proto.SerializeToString(), None, UPayloadFormat.PROTOBUF))

    async def failed(self, command: UMessage, code: UCode, text: str = "no") -> None:
        """The other service, or a dispatcher for it, answers with an error."""
        payload = status_to_proto(code, text).SerializeToString()
        await self.send(response(self.clock.ms, command, payload, code, UPayloadFormat.PROTOBUF))

    async def update_received(
        self, topic: UUri, state: SubscriptionState, about: UUri = US, source: UUri | None = None, sink: UUri = US
    ) -> None:
        """The other service sends an Update."""
        proto = pb.Update(
            topic=uri_to_proto(topic), subscriber=pb.SubscriberInfo(uri=uri_to_proto(about)), status=status(state, "told")
        )
        source = source or USUBSCRIPTION.at(topic.authority, 0x8000)
        await self.send(notification(self.clock.ms, source, sink, proto.SerializeToString(), PLAIN))
