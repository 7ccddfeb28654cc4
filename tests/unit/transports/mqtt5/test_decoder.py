"""PUBLISH packets as messages: what is read, what is remembered, what is malformed."""

from dataclasses import replace
from typing import Any

import mqtt5
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.transports.mqtt5 import wire
from streamer.transports.mqtt5.decoder import Arrived, PublishDecoder
from streamer.transports.mqtt5.publish import Publish
from streamer.uprotocol import cache
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id, new_id
from tests.unit.transports.counting_cache import CountingCache
from tests.unit.transports.mqtt5.messages import ATTRIBUTES, ID, PUBLISH, REQUEST, TOPIC, arriving

OWN = "gateway"
IN_VEHICLE = wire.topic_for(PUBLISH, "in-vehicle", OWN)


def decoder(structure: wire.Structure = "in-vehicle", identity_property: str | None = None) -> PublishDecoder:
    return PublishDecoder(structure, OWN, max_token_bytes=1024, flows=Flows(), identity_property=identity_property)


def decode(packet: Publish) -> UMessage:
    return decoder().decode(packet)


def published(topic: str, payload: bytes, **fields: Any) -> Publish:
    return arriving(mqtt5.PublishPacket(topic, payload, **fields).write())


def packet(
    properties: list[tuple[str, str]] | None = None, payload: bytes = b"x", topic: str = IN_VEHICLE, **fields: Any
) -> Publish:
    changes = dict(properties or [])
    usual = {"uP": "1", "1": format_id(ID), "2": "up-pub.v1", "3": str(TOPIC)}
    merged = {key: value for key, value in (usual | changes).items() if value != "-"}
    return published(topic, payload, user_properties=list(merged.items()), **fields)


@given(ATTRIBUTES, st.binary(max_size=300).filter(bool), st.integers(0, 2**48 - 1))
def test_every_attribute_arrives_as_it_was_sent(attributes: Attributes, payload: bytes, created_ms: int) -> None:
    assume(attributes.sink is not None)
    message = UMessage(new_id(created_ms), attributes, payload)
    topic = wire.topic_for(attributes, "off-vehicle", OWN)
    reader = decoder("off-vehicle")
    expected = replace(
        message, attributes=replace(attributes, token=attributes.token or None, traceparent=attributes.traceparent or None)
    )
    for _ in range(2):  # learned, then remembered
        assert reader.decode(arriving(wire.encode(message, topic, 7))) == expected


@given(st.permutations(list(range(8))))
def test_order_of_properties_does_not_matter(order: list[int]) -> None:
    topic = wire.topic_for(REQUEST, "in-vehicle", OWN)
    sent = arriving(wire.encode(UMessage(ID, REQUEST, b"x"), topic, 7))
    properties = sent.user_properties
    shuffled = published(
        topic, b"x", user_properties=[properties[index] for index in order] + properties[8:], message_expiry_interval=2
    )
    assert decode(shuffled) == UMessage(ID, REQUEST, b"x")


def test_messages_of_a_flow_share_their_attributes() -> None:
    reader = decoder()
    first = reader.decode(packet([("6", "5000")], message_expiry_interval=5))
    later = reader.decode(packet([("6", "5000"), ("1", format_id(new_id(1)))], message_expiry_interval=4))
    assert first.attributes is later.attributes
    assert first.id != later.id


def test_decoding_leaves_the_packet_alone() -> None:
    sent, reader = packet(), decoder()
    assert reader.decode(sent) == reader.decode(sent)


def test_many_flows_are_forgotten_and_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 3)
    reader = decoder()
    for ttl in range(10):
        assert reader.decode(packet([("6", str(ttl))])).attributes.ttl == ttl


@pytest.mark.parametrize(
    ("properties", "expiry_s", "ttl"),
    [([], None, None), ([], 3, 3000), ([("6", "2500")], 3, 2500), ([("6", "0")], None, 0), ([], 0, 0), ([("6", "0")], 0, 0)],
)
def test_ttl_property_wins_over_the_expiry_interval(
    properties: list[tuple[str, str]], expiry_s: int | None, ttl: int | None
) -> None:
    assert decode(packet(properties, message_expiry_interval=expiry_s)).attributes.ttl == ttl


