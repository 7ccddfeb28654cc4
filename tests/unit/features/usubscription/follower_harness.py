"""A follower of a uSubscription service that the test plays."""

from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from streamer.features.usubscription import Follower, v3, wire
from streamer.features.usubscription.config import ExternalUsubscriptionConfig, UsubscriptionConfig
from streamer.uprotocol.message import UMessage, UPayloadFormat, notification, response
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import status_to_proto, uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import USUBSCRIPTIONS
from tests.clock import FakeClock
from tests.constants import with_constants
from tests.hosted import StateOn
from tests.unit.features.host.fake_router import FakeRouter
from tests.unit.features.host.local_transport import RecordingLocalTransport
from tests.unit.features.usubscription.harness import ACCESS, CLOUD, LOCAL, PLAIN, US, status

SERVICE = UUri.parse("//dev1/0/3/0")
CHANGES = UUri.parse("//dev1/0/3/8000")
REFRESH_MS = 60_000
EMPTY = "a query without topic and subscriber"


class FollowerHarness:
    """The follower of a service at dev1, which the test plays. It follows LOCAL, and in version 3 the subscriber CLOUD."""

    def __init__(self, path: Path, service: UUri = SERVICE) -> None:
        external: Any = {"service": str(service), "topics": [str(LOCAL)], "refresh_s": REFRESH_MS / 1000}
        if service == SERVICE:
            external["subscribers"] = [str(CLOUD)]
        self.service = service
        self.options = UsubscriptionConfig(external=with_constants(ExternalUsubscriptionConfig, **external))
        self.path = path
        self.clock = FakeClock()
        self.open()

    def open(self) -> None:
        self.core = RecordingLocalTransport("gw1", *USUBSCRIPTIONS)
        self.state = StateOn(self.path, Follower.TABLES)
        self.router = FakeRouter()
        self.follower = Follower(self.core, self.state, self.router, self.options, ACCESS, self.clock)
        self.state.open()
        self.follower.restore()

    async def pass_ms(self, ms: int) -> None:
        self.core.said.clear()
        self.clock.advance(ms)
        await self.follower.run_once()

    def asked(self, method: int) -> list[UMessage]:
        return [message for message in self.core.said if message.attributes.sink == self.service._replace(resource=method)]

    def queries(self) -> dict[str, UMessage]:
        """The latest query for each topic or subscriber."""
        found = {}
        for message in self.asked(v3.FETCH_SUBSCRIPTIONS):
            proto = wire.read(message, pb.FetchSubscriptionsRequest)
            about = proto.topic if proto.WhichOneof("request") == "topic" else proto.subscriber.uri
            found[str(uri_from_proto(about)) if proto.WhichOneof("request") else EMPTY] = message
        return found

    def registered(self) -> list[UUri]:
        return [uri_from_proto(wire.read(each, pb.NotificationsRequest).topic) for each in self.asked(v3.REGISTER)]

    async def take(self, message: UMessage) -> None:
        done: list[bool] = []
        assert self.core.handler is not None
        self.core.handler(message, lambda: done.append(True))
        assert done == [True]
        await self.follower.run_once()

    async def answer(self, question: UMessage, *entries: pb.Subscription, has_more: bool = False) -> None:
        proto = pb.FetchSubscriptionsResponse(subscriptions=entries, has_more_records=has_more)
        await self.respond(question, proto)

    async def refuse(self, question: UMessage, code: UCode) -> None:
        await self.respond(question, status_to_proto(code, "no"), code)

    async def respond(self, question: UMessage, proto: Message, code: UCode | None = None) -> None:
        payload = proto.SerializeToString()
        await self.take(response(self.clock.ms, question, payload, code, UPayloadFormat.PROTOBUF))

    async def tell(self, topic: UUri, subscriber: UUri, state: int, source: UUri = CHANGES) -> None:
        await self.take(self.update(topic, subscriber, state, source))

    def update(self, topic: UUri, subscriber: UUri, state: int, source: UUri = CHANGES) -> UMessage:
        proto = pb.Update(
            topic=uri_to_proto(topic), subscriber=pb.SubscriberInfo(uri=uri_to_proto(subscriber)), status=status(state)
        )
        return notification(self.clock.ms, source, US, proto.SerializeToString(), PLAIN)
