"""Messages: the attribute rules of each type, the builders, and the TTL (`uattributes.adoc`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.uprotocol.message import (
    Attributes,
    InvalidMessageError,
    Options,
    Provenance,
    UMessage,
    UMessageType,
    UPayloadFormat,
    UPriority,
    authority_only,
    notification,
    publish,
    request,
    response,
)
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import check_id, created_ms, new_id
from tests.examples import characters
from tests.unit.uprotocol.strategies import START_MS, attributes, ids, messages, methods, topics, traceparents, uentities

TOPIC = UUri("veh1", 0xA8000, 2, 0x8A50)
APP = UUri("cloud", 0xC0, 1, 0)
METHOD = UUri("veh1", 0xB, 1, 7)
REQID = new_id(START_MS)
PUBLISH = Attributes(UMessageType.PUBLISH, TOPIC)
REQUEST = Attributes(UMessageType.REQUEST, APP, METHOD, priority=UPriority.CS4, ttl=1000)
RESPONSE = Attributes(UMessageType.RESPONSE, METHOD, APP, priority=UPriority.CS4, ttl=1000, reqid=REQID)
NOTIFICATION = Attributes(UMessageType.NOTIFICATION, TOPIC, APP)
EVERY_TYPE = [PUBLISH, NOTIFICATION, REQUEST, RESPONSE]


def at(uri: UUri, resource: int) -> UUri:
    return uri._replace(resource=resource)


@given(attributes)
def test_everything_that_the_table_allows_is_valid(a: Attributes) -> None:
    assert a.problems == ()


LEGAL = {
    "publish on the first topic": replace(PUBLISH, source=at(TOPIC, 0x8000)),
    "publish on the last topic": replace(PUBLISH, source=at(TOPIC, 0xFFFE)),
    "publish that a streamer addressed": replace(PUBLISH, sink=everything_at("cloud")),
    "publish with ttl 0": replace(PUBLISH, ttl=0),
    "publish with the largest ttl": replace(PUBLISH, ttl=0xFFFF_FFFF),
    "publish with the largest permission level": replace(PUBLISH, permission_level=0xFFFF_FFFF),
    "publish to an authority in brackets": replace(PUBLISH, sink=everything_at("[::1]")),
    "publish to everybody": replace(PUBLISH, sink=everything_at("*")),
    "notification from the first topic": replace(NOTIFICATION, source=at(TOPIC, 0x8000)),
    "notification from the last topic": replace(NOTIFICATION, source=at(TOPIC, 0xFFFE)),
    "request to the first method": replace(REQUEST, sink=at(METHOD, 1)),
    "request to the last method": replace(REQUEST, sink=at(METHOD, 0x7FFF)),
    "request with ttl 1": replace(REQUEST, ttl=1),
    "request with CS6": replace(REQUEST, priority=UPriority.CS6),
    "response without ttl, as some builders make it": replace(RESPONSE, ttl=None),
    "response with ttl 0": replace(RESPONSE, ttl=0),
    "request with an empty token": replace(REQUEST, token=""),
    "request with an empty traceparent": replace(REQUEST, traceparent=""),
    "response with commstatus": replace(RESPONSE, commstatus=UCode.UNAVAILABLE),
}

ILLEGAL = {
    "no type": (replace(PUBLISH, type=UMessageType.UNSPECIFIED), "type"),
    "publish on a method": (replace(PUBLISH, source=at(TOPIC, 0x7FFF)), "source"),
    "publish on an entity": (replace(PUBLISH, source=at(TOPIC, 0)), "source"),
    "publish on a pattern": (replace(PUBLISH, source=at(TOPIC, 0xFFFF)), "source"),
    "publish to a uEntity": (replace(PUBLISH, sink=APP), "sink"),
    "publish to a pattern that is more than an authority": (
        replace(PUBLISH, sink=everything_at("cloud")._replace(version=1)),
        "sink",
    ),
    "publish to no authority": (replace(PUBLISH, sink=everything_at("")), "sink"),
    "publish to an empty sink": (replace(PUBLISH, sink=UUri("", 0, 0, 0)), "sink"),
    "publish to an authority that cannot be one": (replace(PUBLISH, sink=everything_at("VEH1")), "sink"),
    "notification from a method": (replace(NOTIFICATION, source=at(TOPIC, 0x7FFF)), "source"),
    "notification from the first method": (replace(NOTIFICATION, source=at(TOPIC, 1)), "source"),
    "notification from an entity": (replace(NOTIFICATION, source=at(TOPIC, 0)), "source"),
    "notification from a pattern": (replace(NOTIFICATION, source=at(TOPIC, 0xFFFF)), "source"),
    "notification without sink": (replace(NOTIFICATION, sink=None), "sink"),
    "notification to a method": (replace(NOTIFICATION, sink=at(APP, 1)), "sink"),
    "notification to a topic": (replace(NOTIFICATION, sink=at(APP, 0x8000)), "sink"),
    "notification to an authority": (replace(NOTIFICATION, sink=everything_at("cloud")), "sink"),
    "request from a method": (replace(REQUEST, source=at(APP, 1)), "source"),
    "request from a topic": (replace(REQUEST, source=at(APP, 0x8000)), "source"),
    "request without sink": (replace(REQUEST, sink=None), "sink"),
    "request to an entity": (replace(REQUEST, sink=at(METHOD, 0)), "sink"),
    "request to a topic": (replace(REQUEST, sink=at(METHOD, 0x8000)), "sink"),
    "request without ttl": (replace(REQUEST, ttl=None), "ttl"),
    "request with ttl 0": (replace(REQUEST, ttl=0), "ttl"),
    "request with CS3": (replace(REQUEST, priority=UPriority.CS3), "priority"),
    "request without priority": (replace(REQUEST, priority=UPriority.UNSPECIFIED), "priority"),
    "response from an entity": (replace(RESPONSE, source=at(METHOD, 0)), "source"),
    "response from a topic": (replace(RESPONSE, source=at(METHOD, 0x8000)), "source"),
    "response without sink": (replace(RESPONSE, sink=None), "sink"),
    "response to a method": (replace(RESPONSE, sink=at(APP, 1)), "sink"),
    "response without reqid": (replace(RESPONSE, reqid=None), "reqid"),
    "response with CS3": (replace(RESPONSE, priority=UPriority.CS3), "priority"),
    "reqid that is no UUIDv7": (replace(RESPONSE, reqid=bytes(16)), "reqid"),
    "reqid that is too short": (replace(RESPONSE, reqid=REQID[:15]), "reqid"),
    "ttl beyond 32 bits": (replace(PUBLISH, ttl=1 << 32), "ttl"),
    "negative ttl": (replace(PUBLISH, ttl=-1), "ttl"),
    "permission level beyond 32 bits": (replace(PUBLISH, permission_level=1 << 32), "permission_level"),
    "negative permission level": (replace(PUBLISH, permission_level=-1), "permission_level"),
}


@pytest.mark.parametrize("a", LEGAL.values(), ids=LEGAL)
def test_values_at_the_limits_are_valid(a: Attributes) -> None:
    assert a.problems == ()


@pytest.mark.parametrize(("a", "field"), ILLEGAL.values(), ids=ILLEGAL)
def test_broken_rule_is_named_by_its_field(a: Attributes, field: str) -> None:
    assert a.problems
    assert all(problem.startswith(field) for problem in a.problems)
    with pytest.raises(InvalidMessageError) as caught:
        UMessage(new_id(START_MS), a).check()
    assert caught.value.problems == a.problems


@pytest.mark.parametrize("a", EVERY_TYPE, ids=lambda a: a.type.name)
@pytest.mark.parametrize("authority", ["", "*", "VEH1", "a/b", "x" * 129])
def test_source_needs_an_authority_that_is_a_name(a: Attributes, authority: str) -> None:
    problems = replace(a, source=a.source._replace(authority=authority)).problems
    assert problems
    assert all(problem.startswith("source") for problem in problems)


@pytest.mark.parametrize("a", [NOTIFICATION, REQUEST, RESPONSE], ids=lambda a: a.type.name)
@pytest.mark.parametrize("changed", [{"authority": "*"}, {"ue_id": 0xFFFF}, {"ue_id": 0xFFFF_0001}, {"version": 0xFF}])
def test_neither_address_may_hold_a_wildcard(a: Attributes, changed: dict[str, Any]) -> None:
    assert a.sink is not None
    assert [p[:6] for p in replace(a, sink=a.sink._replace(**changed)).problems] == ["sink: "]
    assert [p[:6] for p in replace(a, source=a.source._replace(**changed)).problems] == ["source"]


@pytest.mark.parametrize("a", EVERY_TYPE, ids=lambda a: a.type.name)
@pytest.mark.parametrize("field", [{"ue_id": 1 << 32}, {"version": 256}, {"ue_id": -1}])
def test_numbers_out_of_range_are_named(a: Attributes, field: dict[str, Any]) -> None:
    (problem,) = replace(a, source=a.source._replace(**field)).problems
    assert problem.startswith("source: ")
    assert "bits" in problem


def test_all_broken_rules_are_listed_together() -> None:
    broken = Attributes(UMessageType.REQUEST, at(APP, 1), at(METHOD, 0), traceparent="x")
    with pytest.raises(InvalidMessageError) as caught:
        UMessage(bytes(16), broken).check()
    fields = [problem.split(":")[0].split(" ")[0] for problem in caught.value.problems]
    assert fields == ["id", "source", "sink", "ttl", "priority", "traceparent"]
    assert str(caught.value).count("; ") == 5


@pytest.mark.parametrize(
    "uuid", [b"", bytes(16), b"\xff" * 16, new_id(START_MS) + b"\x00"], ids=["empty", "zeros", "ones", "too long"]
)
def test_id_must_be_a_uuid_of_version_7(uuid: bytes) -> None:
    with pytest.raises(InvalidMessageError, match="id "):
        UMessage(uuid, PUBLISH).check()


@given(traceparents)
def test_w3c_traceparent_is_valid(text: str) -> None:
    assert replace(PUBLISH, traceparent=text).problems == ()


@given(traceparents, st.integers(1, 0xFE), st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40))
def test_a_later_version_of_traceparent_may_have_more_fields(text: str, version: int, more: str) -> None:
    later = f"{version:02x}{text[2:]}"
    for allowed in (later, f"{later}-", f"{later}-{more}"):
        assert replace(PUBLISH, traceparent=allowed).problems == ()
    assert replace(PUBLISH, traceparent=f"{later}.{more}").problems


@pytest.mark.parametrize(
    "text",
    [
        "00",
        f"00-{'a' * 32}-{'b' * 16}-01-",
        f"00-{'a' * 32}-{'b' * 16}-01-more",
        f"01-{'a' * 32}-{'b' * 16}-01more",
        f"01-{'a' * 32}-{'b' * 16}-01-a b",
        f"01-{'a' * 32}-{'b' * 16}-01-\n",
        f"01-{'0' * 32}-{'b' * 16}-01-more",
        f"ff-{'a' * 32}-{'b' * 16}-01-more",
        f"00-{'0' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
        f"ff-{'a' * 32}-{'b' * 16}-01",
        f"00-{'A' * 32}-{'b' * 16}-01",
        f"00-{'a' * 31}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'b' * 17}-01",
        f"00-{'a' * 32}-{'b' * 16}-1",
        f"00-{'a' * 32}-{'b' * 16}-01\n",
        f"00-{'a' * 32}-{'b' * 16}",
        f" 00-{'a' * 32}-{'b' * 16}-01",
    ],
)
def test_malformed_traceparent_is_a_problem(text: str) -> None:
    (problem,) = replace(PUBLISH, traceparent=text).problems
    assert problem.startswith("traceparent")


def test_payload_format_goes_only_with_a_payload() -> None:
    with_format = replace(PUBLISH, payload_format=UPayloadFormat.JSON)
    assert UMessage(new_id(START_MS), with_format, b"").check()
    with pytest.raises(InvalidMessageError, match="payload_format"):
        UMessage(new_id(START_MS), with_format, None).check()


@given(topics, st.none() | st.binary(max_size=10), st.none() | st.integers(0, 0xFFFF_FFFF))
def test_publish_is_built_valid(topic: UUri, payload: bytes | None, ttl: int | None) -> None:
    made = publish(START_MS, topic, payload, Options(ttl=ttl, priority=UPriority.CS2, token="t", permission_level=9))
    assert made.attributes == Attributes(
        UMessageType.PUBLISH, topic, ttl=ttl, priority=UPriority.CS2, token="t", permission_level=9
    )
    assert made.payload is payload
    assert created_ms(check_id(made.id)) == START_MS


@given(topics, uentities)
def test_notification_is_built_valid(source: UUri, sink: UUri) -> None:
    made = notification(START_MS, source, sink, b"x", Options(payload_format=UPayloadFormat.TEXT))
    assert made.attributes == Attributes(UMessageType.NOTIFICATION, source, sink, payload_format=UPayloadFormat.TEXT)


@given(uentities, methods, st.integers(1, 0xFFFF_FFFF), st.sampled_from([UPriority.UNSPECIFIED, UPriority.CS5]))
def test_request_is_built_with_cs4_by_default_and_its_response_answers_it(
    source: UUri, method: UUri, ttl: int, priority: UPriority
) -> None:
    asked = request(START_MS, source, method, ttl, b"?", Options(priority=priority))
    assert (asked.attributes.priority, asked.attributes.ttl) == (priority or UPriority.CS4, ttl)
    answer = response(START_MS + 5, asked, b"!", UCode.OK, UPayloadFormat.RAW)
    assert answer.attributes == Attributes(
        UMessageType.RESPONSE,
        method,
        source,
        priority=priority or UPriority.CS4,
        ttl=ttl,
        commstatus=UCode.OK,
        reqid=asked.id,
        payload_format=UPayloadFormat.RAW,
    )
    assert created_ms(answer.id) == START_MS + 5
    assert answer.id != asked.id


@pytest.mark.parametrize(
    "build",
    [
        lambda: publish(START_MS, METHOD),
        lambda: publish(START_MS, TOPIC, None, Options(ttl=-1)),
        lambda: notification(START_MS, TOPIC, METHOD),
        lambda: notification(START_MS, APP, APP),
        lambda: request(START_MS, TOPIC, METHOD, 1),
        lambda: request(START_MS, APP, TOPIC, 1),
        lambda: request(START_MS, APP, METHOD, 0),
        lambda: request(START_MS, APP, METHOD, 1, None, Options(priority=UPriority.CS3)),
        lambda: response(START_MS, publish(START_MS, TOPIC)),
        lambda: response(START_MS, notification(START_MS, TOPIC, APP)),
    ],
)
def test_builders_refuse_invalid_messages(build: Callable[[], UMessage]) -> None:
    with pytest.raises(InvalidMessageError):
        build()


def test_request_options_cannot_contradict_its_own_ttl() -> None:
    assert request(START_MS, APP, METHOD, 7, None, Options(ttl=99)).attributes.ttl == 7


@given(messages, st.integers(0, (1 << 48) + (1 << 33)))
def test_message_expires_only_with_a_ttl_and_only_after_it(message: UMessage, now_ms: int) -> None:
    ttl = message.attributes.ttl
    expected = ttl is not None and ttl > 0 and now_ms > created_ms(message.id) + ttl
    assert message.is_expired(now_ms, 0) is expected


@pytest.mark.parametrize(
    ("ttl", "deadline"), [(None, None), (0, None), (1, START_MS + 1), (2**32 - 1, START_MS + 2**32 - 1)]
)
def test_deadline_is_creation_plus_ttl_and_that_moment_itself_is_in_time(ttl: int | None, deadline: int | None) -> None:
    message = UMessage(new_id(START_MS), replace(PUBLISH, ttl=ttl))
    assert message.expires_ms(START_MS, 0) == deadline
    if deadline is None:
        assert not message.is_expired(1 << 60, 0)
    else:
        assert not message.is_expired(deadline, 0)
        assert message.is_expired(deadline + 1, 0)


@pytest.mark.parametrize("ahead_ms", [2 * 86_400_000, 1024 * 7 * 86_400_000])
def test_ttl_of_an_id_from_the_future_counts_from_the_arrival(ahead_ms: int) -> None:
    """Two days ahead, or 1024 weeks: a GPS receiver that has counted its weeks wrong."""
    message = UMessage(new_id(START_MS + ahead_ms), replace(PUBLISH, ttl=5000))
    for waited_ms in (0, 5000, 5001, ahead_ms - 1, ahead_ms + 4000):
        now_ms = START_MS + waited_ms
        assert message.is_expired(now_ms, waited_ms / 1000) is (waited_ms > 5000)
        assert message.expires_ms(now_ms, waited_ms / 1000) == START_MS + 5000


def test_arrival_that_was_written_down_by_a_clock_that_was_ahead_says_nothing() -> None:
    message = UMessage(new_id(START_MS + 2 * 86_400_000), replace(PUBLISH, ttl=5000))
    assert not message.is_expired(START_MS, -2 * 86_400)


def test_messages_are_equal_by_what_they_are_and_can_be_counted() -> None:
    first = UMessage(new_id(START_MS), PUBLISH, b"x")
    same = UMessage(bytes(first.id), replace(first.attributes), b"x")
    other = replace(first, payload=None)
    assert first == same != other
    assert len({first, same, other}) == 2
    assert (other.id, other.attributes, other.payload) == (first.id, first.attributes, None)


@pytest.mark.parametrize(
    ("priority", "level"), [(UPriority.UNSPECIFIED, 1), *((UPriority[f"CS{level}"], level) for level in range(7))]
)
def test_unspecified_priority_means_cs1(priority: UPriority, level: int) -> None:
    assert replace(PUBLISH, priority=priority).priority_class == level


@given(attributes)
def test_equal_attributes_hash_equally(a: Attributes) -> None:
    assert hash(a) == hash(replace(a))
    assert {a: 1}[replace(a)] == 1


def test_attributes_that_differ_in_any_field_are_not_equal() -> None:
    changes: list[dict[str, Any]] = [
        {"type": UMessageType.NOTIFICATION},
        {"source": APP},
        {"sink": None},
        {"priority": UPriority.CS6},
        {"ttl": None},
        {"permission_level": 0},
        {"commstatus": UCode.OK},
        {"reqid": None},
        {"token": ""},
        {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"},
        {"payload_format": UPayloadFormat.RAW},
    ]
    assert all(replace(RESPONSE, **change) != RESPONSE for change in changes)


def test_token_is_never_printed() -> None:
    message = publish(START_MS, TOPIC, b"", Options(token="hunter2"))
    assert "hunter2" not in f"{message!r} {message.attributes} {message.attributes.problems}"


@given(attributes, st.none() | ids, st.none() | st.text(characters, max_size=5), st.none() | traceparents)
def test_what_one_message_carries_does_not_change_what_it_shares(
    a: Attributes, reqid: bytes | None, token: str | None, traceparent: str | None
) -> None:
    shared = a.shared
    carried = shared.carrying(reqid, token, traceparent)
    assert carried == replace(a, reqid=reqid, token=token, traceparent=traceparent)
    assert hash(carried) == hash(replace(a, reqid=reqid, token=token, traceparent=traceparent))
    assert carried.shared is shared
    assert carried.shared.shared is shared
    assert carried.carrying_as(a) == a
    assert carried.problems == replace(a, reqid=reqid, token=token, traceparent=traceparent).problems
    assert carried.extra_bytes == sum(len(text.encode()) for text in (token, traceparent) if text)
    assert (shared.reqid, shared.token, shared.traceparent) == (None, None, None)


def test_what_is_found_out_for_shared_attributes_is_known_to_those_that_carry_more() -> None:
    carried = REQUEST.carrying(None, "hunter2", None)
    assert carried.shared is REQUEST
    assert carried.shared_problems is REQUEST.shared_problems
    assert carried.origin is REQUEST.origin
    assert carried.priority_class == REQUEST.priority_class
    assert "hunter2" not in repr(carried)


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "token": [f"token {n}" for n in range(500)],
        "permission_level": list(range(500)),
        "commstatus": list(UCode),
        "payload_format": list(UPayloadFormat),
        "ttl": list(range(1, 500)),
        "reqid": [bytes([n]) * 16 for n in range(250)],
        "traceparent": [f"00-{n:032x}-{'b' * 16}-01" for n in range(1, 500)],
        "provenance": [Provenance(f"client {n}") for n in range(500)] + [Provenance(None, n) for n in range(6)],
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_attributes_that_differ_have_hashes_that_differ(name: str, values: list[Any]) -> None:
    assert len({hash(replace(REQUEST, **{name: value})) for value in values}) == len(values)


def test_the_ceiling_lowers_the_class_and_leaves_the_priority_as_it_was() -> None:
    lowered = replace(PUBLISH, priority=UPriority.CS5).below(2)
    assert (lowered.priority_class, lowered.priority) == (2, UPriority.CS5)
    assert lowered.below(4) is lowered
    assert lowered.below(1).priority_class == 1
    assert replace(PUBLISH, priority=UPriority.CS0).below(2).priority_class == 0


def test_token_and_traceparent_count_their_bytes() -> None:
    assert PUBLISH.extra_bytes == 0
    assert replace(PUBLISH, token="ä" * 1000).extra_bytes == 2000
    assert replace(PUBLISH, token="ab", traceparent="c" * 55).extra_bytes == 57


def test_the_sink_that_a_streamer_sets_is_told_from_others() -> None:
    assert authority_only(everything_at("cloud"))
    assert not authority_only(APP)