@pytest.mark.parametrize("key", ["6", "7"])  # TTL and permission level
def test_numbers_have_32_bits(key: str) -> None:
    attributes = decode(packet([(key, str(2**32 - 1))])).attributes
    assert 2**32 - 1 in (attributes.ttl, attributes.permission_level)
    for number in (str(2**32), "9" * 11, "-1", "1.0", "\u0661"):
        with pytest.raises(MalformedPacketError):
            decode(packet([(key, number)]))


def test_first_of_equal_keys_wins() -> None:
    both = packet()
    doubled = [*both.user_properties, ("3", "//other/1/1/8000"), ("1", "nonsense"), ("uP", "2")]
    assert decode(published(IN_VEHICLE, b"x", user_properties=doubled)) == UMessage(ID, PUBLISH, b"x")


def test_empty_payload_is_none_unless_a_content_type_says_that_it_is_one() -> None:
    assert decode(packet(payload=b"")).payload is None
    assert decode(packet(payload=b"", content_type="7")).payload == b""


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (packet([("uP", "-")]), Malformed.MARKER),
        (packet([("uP", "-"), ("1", "-")]), Malformed.MARKER),
        (packet([("uP", "2")]), Malformed.VERSION),
        (packet([("uP", "2"), ("1", "-")]), Malformed.VERSION),
        (packet([("uP", "")]), Malformed.VERSION),
        (packet([("1", "-")]), Malformed.ID),
        (packet([("1", "nonsense")]), Malformed.ID),
        (packet([("1", "00000000-0000-4000-8000-000000000000")]), Malformed.ID),
        (packet(correlation_data=b"short"), Malformed.ID),
        (packet([("2", "-")]), Malformed.CODE),
        (packet([("2", "up-nix.v1")]), Malformed.CODE),
        (packet([("3", "-")]), Malformed.URI),
        (packet([("3", "veh1/1/1/1")]), Malformed.URI),
        (packet([("3", "//VEH1/1/1/1")]), Malformed.URI),
        (packet([("4", "//veh1/1/1")]), Malformed.URI),
        (packet([("5", "CS7")]), Malformed.CODE),
        (packet([("5", "UNSPECIFIED")]), Malformed.CODE),
        (packet([("6", "1.5")]), Malformed.NUMBER),
        (packet([("6", "-5")]), Malformed.NUMBER),
        (packet([("6", "٣")]), Malformed.NUMBER),
        (packet([("6", str(2**32))]), Malformed.NUMBER),
        (packet(message_expiry_interval=2**32 - 1), Malformed.NUMBER),
        (packet([("7", "9" * 5000)]), Malformed.NUMBER),
        (packet([("8", "seventeen")]), Malformed.CODE),
        (packet([("8", "17")]), Malformed.CODE),
        (packet(content_type="9"), Malformed.CODE),
        (packet(content_type="application/json"), Malformed.CODE),
    ],
)
def test_malformed_packet_is_refused_with_its_reason(bad: Publish, reason: Malformed) -> None:
    with pytest.raises(MalformedPacketError) as caught:
        decode(bad)
    assert caught.value.reason is reason


def test_no_error_repeats_a_token() -> None:
    with pytest.raises(MalformedPacketError) as caught:
        decode(packet([("10", "hush"), ("2", "bad")]))
    assert "hush" not in str(caught.value)


# -- the topic and the message ----------------------------------------------------------------------------------------

ENTITY = "//veh1/403BA/3/0"
METHOD = "//cloud/CD/4/B"


def request(source: str = ENTITY, sink: str = METHOD, **fields: Any) -> Publish:
    return packet([("2", "up-req.v1"), ("3", source), ("4", sink), ("5", "CS4"), ("6", "1000")], **fields)


