"""The trace record: what is packed comes out in the columns, and the columns are those that the nightly jobs read."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs import schema
from streamer import __version__
from streamer.delivery.lanes.lane import REDELIVERED, RESTORED
from streamer.features.traces import event, record
from streamer.features.traces.event import EVENT_SCHEMA
from streamer.features.traces.record import Buffer, TraceFlow, to_columns
from streamer.routing.outcome import FAILURES, Outcome
from streamer.uprotocol.form import IS_COMPILED
from streamer.uprotocol.message import UMessageType, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000
ENTERED_S = 5000.0  # of the monotonic clock, at noon and 250 µs
OFFSET_US = NOON_US + 250 - int(ENTERED_S * 1e6)
RUN_US = NOON_US - 3_600_000_000
ID = new_id(NOON_US // 1000 - 7)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SPEED = UUri("veh1", 0x1_000A, 2, 0x8A50)
METHOD = UUri("cloud", 0xC0, 1, 9)
FLOW = TraceFlow("up", SPEED, None, "vehicle", "cloud", "zenoh", "mqtt5")


def packed(**changes: Any) -> bytes:
    fields = {
        "flow": 0,
        "payload_bytes": 256,
        "entered_s": ENTERED_S,
        "sent_s": ENTERED_S + 0.001,
        "settled_s": ENTERED_S + 0.0135,
        "entered_ms": NOON_US // 1000,
        "id": ID,
        "req_id": b"",
        "ttl_ms": record.NO_TTL,
        "retries": 0,
        "type": UMessageType.PUBLISH,
        "priority": UPriority.CS4,
        "outcome": record.OUTCOME_NUMBERS[Outcome.DELIVERED],
        "code": UCode.OK,
        "flags": 0,
        "traceparent": b"",
    }
    assert changes.keys() <= fields.keys()
    return record.RECORD.pack(*(fields | changes).values())


def row(flow: TraceFlow = FLOW, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = to_columns(Buffer(packed(**changes), [flow], 41, OFFSET_US, "0123456789ab"), RUN_US).to_pylist()
    return found


def test_every_column_of_a_delivered_publish() -> None:
    assert row() == {
        "ts": NOON + timedelta(microseconds=250),
        "msg_ts": NOON - timedelta(milliseconds=7),
        "seq": 41,
        "run_ts": NOON - timedelta(hours=1),
        "msg_id": ID,
        "req_id": None,
        "route": "up",
        "src_authority": "veh1",
        "src_ue_id": 0x1_000A,
        "src_ue_version": 2,
        "src_resource_id": 0x8A50,
        "sink_authority": None,
        "sink_ue_id": None,
        "sink_ue_version": None,
        "sink_resource_id": None,
        "msg_type": "publish",
        "priority": "CS4",
        "payload_bytes": 256,
        "ingress": "vehicle",
        "egress": "cloud",
        "ingress_transport": "zenoh",
        "egress_transport": "mqtt5",
        "ttl_ms": None,
        "age_us": 7250,
        "queue_wait_us": 1000,
        "latency_us": 13500,
        "retries": 0,
        "outcome": "delivered",
        "ucode": "OK",
        "redelivered": False,
        "traceparent": None,
        "version": __version__,
        "compiled": IS_COMPILED,
        "config": "0123456789ab",
    }


def test_columns_that_only_a_response_has() -> None:
    request_id = new_id(NOON_US // 1000 - 50)
    flow = TraceFlow("none", METHOD, UUri("veh1", 0xA, 1, 0), "", "", "", "")
    found = row(
        flow,
        req_id=request_id,
        type=UMessageType.RESPONSE,
        priority=UPriority.UNSPECIFIED,
        ttl_ms=0,
        retries=70_000,
        sent_s=0.0,
        outcome=record.OUTCOME_NUMBERS[Outcome.DEAD_LETTERED],
        code=UCode.UNAUTHENTICATED,
        flags=REDELIVERED,
        traceparent=record.pack_traceparent(TRACEPARENT),
    )
    expected = {
        "req_id": request_id,
        "msg_type": "response",
        "priority": "CS1",
        "sink_authority": "veh1",
        "sink_ue_id": 0xA,
        "sink_ue_version": 1,
        "sink_resource_id": 0,
        "ingress": None,
        "egress_transport": None,
        "ttl_ms": 0,
        "retries": 70_000,
        "queue_wait_us": None,
        "outcome": "dead_lettered",
        "ucode": "UNAUTHENTICATED",
        "redelivered": True,
        "traceparent": TRACEPARENT,
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("outcome", Outcome, ids=lambda outcome: outcome.value)
def test_outcomes_have_the_names_that_the_jobs_know(outcome: Outcome) -> None:
    assert row(outcome=record.OUTCOME_NUMBERS[outcome])["outcome"] == outcome.value
    assert outcome.value in schema.OUTCOMES


def test_the_jobs_know_every_outcome_and_no_other() -> None:
    assert sorted(schema.OUTCOMES) == sorted(outcome.value for outcome in Outcome)
    assert sorted(schema.FAILURES) == sorted(outcome.value for outcome in FAILURES)


@pytest.mark.parametrize("code", UCode, ids=lambda code: code.name)
def test_codes_have_their_names(code: UCode) -> None:
    assert row(code=code)["ucode"] == code.name


def test_a_message_from_the_journal_counts_from_when_it_first_came() -> None:
    found = row(flags=REDELIVERED | RESTORED, entered_ms=NOON_US // 1000 - 60_000)
    assert found["ts"] == NOON - timedelta(minutes=1)
    assert found["latency_us"] == 60_000_000 + 250 + 13_500
    assert found["queue_wait_us"] == 60_000_000 + 250 + 1000
    assert found["redelivered"]


def test_a_clock_that_was_set_since_changes_neither_the_time_of_entry_nor_the_latency() -> None:
    hour_us = 3_600_000_000
    found: dict[str, Any]
    (found,) = to_columns(Buffer(packed(), [FLOW], 0, OFFSET_US + hour_us), RUN_US).to_pylist()
    assert found["ts"] == NOON
    assert found["latency_us"] == 13_500
    assert found["age_us"] == 7000


def test_a_time_outside_the_calendar_is_none() -> None:
    found = row(id=b"\xff" * 6 + ID[6:])
    assert found["msg_ts"] is None
    assert found["age_us"] is None


def test_an_id_that_is_not_a_uuid_of_version_7_has_no_time() -> None:
    found = row(id=bytes(16))
    assert found["msg_id"] == bytes(16)
    assert found["msg_ts"] is None
    assert found["age_us"] is None


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_records_keep_their_order_and_their_flows(numbers: list[int]) -> None:
    flows = [FLOW._replace(route=f"route-{number}") for number in range(3)]
    raw = b"".join(packed(flow=number, payload_bytes=index) for index, number in enumerate(numbers))
    batch = to_columns(Buffer(raw, flows, 100, OFFSET_US), RUN_US)
    assert batch.column("seq").to_pylist() == list(range(100, 100 + len(numbers)))
    assert batch.column("route").to_pylist() == [f"route-{number}" for number in numbers]
    assert batch.column("payload_bytes").to_pylist() == list(range(len(numbers)))
    batch.validate(full=True)


def test_numbers_of_a_uri_that_breaks_the_rules_do_no_harm() -> None:
    found = row(FLOW._replace(source=UUri("x", 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF)))
    assert found["src_ue_id"] == 0xFFFF_FFFF
    assert found["src_ue_version"] == found["src_resource_id"] == math.floor(2**31 - 1)


@pytest.mark.parametrize(
    "text", [None, "", "00", "zz" * 26, TRACEPARENT + "00"], ids=["none", "empty", "short", "no-hex", "long"]
)
def test_an_invalid_trace_context_is_left_out(text: str | None) -> None:
    assert record.pack_traceparent(text) == b""


def test_a_later_trace_context_has_the_fields_that_it_shares_with_version_00() -> None:
    later = f"01{TRACEPARENT[2:]}"
    for text in (later, f"{later}-", f"{later}-what-the-future-brings"):
        assert record.pack_traceparent(text) == bytes.fromhex(later.replace("-", ""))
    assert record.pack_traceparent(f"{TRACEPARENT}-ab") == b""


def test_the_columns_are_those_that_the_jobs_read() -> None:
    kinds = {
        "string": pa.string(),
        "binary": pa.binary(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    for written, kind in ((record.SCHEMA, schema.TRACE), (EVENT_SCHEMA, schema.EVENT)):
        read = [(field.name, kinds[field.dataType.simpleString()], field.nullable) for field in kind.fields]
        assert [(field.name, field.type, field.nullable) for field in written] == read
    assert {event.STARTED, event.STOPPED, event.CONFIGURED, event.UP, event.DOWN} == set(schema.EVENTS)
    assert record.SCHEMA.metadata == {
        schema.VERSION_KEY.encode(): str(schema.VERSION).encode(),
        b"ustreamer.trace.written_by": __version__.encode(),
    }
