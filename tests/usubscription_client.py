"""A client of core.usubscription that does not use our code: raw protobuf over `aiomqtt` or `eclipse-zenoh`.

Only the generated protobuf modules are shared, as in `tests.independent`.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import zenoh
from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.message import Message

from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide, is_matched
from tests.waiting import until

SUBSCRIBE, UNSUBSCRIBE, FETCH_SUBSCRIPTIONS, REGISTER, UNREGISTER, FETCH_SUBSCRIBERS, RESET = 1, 2, 3, 6, 7, 8, 9
CHANGES = 0x8000
WRAPPED, PLAIN = 1, 2

UNSUBSCRIBED, SUBSCRIBE_PENDING, SUBSCRIBED, UNSUBSCRIBE_PENDING = range(4)
OK, INVALID_ARGUMENT, PERMISSION_DENIED = 0, 3, 7

Answer = TypeVar("Answer", bound=Message)


class Refused(NamedTuple):
    """The code and the text of an answer that was no success."""

    code: int
    text: str


def proto_uri(uri: Uri) -> v1.UUri:
    return v1.UUri(authority_name=uri[0], ue_id=uri[1], ue_version_major=uri[2], resource_id=uri[3])


def plain_uri(uri: v1.UUri) -> Uri:
    return uri.authority_name, uri.ue_id, uri.ue_version_major, uri.resource_id


class UsubscriptionClient:
    """The uEntity ``entity`` asks the uSubscription service at ``service``, an authority, through ``side``."""

    def __init__(self, side: MqttSide | ZenohSide, entity: Uri, service: str, wrapped: bool = False) -> None:
        self.side = side
        self.entity = entity
        self.service = service
        self.form = WRAPPED if wrapped else PLAIN

    async def call(self, method: int, request: Message, answer: type[Answer]) -> Answer | Refused:
        """Send the Request and wait for its Response."""
        asked = await self.ask(method, request)
        return await self.answer_to(asked, answer)

    async def ask(self, method: int, request: Message, ttl: int = 30_000) -> Plain:
        """Send the Request only."""
        payload = request
        if self.form == WRAPPED:
            payload = AnyProto()
            payload.Pack(request)
        asked = Plain(
            2, self.entity, (self.service, 0, 3, method), payload.SerializeToString(), 5, ttl, payload_format=self.form
        )
        await self.side.send([asked])
        return asked

    async def answer_to(self, asked: Plain, answer: type[Answer], within_s: float = 30) -> Answer | Refused:
        """The Response to a Request that was sent."""
        await until(lambda: self._answers(asked) != [], within_s=within_s, what=f"an answer to {asked}")
        found = self._answers(asked)[0]
        assert asked.sink is not None
        assert (found.source, found.sink, found.ttl) == (asked.sink, self.entity, asked.ttl)
        if found.commstatus:
            status = self._read(found, v1.UStatus)
            assert status.code == found.commstatus
            return Refused(found.commstatus, status.message)
        return self._read(found, answer)

    def _answers(self, asked: Plain) -> list[Plain]:
        return [each for each in list(self.side.arrived) if each.type == 3 and each.reqid == asked.id]

    def _read(self, message: Plain, kind: type[Answer]) -> Answer:
        assert message.payload_format == self.form
        if self.form == PLAIN:
            return kind.FromString(message.payload)
        wrapped, read = AnyProto.FromString(message.payload), kind()
        assert wrapped.Unpack(read)
        return read

    async def subscribe(self, topic: Uri, **attributes: Any) -> int | Refused:
        """The state that the service answers with."""
        request = pb.SubscriptionRequest(topic=proto_uri(topic))
        if attributes:
            request.attributes.CopyFrom(pb.SubscribeAttributes(**attributes))
        answer = await self.call(SUBSCRIBE, request, pb.SubscriptionResponse)
        if isinstance(answer, Refused):
            return answer
        assert plain_uri(answer.topic) == topic
        return answer.status.state

    async def unsubscribe(self, topic: Uri) -> Refused | None:
        answer = await self.call(UNSUBSCRIBE, pb.UnsubscribeRequest(topic=proto_uri(topic)), pb.UnsubscribeResponse)
        return answer if isinstance(answer, Refused) else None

    async def subscribers(self, topic: Uri, offset: int | None = None) -> tuple[list[Uri], bool]:
        """FetchSubscribers: one page, and whether there is more."""
        request = pb.FetchSubscribersRequest(topic=proto_uri(topic), offset=offset)
        answer = await self.call(FETCH_SUBSCRIBERS, request, pb.FetchSubscribersResponse)
        assert not isinstance(answer, Refused), answer
        return [plain_uri(each.uri) for each in answer.subscribers], answer.has_more_records

    async def topics_of(self, subscriber: Uri) -> dict[Uri, int]:
        """FetchSubscriptions of a subscriber: topic → state, over all pages."""
        found: dict[Uri, int] = {}
        for _ in itertools.count():
            request = pb.FetchSubscriptionsRequest(
                subscriber=pb.SubscriberInfo(uri=proto_uri(subscriber)), offset=len(found)
            )
            answer = await self.call(FETCH_SUBSCRIPTIONS, request, pb.FetchSubscriptionsResponse)
            assert not isinstance(answer, Refused), answer
            found |= {plain_uri(each.topic): each.status.state for each in answer.subscriptions}
            if not answer.has_more_records:
                break
        return found

    def updates(self, topic: Uri, subscriber: Uri | None = None) -> list[int]:
        """The states that Update notifications to this uEntity have told so far, of one subscriber (this one).

        At least once: after a kill a notification may come again, with the same id.
        """
        of = subscriber or self.entity
        found: list[int] = []
        for each in {each.id: each for each in list(self.side.arrived)}.values():
            if each.type == 4 and each.sink == self.entity and each.source[1:] == (0, 3, CHANGES):
                update = pb.Update.FromString(each.payload)
                if (plain_uri(update.topic), plain_uri(update.subscriber.uri)) == (topic, of):
                    found.append(update.status.state)
        return found

    async def until_updates(
        self, topic: Uri, states: list[int], subscriber: Uri | None = None, within_s: float = 30
    ) -> None:
        """Exactly these Updates have come, in this order."""
        what = f"Updates {states} for {self.entity}"
        try:
            await until(lambda: self.updates(topic, subscriber) == states, within_s=within_s, what=what)
        except AssertionError as exc:
            raise AssertionError(f"{exc}; came: {self.updates(topic, subscriber)}") from exc

    def payloads(self, topic: Uri) -> list[bytes]:
        """What was published on a topic and has arrived here."""
        return [each.payload for each in list(self.side.arrived) if each.type == 1 and each.source == topic]


async def until_heard(side: ZenohSide, message: Plain, key: Callable[[Plain], str], is_heard: bool = True) -> None:
    """Somebody (nobody) on the Zenoh network listens to a message of this kind."""
    publisher = side.session.declare_publisher(key(message), allowed_destination=zenoh.Locality.REMOTE)
    try:
        await until(lambda: is_matched(publisher) is is_heard, within_s=30, what=f"listening to {key(message)}: {is_heard}")
    finally:
        publisher.undeclare()