AGREEING = {
    "publish": ("in-vehicle", packet()),
    "publish that a streamer addressed": ("in-vehicle", packet([("4", "//cloud/FFFFFFFF/FF/FFFF")])),
    "publish of a local source": ("in-vehicle", packet([("3", "/A8000/2/8A50")])),
    "lower-case digits and leading zeros": ("in-vehicle", packet([("3", "//veh1/000a8000/02/8a50")])),
    "request": ("in-vehicle", request(topic="veh1/3BA/4/3/0/cloud/CD/0/4/B")),
    "request to the sender's device": ("in-vehicle", request(sink="/CD/4/B", topic="veh1/3BA/4/3/0/veh1/CD/0/4/B")),
    "request to our device": ("in-vehicle", request(sink="/CD/4/B", topic="veh1/3BA/4/3/0/gateway/CD/0/4/B")),
    "request of a local source": ("in-vehicle", request("/403BA/3/0", topic="veh1/3BA/4/3/0/cloud/CD/0/4/B")),
    "request, off-vehicle": ("off-vehicle", request(topic="veh1/cloud")),
    "local sink, off-vehicle": ("off-vehicle", request(sink="/CD/4/B", topic="veh1/veh1")),
    "publish, off-vehicle": ("off-vehicle", packet([("4", "//cloud/FFFFFFFF/FF/FFFF")], topic="veh1/cloud")),
    "publish to everybody": ("off-vehicle", packet([("4", "//*/FFFFFFFF/FF/FFFF")], topic="veh1/*")),
}


@pytest.mark.parametrize(("structure", "honest"), AGREEING.values(), ids=AGREEING)
def test_message_on_its_own_topic_is_read(structure: wire.Structure, honest: Publish) -> None:
    assert decoder(structure).decode(honest).id == ID


LOCAL = {
    "publish": ("in-vehicle", packet([("3", "/A8000/2/8A50")]), "//veh1/A8000/2/8A50", None),
    "request to the sender's device": AGREEING["request to the sender's device"] + (ENTITY, "//veh1/CD/4/B"),
    "request to our device": AGREEING["request to our device"] + (ENTITY, "//gateway/CD/4/B"),
    "request of a local source": AGREEING["request of a local source"] + ("//veh1/403BA/3/0", METHOD),
    "local sink, off-vehicle": AGREEING["local sink, off-vehicle"] + (ENTITY, "//veh1/CD/4/B"),
    "both": (
        "in-vehicle",
        request("/403BA/3/0", "/CD/4/B", topic="veh1/3BA/4/3/0/veh1/CD/0/4/B"),
        "//veh1/403BA/3/0",
        "//veh1/CD/4/B",
    ),
}


@pytest.mark.parametrize(("structure", "local", "source", "sink"), LOCAL.values(), ids=LOCAL)
def test_address_without_authority_gets_that_of_the_topic(
    structure: wire.Structure, local: Publish, source: str, sink: str | None
) -> None:
    attributes = decoder(structure).decode(local).attributes
    assert (attributes.source, attributes.sink) == (UUri.parse(source), None if sink is None else UUri.parse(sink))
    assert attributes.problems == ()


def test_publish_to_no_authority_gets_none() -> None:
    local = packet([("4", "/FFFFFFFF/FF/FFFF")], topic="veh1/veh1")
    sink = decoder("off-vehicle").decode(local).attributes.sink
    assert sink is not None
    assert sink.authority == ""


def test_local_address_on_a_topic_whose_authority_is_none_is_malformed() -> None:
    with pytest.raises(MalformedPacketError) as caught:
        decoder().decode(packet([("3", "/A8000/2/8A50")], topic="VEH 1/8000/A/2/8A50"))
    assert caught.value.reason is Malformed.URI


