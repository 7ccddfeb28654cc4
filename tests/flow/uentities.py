"""uEntities on the memory networks of `devices`, which speak raw protobuf."""

from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from streamer.transports.memory import MemoryTransport
from streamer.uprotocol.message import Options, UMessage, UMessageType, UPayloadFormat, publish, request, response
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.proto import usubscription_v4_pb2 as pb4
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.clock import FakeClock
from tests.listeners import RecordingListener
from tests.unit.features.usubscription.harness import version_of
from tests.waiting import until

SUBSCRIBE, UNSUBSCRIBE, FETCH_SUBSCRIPTIONS, REGISTER, UNREGISTER, FETCH_SUBSCRIBERS, RESET = 1, 2, 3, 6, 7, 8, 9
CHANGES = 0x8000
UNSUBSCRIBED, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING = range(4)
LATE_S = 60.0
REMOTE_TOPIC = UUri("dev2", 0x10, 1, 0x8001)
DAY_MS = 24 * 3_600_000

Proto = TypeVar("Proto", bound=Message)


class UEntity(RecordingListener):
    """Listens on a memory network and keeps what it receives."""

    transport: MemoryTransport

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    @property
    def now_ms(self) -> int:
        return self._clock.ms


class Client(UEntity):
    """A uEntity that sends Requests, is notified, and publishes."""

    def __init__(self, clock: FakeClock, uri: UUri) -> None:
        super().__init__(clock)
        self.uri = uri
        self.service = uri.authority
        self.version = 3  # of the service

    async def ask(self, method: int, proto: Message | bytes, form: UPayloadFormat = UPayloadFormat.PROTOBUF) -> UMessage:
        """Send a Request to our uSubscription service, and wait for its Response."""
        payload = proto if isinstance(proto, bytes) else proto.SerializeToString()
        options = Options(payload_format=form)
        asked = request(self.now_ms, self.uri, UUri(self.service, 0, self.version, method), 10_000, payload, options)
        return await self.answer_to(asked)

    async def answer_to(self, asked: UMessage) -> UMessage:
        """Send a Request, and wait for the one Response to it."""
        before = len(self.received)

        def answers() -> list[UMessage]:
            return [each.message for each in self.received[before:] if each.message.attributes.reqid == asked.id]

        await self.transport.send(asked)
        await until(answers, f"an answer to {asked.attributes.source}")
        (answer,) = answers()
        return answer

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
        """Returns the state in the response."""
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

    async def subscribers(self, topic: UUri, offset: int | None = None) -> tuple[list[UUri], bool]:
        """FetchSubscribers: one page, and whether there are more."""
        asked = pb.FetchSubscribersRequest(topic=uri_to_proto(topic), offset=offset)
        found = await self.granted(FETCH_SUBSCRIBERS, asked, pb.FetchSubscribersResponse)
        return [uri_from_proto(one.uri) for one in found.subscribers], found.has_more_records

    async def subscriptions(self, about: UUri, offset: int | None = None) -> tuple[Sequence[tuple[UUri, UUri, int]], bool]:
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
        """Wait until everything that the service has sent so far has arrived: it answers in order."""
        await self.subscribers(UUri(self.uri.authority, 0xFFF0, 1, 0x8000))

    @property
    def notifications(self) -> list[UMessage]:
        return [message for message in self.messages if message.attributes.type is UMessageType.NOTIFICATION]

    @property
    def updates(self) -> list[tuple[UUri, UUri, int]]:
        """The Updates that it received: (topic, subscriber, state)."""
        found = [pb.Update.FromString(message.payload or b"") for message in self.notifications]
        return [(uri_from_proto(u.topic), uri_from_proto(u.subscriber.uri), u.status.state) for u in found]

    async def is_told(self, topic: UUri, *states: int) -> None:
        """Wait for these states of our subscription to a topic. There must be no other Updates."""
        await until(lambda: len(self.updates) >= len(states), f"{len(states)} Updates")
        await self.all_is_said()
        assert self.updates == [(topic, self.uri, state) for state in states]

    async def listen(self, topic: UUri) -> None:
        await self.transport.register_listener(topic, None, self)

    @property
    def news(self) -> list[bytes | None]:
        """The payloads of every Publish that arrived."""
        return [message.payload for message in self.messages if message.attributes.type is UMessageType.PUBLISH]

    async def publish(self, topic: UUri, payload: bytes) -> None:
        await self.transport.send(publish(self.now_ms, topic, payload))


class RemoteService(UEntity):
    """Another device's uSubscription service. Requests wait in ``asked`` until the test answers them, in their version."""

    def __init__(self, clock: FakeClock, authority: str) -> None:
        super().__init__(clock)
        self.authority = authority

    @property
    def asked(self) -> list[tuple[int, UUri]]:
        """Method and topic of every Request so far."""
        return [(m.attributes.sink.resource, self.topic_of(m)) for m in self.messages if m.attributes.sink is not None]

    def topic_of(self, asked: UMessage) -> UUri:
        return uri_from_proto(pb.UnsubscribeRequest.FromString(asked.payload or b"").topic)

    async def next(self, number: int) -> UMessage:
        """The Request with that number, from 1; waits until it has arrived."""
        await until(lambda: len(self.messages) >= number, f"Request {number} at {self.authority}")
        return self.messages[number - 1]

    async def grant(self, asked: UMessage, state: int = SUBSCRIBED) -> None:
        """Answer OK, with a state if it is a Subscribe."""
        proto: Message = pb.UnsubscribeResponse()
        is_subscribe = asked.attributes.sink is not None and asked.attributes.sink.resource == SUBSCRIBE
        if is_subscribe and version_of(asked) == 4:
            status = state + pb4.STATUS_UNSUBSCRIBED
            proto = pb4.SubscribeResponse(topic=uri_to_proto(self.topic_of(asked)), status=status)  # type: ignore[arg-type]  # any int
        elif is_subscribe:
            proto = pb.SubscriptionResponse(topic=uri_to_proto(self.topic_of(asked)))
            proto.status.state = state  # type: ignore[assignment]  # any int of the enum
        await self._answer(asked, UCode.OK, proto)

    async def _answer(self, asked: UMessage, code: UCode, proto: Message) -> None:
        form = UPayloadFormat.PROTOBUF
        await self.transport.send(response(self.now_ms, asked, proto.SerializeToString(), code, form))


async def subscribed(app: Client, remote: RemoteService) -> None:
    """Subscribe to the remote topic; its service grants it."""
    assert await app.subscribe(REMOTE_TOPIC) == SUBSCRIBE_PENDING
    await remote.grant(await remote.next(1))
    await app.is_told(REMOTE_TOPIC, SUBSCRIBE_PENDING, SUBSCRIBED)
