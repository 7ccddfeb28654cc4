"""Random Requests of clients to the services, and what the answers to them say. No I/O."""

import random
from typing import Any, NamedTuple

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from streamer.uprotocol.message import Options, UMessage, UPayloadFormat, request
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import ustreamer_v1_pb2 as us
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_from_proto, uri_to_proto
from streamer.uprotocol.uri import UUri
from tests.fault.services_child import BROADCAST, PARTITIONS, PROVIDER
from tests.fault.services_model import OK, OWN, PAGE, Ask, ModelState

TTL_MS = 10_000
TOPICS = [UUri.parse(text) for text in ("//dev1/B0/1/8001", "//dev1/B0/1/8002", "//gw1/B1/1/8001")]
TOPICS += [UUri.parse(text) for text in ("//dev2/B0/1/8001", "//dev2/B0/1/8002", "//dev4/B0/1/8001")]
APPS = [UUri.parse(text) for text in ("//dev1/A1/1/0", "//dev1/A2/1/0", "//dev1/A3/1/0", "//gw1/A4/1/0", "//dev3/A5/1/0")]
SERVICE = UUri.parse("//dev2/0/3/0")
OWN_SERVICE = UUri.parse("//dev1/0/3/0")
SUBSCRIBERS = [*APPS, SERVICE]
WATCHERS = [UUri.parse("//dev1/EE/1/0"), UUri.parse("//dev3/EF/1/0"), APPS[0]]
RULES = ["//dev1/B0/1/8001", "//dev1/B0/1/FFFF", "//*/FFFFFFFF/FF/8002", "//dev2/B0/1/8001"]
FIRED = UUri.parse(PROVIDER)
_COVERED = {"front": ["front"], "front/left": ["front/left"], "+": ["front", "rear"], "front/*": ["front", "front/left"]}
COVERS = {
    f"{PROVIDER}/{BROADCAST}/{pattern}": [FIRED._replace(resource=PARTITIONS[name]) for name in names]
    for pattern, names in _COVERED.items()
}
METHODS = {"subscribe": 1, "unsubscribe": 2, "register": 6, "unregister": 7, "fetch": 8, "reset": 9}
PLAIN = Options(payload_format=UPayloadFormat.PROTOBUF)

USUBSCRIPTION, RULES_HELD, RECEIVERS_HELD = "usubscription", "rules", "receivers"
"""Which service a Request changes: each keeps an order of its own."""


class GeneratedRequest(NamedTuple):
    """A Request, what it means to the model, and the states of which service it changes."""

    message: UMessage
    event: Any
    possible: str