DISAGREEING = {
    "source of somebody else": ("off-vehicle", request(topic="evil/cloud")),
    "sink of somebody else": ("off-vehicle", request(topic="veh1/evil")),
    "publish of somebody else": ("off-vehicle", packet([("4", "//veh1/FFFFFFFF/FF/FFFF")], topic="evil/veh1")),
    "publish without the sink that the topic has": ("off-vehicle", packet(topic="veh1/cloud")),
    "publish to everybody on the topic of one": ("off-vehicle", packet([("4", "//*/FFFFFFFF/FF/FFFF")], topic="veh1/cloud")),
    "local sink on the topic of another": ("off-vehicle", request(sink="/CD/4/B", topic="veh1/cloud")),
    "topic with another level": ("off-vehicle", request(topic="veh1/cloud/more")),
    "topic without levels": ("off-vehicle", request(topic="veh1")),
    "topic of the other structure": ("off-vehicle", request(topic="veh1/3BA/4/3/0/cloud/CD/0/4/B")),
    "authority": ("in-vehicle", packet(topic="evil/8000/A/2/8A50")),
    "type": ("in-vehicle", packet(topic="veh1/8001/A/2/8A50")),
    "instance": ("in-vehicle", packet(topic="veh1/8000/B/2/8A50")),
    "version": ("in-vehicle", packet(topic="veh1/8000/A/3/8A50")),
    "resource": ("in-vehicle", packet(topic="veh1/8000/A/2/8A51")),
    "lower case in the topic": ("in-vehicle", packet(topic="veh1/8000/a/2/8A50")),
    "publish on the topic of a request": ("in-vehicle", packet(topic="veh1/8000/A/2/8A50/cloud/CD/0/4/B")),
    "request on the topic of a publish": ("in-vehicle", request(topic="veh1/3BA/4/3/0")),
    "request of a local source to another sink": ("in-vehicle", request("/403BA/3/0", topic="veh1/3BA/4/3/0/veh2/CD/0/4/B")),
    "request to another method": ("in-vehicle", request(topic="veh1/3BA/4/3/0/cloud/CD/0/4/C")),
    "request without sink": ("in-vehicle", request(sink="-", topic="veh1/3BA/4/3/0/cloud/CD/0/4/B")),
}


@pytest.mark.parametrize(("structure", "hostile"), DISAGREEING.values(), ids=DISAGREEING)
def test_message_on_the_topic_of_another_is_malformed(structure: wire.Structure, hostile: Publish) -> None:
    with pytest.raises(MalformedPacketError) as caught:
        decoder(structure).decode(hostile)
    assert caught.value.reason is Malformed.ADDRESS


def test_what_is_on_the_wrong_topic_is_told_at_a_bounded_length() -> None:
    with pytest.raises(MalformedPacketError) as caught:
        decoder("off-vehicle").decode(request(topic="evil/cloud"))
    assert str(caught.value) == f"address: on 'evil/cloud', source {ENTITY}, sink {METHOD}"
    with pytest.raises(MalformedPacketError) as caught:
        decoder("off-vehicle").decode(request(topic="evil/" + "x" * 60_000))
    assert len(str(caught.value)) < 500


def test_what_was_learned_on_the_right_topic_does_not_help_on_another() -> None:
    reader = decoder("off-vehicle")
    assert reader.decode(request(topic="veh1/cloud")).id == ID
    for _ in range(2):
        with pytest.raises(MalformedPacketError):
            reader.decode(request(topic="evil/cloud"))


# -- the header -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["x" * 1025, "ä" * 513, "\U0001f600" * 257])
def test_token_beyond_its_bound_is_malformed_and_not_repeated(token: str) -> None:
    with pytest.raises(MalformedPacketError) as caught:
        decode(packet([("10", token)]))
    assert caught.value.reason is Malformed.HEADER
    assert token[:8] not in str(caught.value)


@pytest.mark.parametrize("token", ["x" * 1024, "ä" * 512, ""])
def test_token_within_its_bound_arrives(token: str) -> None:
    assert decode(packet([("10", token)])).attributes.token == token


def test_what_differs_in_every_message_is_read_once_per_flow() -> None:
    reader = decoder()
    reader._known = known = CountingCache[Arrived, Attributes]()
    shared = set()
    for n in range(2000):
        reqid, token, traceparent = new_id(n), f"token {n}", f"00-{n + 1:032x}-{n + 1:016x}-01"
        changes = [("1", format_id(new_id(n))), ("10", token), ("11", traceparent)]
        message = reader.decode(packet(changes, correlation_data=reqid))
        assert message.attributes == replace(PUBLISH, token=token, traceparent=traceparent, reqid=reqid)
        shared.add(id(message.attributes.shared))
    assert len(known.learned) == 1
    assert len(shared) == 1
    assert len(reader._known) == len(reader._flows) == 1


