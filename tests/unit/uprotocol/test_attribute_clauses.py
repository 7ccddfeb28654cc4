"""What `uattributes.adoc` demands of the messages of each type, one test for each of its clauses."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from streamer.uprotocol.message import (
    Attributes,
    InvalidMessageError,
    Options,
    UMessage,
    UMessageType,
    UPayloadFormat,
    UPriority,
    notification,
    publish,
    request,
    response,
)
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import created_ms, new_id

NOW_MS = 1_700_000_000_000
TOPIC, METHOD, APP = UUri("veh1", 0xA, 1, 0x8000), UUri("veh1", 0xB, 1, 7), UUri("cloud", 0xC, 1, 0)

ASKED = request(NOW_MS, APP, METHOD, 1000)
PUBLISH = publish(NOW_MS, TOPIC).attributes
NOTIFICATION = notification(NOW_MS, TOPIC, APP).attributes
REQUEST = ASKED.attributes
RESPONSE = response(NOW_MS, ASKED).attributes
ALL = (PUBLISH, NOTIFICATION, REQUEST, RESPONSE)

RESOURCES = (0, 1, 7, 0x7FFF, 0x8000, 0x8A50, 0xFFFE, 0xFFFF)
METHODS = {1, 7, 0x7FFF}
TOPICS = {0x8000, 0x8A50, 0xFFFE}


def sources_of(attributes: Attributes) -> set[int]:
    """The resources that the source of such a message may have."""
    return {each for each in RESOURCES if not replace(attributes, source=attributes.source._replace(resource=each)).problems}


def sinks_of(attributes: Attributes) -> set[int]:
    """The same for the sink."""
    sink = attributes.sink
    assert sink is not None
    return {each for each in RESOURCES if not replace(attributes, sink=sink._replace(resource=each)).problems}


def priorities_of(attributes: Attributes) -> set[UPriority]:
    return {each for each in UPriority if not replace(attributes, priority=each).problems}


def ttls_of(attributes: Attributes, ttls: Iterable[int | None] = (None, 0, 1, 0xFFFF_FFFF, 1 << 32)) -> set[int | None]:
    return {each for each in ttls if not replace(attributes, ttl=each).problems}


def test_every_message_has_an_id_of_its_own_that_tells_when_it_was_made() -> None:
    first, second = publish(NOW_MS, TOPIC), publish(NOW_MS, TOPIC)
    assert first.id != second.id
    assert created_ms(first.id) == NOW_MS
    for uuid in (b"", bytes(16), first.id[:15]):
        with pytest.raises(InvalidMessageError):
            replace(first, id=uuid).check()


def test_without_a_priority_a_message_is_of_the_default_class() -> None:
    assert PUBLISH.priority is UPriority.UNSPECIFIED
    assert PUBLISH.priority_class == replace(PUBLISH, priority=UPriority.CS1).priority_class


def test_a_message_is_expired_after_its_creation_plus_its_ttl() -> None:
    message = UMessage(new_id(NOW_MS), replace(PUBLISH, ttl=1000))
    assert [message.is_expired(NOW_MS + later, 0) for later in (0, 1000, 1001)] == [False, False, True]


@pytest.mark.parametrize("ttl", [0, None])
def test_a_message_with_ttl_0_or_none_never_expires(ttl: int | None) -> None:
    assert not UMessage(new_id(NOW_MS), replace(PUBLISH, ttl=ttl)).is_expired(1 << 60, 0)


@pytest.mark.parametrize("attributes", ALL, ids=lambda each: each.type.name)
def test_a_traceparent_is_empty_or_valid(attributes: Attributes) -> None:
    valid = f"00-{'a' * 32}-{'b' * 16}-01"
    for text in (None, "", valid, f"01{valid[2:]}-more"):
        assert replace(attributes, traceparent=text).problems == ()
    for text in ("x", f"ff{valid[2:]}", f"{valid}-more"):
        assert replace(attributes, traceparent=text).problems


@pytest.mark.parametrize("attributes", ALL, ids=lambda each: each.type.name)
def test_a_format_needs_a_payload(attributes: Attributes) -> None:
    told = replace(attributes, payload_format=UPayloadFormat.JSON)
    assert UMessage(new_id(NOW_MS), told, b"{}").check()
    with pytest.raises(InvalidMessageError):
        UMessage(new_id(NOW_MS), told, None).check()


def test_a_message_says_its_type() -> None:
    kinds = [UMessageType.PUBLISH, UMessageType.NOTIFICATION, UMessageType.REQUEST, UMessageType.RESPONSE]
    assert [attributes.type for attributes in ALL] == kinds
    assert all(replace(attributes, type=UMessageType.UNSPECIFIED).problems for attributes in ALL)


def test_a_publish_comes_from_a_topic() -> None:
    assert sources_of(PUBLISH) == TOPICS


def test_the_sink_of_a_publish_is_an_authority_and_wildcards_else() -> None:
    for sink in (None, everything_at("cloud"), everything_at("*")):
        assert replace(PUBLISH, sink=sink).problems == ()
    everything = everything_at("cloud")
    changed = ({"authority": ""}, {"ue_id": 0xFFFF}, {"version": 1}, {"resource": 0}, {"resource": 0x8000})
    for sink in (APP, UUri("", 0, 0, 0), *(everything._replace(**each) for each in changed)):
        assert replace(PUBLISH, sink=sink).problems


def test_a_notification_comes_from_a_topic() -> None:
    assert sources_of(NOTIFICATION) == TOPICS


def test_a_notification_goes_to_a_uentity() -> None:
    assert sinks_of(NOTIFICATION) == {0}
    assert replace(NOTIFICATION, sink=None).problems


def test_a_request_comes_from_a_uentity() -> None:
    assert sources_of(REQUEST) == {0}


def test_a_request_goes_to_a_method() -> None:
    assert sinks_of(REQUEST) == METHODS
    assert replace(REQUEST, sink=None).problems


def test_a_request_is_of_class_cs4_or_higher() -> None:
    assert priorities_of(REQUEST) == {UPriority.CS4, UPriority.CS5, UPriority.CS6}


def test_a_request_has_a_ttl_above_0() -> None:
    assert ttls_of(REQUEST) == {1, 0xFFFF_FFFF}


def test_a_permission_level_is_absent_or_a_number_of_32_bits() -> None:
    for level in (None, 0, 5, 0xFFFF_FFFF):
        assert replace(REQUEST, permission_level=level).problems == ()
    assert replace(REQUEST, permission_level=1 << 32).problems


@pytest.mark.parametrize("token", [None, "", "any form: the specification gives none"])
def test_a_token_is_absent_empty_or_any_text(token: str | None) -> None:
    assert replace(REQUEST, token=token).problems == ()


def test_a_response_comes_from_a_method() -> None:
    assert sources_of(RESPONSE) == METHODS


def test_a_response_goes_to_a_uentity() -> None:
    assert sinks_of(RESPONSE) == {0}
    assert replace(RESPONSE, sink=None).problems


def test_a_response_has_the_id_of_its_request() -> None:
    assert RESPONSE.reqid == ASKED.id
    for reqid in (None, bytes(16)):
        assert replace(RESPONSE, reqid=reqid).problems


@pytest.mark.parametrize("priority", [UPriority.CS4, UPriority.CS5, UPriority.CS6])
def test_a_response_has_the_priority_of_its_request(priority: UPriority) -> None:
    asked = request(NOW_MS, APP, METHOD, 1000, None, Options(priority=priority))
    assert response(NOW_MS, asked).attributes.priority is priority
    assert priorities_of(RESPONSE) == {UPriority.CS4, UPriority.CS5, UPriority.CS6}


def test_a_response_has_the_ttl_of_its_request_and_one_of_others_without_any_is_valid() -> None:
    asked = request(NOW_MS, APP, METHOD, 77)
    assert response(NOW_MS, asked).attributes.ttl == 77
    assert response(NOW_MS, asked.ending(NOW_MS + (1 << 33), NOW_MS)).attributes.ttl == 0xFFFF_FFFF
    assert ttls_of(RESPONSE) == {None, 0, 1, 0xFFFF_FFFF}
