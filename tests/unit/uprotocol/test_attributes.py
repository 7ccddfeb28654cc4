"""Attributes: what they are equal by, what messages of a flow share and what each carries for itself."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.uprotocol.message import (
    Attributes,
    Options,
    Provenance,
    UMessageType,
    UPayloadFormat,
    UPriority,
    authority_only,
    publish,
)
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import everything_at
from tests.examples import characters
from tests.unit.uprotocol.attribute_sets import APP, PUBLISH, REQUEST, RESPONSE, TOPIC
from tests.unit.uprotocol.strategies import START_MS, attributes, ids, traceparents


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