def test_flow_stays_known_while_another_changes_its_header_in_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 50)
    reader = decoder()
    reader._known = known = CountingCache[Arrived, Attributes]()
    for n in range(1000):
        reader.decode(packet())
        reader.decode(packet([("3", "//evil/1/1/8000"), ("6", str(n)), ("7", str(n))], topic="evil/1/0/1/8000"))
        reader.decode(packet([("3", "//evil/1/1/8000"), (f"junk{n}", "x")], topic="evil/1/0/1/8000"))
    assert [topic for topic, _, _, _ in known.learned].count(IN_VEHICLE) == 1


def test_headers_of_8_kib_take_no_more_than_the_bound_of_the_cache() -> None:
    reader = decoder()
    for n in range(3000):
        reader.decode(packet([("junk", f"{n}".ljust(8000, "x"))]))
    kept = [*reader._known, *reader._known._old]
    assert sum(len(value) for _, properties, _, _ in kept for _, value in properties) < 2 * 4 * 1024 * 1024


# -- who has sent it --------------------------------------------------------------------------------------------------


def test_identity_is_what_the_broker_adds() -> None:
    reader = decoder(identity_property="user")
    assert reader.decode(packet([("user", "alice")])).attributes.provenance.identity == "alice"
    assert reader.decode(packet([("user", "bob"), ("10", "t")])).attributes.provenance.identity == "bob"
    assert reader.decode(packet()).attributes.provenance.identity is None


def test_property_means_nothing_unless_it_is_configured() -> None:
    assert decode(packet([("user", "alice")])).attributes.provenance.identity is None


def test_second_identity_is_malformed() -> None:
    both = packet([("user", "admin")])
    doubled = published(IN_VEHICLE, b"x", user_properties=[*both.user_properties, ("user", "mallory")])
    for _ in range(2):
        with pytest.raises(MalformedPacketError) as caught:
            decoder(identity_property="user").decode(doubled)
        assert caught.value.reason is Malformed.IDENTITY


# -- senders by the specification before 1.6.0-alpha.5

RESPONSE_PROPERTIES = [("2", "up-res.v1"), ("3", "//cloud/CD/4/B"), ("4", "//veh1/403BA/3/0")]
RESPONSE_TOPIC = "cloud/CD/0/4/B/veh1/3BA/4/3/0"
EARLIER_ID, REQUESTED = new_id(1), new_id(2)


def test_payload_format_is_user_property_12_where_no_content_type_is() -> None:
    for later, earlier in ((None, "3"), ("3", "3"), ("3", "7"), ("3", "invalid")):
        found = decode(packet([("12", earlier)], content_type=later))
        assert found.attributes.payload_format == 3
    assert decode(packet([("12", "3")], payload=b"")).payload == b""
    assert decode(packet([("12", "0")], payload=b"")) == decode(packet(payload=b"", content_type="0"))
    with pytest.raises(MalformedPacketError, match="invalid"):
        decode(packet([("12", "invalid")]))


def test_request_id_is_user_property_9_where_no_correlation_data_is() -> None:
    def reqid(earlier: str, later: bytes | None = None) -> bytes | None:
        sent = packet([*RESPONSE_PROPERTIES, ("9", earlier)], topic=RESPONSE_TOPIC, correlation_data=later)
        return decode(sent).attributes.reqid

    assert reqid(format_id(EARLIER_ID)) == EARLIER_ID
    assert reqid(format_id(EARLIER_ID), REQUESTED) == REQUESTED
    assert reqid("invalid", REQUESTED) == REQUESTED
    with pytest.raises(MalformedPacketError) as refused:
        reqid("invalid")
    assert refused.value.reason is Malformed.ID


def test_request_ids_as_user_properties_are_one_flow() -> None:
    reader, requests = decoder(), [new_id(number) for number in range(3)]
    sent = [packet([*RESPONSE_PROPERTIES, ("9", format_id(reqid))], topic=RESPONSE_TOPIC) for reqid in requests]
    responses = [reader.decode(each) for each in sent]
    assert [each.attributes.reqid for each in responses] == requests
    assert len({id(each.attributes.shared) for each in responses}) == 1