class RequestGenerator:
    """Makes Requests up."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._ends: set[int] = set()

    def next_request(self, now_ms: int) -> GeneratedRequest:
        """A Request of any kind."""
        pick = self._chance.choice
        match self._chance.choices(
            ("subscribe", "unsubscribe", "fetch", "register", "unregister", "reset", "rule", "receiver"),
            (42, 24, 8, 6, 4, 1.5, 7, 7),
        )[0]:
            case "rule":
                return self._rule(now_ms, pick(("stop", "start")), pick(RULES))
            case "receiver":
                return self._receiver(now_ms, pick(("receive", "leave")), pick([APPS[0], APPS[4]]), pick(list(COVERS)))
            case "subscribe":
                period_ms = pick((None, None, 100, 250, 1000))
                ask = Ask("subscribe", pick(TOPICS), pick(SUBSCRIBERS), pick(("dev1", OWN)), self._end(now_ms), period_ms)
                return self._usubscription(now_ms, ask)
            case "unsubscribe":
                return self._usubscription(now_ms, Ask("unsubscribe", pick(TOPICS), pick(SUBSCRIBERS), "dev1"))
            case "fetch":
                return self._usubscription(
                    now_ms, Ask("fetch", pick(TOPICS), pick(APPS), "dev1", offset=pick((0, 0, 1, 3, 9)))
                )
            case "reset":
                return self._usubscription(
                    now_ms, Ask("reset", TOPICS[0], pick((OWN_SERVICE, OWN_SERVICE, APPS[0])), "dev1")
                )
            case method:
                return self._usubscription(now_ms, Ask(method, pick(TOPICS), pick(WATCHERS), pick(("dev1", OWN))))

    def _end(self, now_ms: int) -> int | None:
        """When a subscription ends; no two end at the same time, which would leave the order open."""
        if self._chance.random() < 0.6:
            return None
        end_ms = now_ms + self._chance.choice((-5, 2_000, 60_000, 400_000)) + self._chance.randrange(1000)
        while end_ms in self._ends:
            end_ms += 1
        self._ends.add(end_ms)
        return end_ms

    def _usubscription(self, now_ms: int, ask: Ask) -> GeneratedRequest:
        topic = uri_to_proto(ask.topic)
        proto: Message
        match ask.method:
            case "subscribe":
                proto = pb.SubscriptionRequest(topic=topic)
                if ask.expire_ms is not None:
                    seconds, ms = divmod(ask.expire_ms, 1000)
                    proto.attributes.expire.CopyFrom(Timestamp(seconds=seconds, nanos=ms * 1_000_000))
                if ask.period_ms is not None:
                    proto.attributes.sample_period_ms = ask.period_ms
            case "unsubscribe":
                proto = pb.UnsubscribeRequest(topic=topic)
            case "fetch":
                proto = pb.FetchSubscribersRequest(topic=topic, offset=ask.offset)
            case "reset":
                proto = pb.ResetRequest()
            case _:
                proto = pb.NotificationsRequest(topic=topic)
        return GeneratedRequest(
            _request(now_ms, ask.source, UUri(ask.via, 0, 3, METHODS[ask.method]), proto), ask, USUBSCRIPTION
        )

    def _rule(self, now_ms: int, verb: str, rule: str) -> GeneratedRequest:
        topic = us.DispatchRule(topic=uri_to_proto(UUri.parse(rule)))
        kind = us.StopDispatchRequest if verb == "stop" else us.StartDispatchRequest
        method = UUri(OWN, 4, 1, 1 if verb == "stop" else 2)
        message = _request(now_ms, self._chance.choice(APPS[:3]), method, kind(rule=topic))
        return GeneratedRequest(message, (verb, rule), RULES_HELD)

    def _receiver(self, now_ms: int, verb: str, source: UUri, pattern: str) -> GeneratedRequest:
        kind = us.RegisterMulticastReceiverRequest if verb == "receive" else us.UnregisterMulticastReceiverRequest
        method = UUri(OWN, 4, 1, 0x10 if verb == "receive" else 0x11)
        message = _request(now_ms, source, method, kind(multicast_id=pattern))
        return GeneratedRequest(message, (verb, source, pattern), RECEIVERS_HELD)


def fetch_pages(now_ms: int, kind: str, uri: UUri) -> list[UMessage]:
    """FetchSubscriptions for all pages that there may be. ``kind``: topic or subscriber."""
    most = len(SUBSCRIBERS if kind == "topic" else TOPICS)
    about: v1.UUri | pb.SubscriberInfo = uri_to_proto(uri)
    if kind == "subscriber":
        about = pb.SubscriberInfo(uri=uri_to_proto(uri))
    named: dict[str, Any] = {kind: about}
    protos = [pb.FetchSubscriptionsRequest(offset=offset, **named) for offset in range(0, most + PAGE, PAGE)]
    return [_request(now_ms, APPS[0], UUri(OWN, 0, 3, 3), proto) for proto in protos]


def fetch_nothing(now_ms: int) -> UMessage:
    """A Request that changes nothing, and makes the service look at the clock first."""
    return _request(now_ms, APPS[0], UUri(OWN, 0, 3, 8), pb.FetchSubscribersRequest(topic=uri_to_proto(TOPICS[0])))


def fetch_rules(now_ms: int) -> UMessage:
    """What is stopped."""
    return _request(now_ms, APPS[0], UUri(OWN, 4, 1, 3), us.FetchStopsRequest())


def asked_anew(now_ms: int, message: UMessage) -> UMessage:
    """The same, as a client that has lost its patience asks it: with another id."""
    attributes = message.attributes
    assert attributes.sink is not None
    return request(now_ms, attributes.source, attributes.sink, TTL_MS, message.payload, PLAIN)


def _request(now_ms: int, source: UUri, method: UUri, proto: Message) -> UMessage:
    return request(now_ms, source, method, TTL_MS, proto.SerializeToString(), PLAIN)


def answer_of(message: UMessage, looks: bool) -> Any:
    """Code, and the state, the page, or the rules."""
    attributes = message.attributes
    payload, code = message.payload or b"", int(attributes.commstatus or OK)
    if code != OK:
        return code, None
    if attributes.source.ue_id == 4:
        if attributes.source.resource == 1:
            return code, us.StopDispatchResponse.FromString(payload).changed
        if attributes.source.resource == 3:
            stops = us.FetchStopsResponse.FromString(payload).stops
            return code, tuple(str(uri_from_proto(each.rule.topic)) for each in stops)
        return code, None
    if attributes.source.resource == 1:
        return code, pb.SubscriptionResponse.FromString(payload).status.state
    if attributes.source.resource == 3:
        return code, pb.FetchSubscriptionsResponse.FromString(payload)
    if attributes.source.resource == 8 and not looks:
        found = pb.FetchSubscribersResponse.FromString(payload)
        return code, (tuple(uri_from_proto(each.uri) for each in found.subscribers), found.has_more_records)
    return code, None


Row = tuple[UUri, UUri, int, int | None, int | None]


def rows_of(model: ModelState, of: str, uri: UUri) -> list[Row]:
    """What is to be listed. ``of``: topic or subscriber."""
    chosen = [each for each in model.listed() if getattr(each, of) == uri]
    return [(each.topic, each.subscriber, each.state, each.expire_ms, each.period_ms) for each in chosen]


def joined(answers: list[pb.FetchSubscriptionsResponse]) -> list[Row]:
    """The entries of all pages, which have to be full but for the last, and to say whether more follow."""
    rows: list[Row] = []
    total = sum(len(answer.subscriptions) for answer in answers)
    for n, answer in enumerate(answers):
        expected = min(PAGE, max(0, total - n * PAGE))
        assert (len(answer.subscriptions), answer.has_more_records) == (expected, total > (n + 1) * PAGE), answers
        for each in answer.subscriptions:
            attributes = each.attributes
            expire_ms = attributes.expire.ToMilliseconds() if attributes.HasField("expire") else None
            period_ms = attributes.sample_period_ms if attributes.HasField("sample_period_ms") else None
            about = uri_from_proto(each.topic), uri_from_proto(each.subscriber.uri)
            rows.append((*about, each.status.state, expire_ms, period_ms))
    return rows
