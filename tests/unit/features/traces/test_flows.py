"""Flows out of traces: each once, weighted by its messages, whatever lies in the folder."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamer.features.flow import Flow, Week
from streamer.features.traces import flows as module
from streamer.features.traces.flows import read_week
from streamer.features.traces.reader import parquet_files
from streamer.features.traces.record import SCHEMA, VERSION_KEY
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import Attributes, UMessageType, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.unit.delivery.messages import route_queue
from tests.unit.features.traces.folders import HOUR_US, NAME, NOW_US, SpoolFileWriter, row, table, write_part
from tests.unit.features.traces.recorded import Recorded

DAY_US = 24 * HOUR_US
TOPIC = UUri("veh1", 0xA8000, 2, 0x8A50)
METHOD = UUri("veh1", 0xA8000, 2, 7)
APP = UUri("app", 0x1, 1, 0)
COPY = Failure(Outcome.DUPLICATE, UCode.OK, "seen before")


def publish(**other: object) -> Attributes:
    return Attributes(UMessageType.PUBLISH, TOPIC, **other)  # type: ignore[arg-type]


def request(**other: object) -> Attributes:
    return Attributes(UMessageType.REQUEST, APP, METHOD, priority=UPriority.CS4, ttl=1000, **other)  # type: ignore[arg-type]


def week(folder: Path, streamer: str | None = None, most_flows: int = 1000, days: int = 7) -> Week:
    return read_week(folder, NOW_US - days * DAY_US, NOW_US, pytest.fail, streamer, most_flows)


def messages(found: Week) -> dict[Flow, int]:
    """Each flow without what is counted of it, and its messages in the whole period."""
    return {
        flow._replace(went_to=(), messages_per_day=0.0): round(flow.messages_per_day * found.days) for flow in found.flows
    }


def only(folder: Path) -> Flow:
    (flow,) = week(folder).flows
    return flow


# what a flow is


def test_flows_of_recorded_messages_are_found_once_with_their_messages(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.deliver(publish(), 3, None)
    recorded.deliver(request(), 5, METHOD)
    recorded.refuse(publish(priority=UPriority.CS6), 2)
    recorded.compact()
    found = week(tmp_path)
    queue = route_queue()
    assert messages(found) == {
        Flow(UMessageType.PUBLISH, TOPIC, None, queue.source, None, UPriority.CS1, None, False): 3,
        Flow(UMessageType.REQUEST, APP, METHOD, queue.source, None, UPriority.CS4, None, True): 5,
        Flow(UMessageType.PUBLISH, TOPIC, None, "vehicle", None, UPriority.CS6, None, False): 2,
    }
    assert [flow.went_to for flow in found.flows] == [(queue.target,), (queue.target,), ()]
    assert [Flow.from_json(json.loads(json.dumps(flow.as_json()))) for flow in found.flows] == found.flows
    assert {type(flow.has_ttl) for flow in found.flows} == {bool}
    assert (found.records, found.files, found.left_out, found.more_flows) == (10, 1, 0, 0)


def test_copies_of_a_publish_for_several_authorities_count_once_and_its_sink_is_none(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    for authority in ("cloud", "garage", "fleet"):
        recorded.deliver(publish(), 4, everything_at(authority))
    recorded.compact()
    found = week(tmp_path)
    assert list(messages(found).values()) == [4]
    assert found.flows[0].sink is None


def test_a_publish_over_two_routes_counts_once_and_names_both_endpoints(tmp_path: Path) -> None:
    write_part(tmp_path, [row(1), row(2), row(3, route="vehicle-garage", egress="garage")])
    found = week(tmp_path)
    assert list(messages(found).values()) == [2]
    assert found.flows[0].went_to == ("cloud", "garage")


def test_messages_that_went_nowhere_are_added_to_those_that_were_sent(tmp_path: Path) -> None:
    write_part(tmp_path, [row(1), row(2), row(3, route="none", egress=None, outcome="unwanted")])
    assert list(messages(week(tmp_path)).values()) == [3]


def test_the_address_of_a_publish_that_no_route_took_is_kept(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.refuse(publish(sink=everything_at("cloud")), 1)
    recorded.compact()
    assert only(tmp_path).sink == everything_at("cloud")


def test_duplicates_are_not_counted(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.deliver(publish(), 2, None)
    recorded.refuse(publish(), 9, COPY)
    recorded.compact()
    assert sum(messages(week(tmp_path)).values()) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"ingress": None},
        {"ingress": "core"},
        {"msg_type": "unspecified"},
        {"msg_type": "rumour"},
        {"src_authority": ""},
        {"src_authority": "no such\nname"},
        {"src_resource_id": 0x7FFF_FFFF},
        {"priority": "CS9"},
    ],
    ids=str,
)
def test_what_no_configuration_decides_about_is_left_out(tmp_path: Path, other: dict[str, object]) -> None:
    write_part(tmp_path, [row(1), row(2, **other)])
    found = week(tmp_path)
    assert list(messages(found).values()) == [1]
    assert found.records == 2


@pytest.mark.parametrize(
    "other",
    [{"ingress": "garage"}, {"priority": "CS6"}, {"ttl_ms": 7}, {"src_ue_id": 1}, {"msg_type": "notification"},
     {"src_ue_version": 9}, {"src_resource_id": 0x8001}, {"src_authority": "veh2"}, {"sink_authority": "app"}],
    ids=str,
)  # fmt: skip
def test_whatever_a_decision_depends_on_makes_another_flow(tmp_path: Path, other: dict[str, object]) -> None:
    at = {"sink_authority": "x", "sink_ue_id": 1, "sink_ue_version": 1, "sink_resource_id": 0}
    write_part(tmp_path, [row(1, **at), row(2, **at | other)])
    assert list(messages(week(tmp_path)).values()) == [1, 1]


@pytest.mark.parametrize("other", [{"payload_bytes": 1}, {"outcome": "expired"}, {"ttl_ms": 0}, {"retries": 3}], ids=str)
def test_what_no_decision_depends_on_makes_no_other_flow(tmp_path: Path, other: dict[str, object]) -> None:
    write_part(tmp_path, [row(1), row(2, **other)])
    assert list(messages(week(tmp_path)).values()) == [2]


# the period


def test_only_the_hours_of_the_period_are_read(tmp_path: Path) -> None:
    write_part(tmp_path, [row(1, 25 * HOUR_US), row(2, 24 * HOUR_US), row(3, HOUR_US)])
    found = week(tmp_path, days=1)
    assert (found.records, found.files) == (2, 2)
    assert messages(found) == {only(tmp_path)._replace(went_to=(), messages_per_day=0.0): 2}


@pytest.mark.parametrize(("ago_us", "days"), [(DAY_US, 1), (3 * DAY_US, 3), (HOUR_US // 2, 1 / 24), (0, 1 / 24)])
def test_messages_per_day_are_those_of_the_time_since_the_first_record(tmp_path: Path, ago_us: int, days: float) -> None:
    write_part(tmp_path, [row(1, ago_us), row(2)])
    found = week(tmp_path)
    assert found.days == pytest.approx(days)
    assert sum(flow.messages_per_day for flow in found.flows) == pytest.approx(2 / days, abs=0.001)


def test_an_empty_folder_and_none_have_no_flows(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        found = week(folder)
        assert (found.flows, found.records) == ([], 0)


def test_another_streamer_in_the_same_folder_is_left_out_if_one_is_named(tmp_path: Path) -> None:
    write_part(tmp_path, [row(1)])
    write_part(tmp_path, [row(1), row(2)], streamer="gateway.veh2")
    assert [week(tmp_path, name).records for name in (NAME, "gateway.veh2", None, "nobody")] == [1, 2, 3, 0]


# the spool


def test_records_in_the_spool_are_counted_and_those_before_the_period_are_not(tmp_path: Path) -> None:
    write_part(tmp_path, [row(1, HOUR_US)])
    SpoolFileWriter(tmp_path).write(row(2), row(3, ingress=None), row(4, 8 * DAY_US))
    found = week(tmp_path)
    assert found.records == 3
    assert list(messages(found).values()) == [2]


def test_a_spool_file_that_was_compacted_meanwhile_counts_once(tmp_path: Path) -> None:
    SpoolFileWriter(tmp_path).write(row(1), row(2))
    write_part(tmp_path, [row(1), row(2), row(3)])
    os.utime(next(tmp_path.rglob("*.parquet")), ns=(NOW_US * 1000, NOW_US * 1000))
    assert list(messages(week(tmp_path)).values()) == [3]


def test_a_spool_of_another_streamer_is_left_out(tmp_path: Path) -> None:
    SpoolFileWriter(tmp_path, streamer="gateway.veh2").write(row(1))
    assert week(tmp_path, NAME).records == 0


# what does not belong there


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    pq.write_table(pa.table({"name": ["x"]}), path)


def _of_other_types(path: Path) -> None:
    table = pq.read_table(path)
    at = table.schema.get_field_index("ttl_ms")
    pq.write_table(table.set_column(at, "ttl_ms", pa.array(["many"] * len(table))), path)


def _newer(path: Path) -> None:
    pq.write_table(pq.read_table(path).replace_schema_metadata({VERSION_KEY: b"99"}), path)


def _not_utf_8(path: Path) -> None:
    table = pq.read_table(path)
    at = table.schema.get_field_index("src_authority")
    raw = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(table.set_column(at, "src_authority", raw), path)


@pytest.mark.parametrize("spoil", [_torn, _empty, _foreign, _of_other_types, _newer, _not_utf_8])
def test_a_file_that_cannot_be_used_is_named_and_counted_and_the_others_are_read(tmp_path: Path, spoil: object) -> None:
    (bad,) = write_part(tmp_path, [row(1)])
    write_part(tmp_path, [row(2)])
    write_part(tmp_path, [row(3, HOUR_US)])
    spoil(bad)  # type: ignore[operator]
    told: list[str] = []
    found = read_week(tmp_path, NOW_US - DAY_US, NOW_US, told.append)
    assert (found.records, found.files, found.left_out) == (2, 2, 1)
    assert len(told) == 1
    assert told[0].startswith(f"{bad}: ")


def test_a_copy_of_a_file_beside_it_does_not_count(tmp_path: Path) -> None:
    (path,) = write_part(tmp_path, [row(1), row(2)])
    path.with_name("part-copied.parquet").write_bytes(path.read_bytes())
    write_part(tmp_path, [row(3), row(4)])
    assert list(messages(week(tmp_path)).values()) == [4]


def test_a_spool_file_whose_names_are_no_text_is_counted(tmp_path: Path) -> None:
    spool = SpoolFileWriter(tmp_path)
    bad = table([row(1)])
    raw = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    with pa.OSFile(str(spool.close()), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(bad.set_column(bad.schema.get_field_index("src_authority"), SCHEMA.field("src_authority"), raw))
    write_part(tmp_path, [row(2)])
    told: list[str] = []
    found = read_week(tmp_path, NOW_US - DAY_US, NOW_US, told.append)
    assert (found.records, found.left_out, len(told)) == (1, 1, 1)


def test_many_files_that_cannot_be_used_are_not_all_named(tmp_path: Path) -> None:
    for number in range(13):
        (bad,) = write_part(tmp_path, [row(number)])
        bad.write_bytes(b"x" * number)
    told: list[str] = []
    assert read_week(tmp_path, NOW_US - DAY_US, NOW_US, told.append).left_out == 13
    assert len(told) == 11
    assert told[-1] == "3 more files cannot be read"


def test_a_file_that_disappears_meanwhile_is_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_part(tmp_path, [row(1)])
    files = parquet_files(tmp_path)
    gone = files[0]._replace(path=files[0].path.with_name("gone.parquet"))
    monkeypatch.setattr(module, "parquet_files", lambda folder: [*files, gone])
    found = week(tmp_path)
    assert (found.records, found.files, found.left_out) == (1, 1, 0)


def test_columns_of_a_newer_version_and_large_texts_do_no_harm(tmp_path: Path) -> None:
    (path,) = write_part(tmp_path, [row(1)])
    table = pq.read_table(path).append_column("identity", pa.array(["x"]))
    at = table.schema.get_field_index("route")
    table = table.set_column(at, "route", table.column("route").cast(pa.large_string()))
    pq.write_table(table, path)
    assert week(tmp_path).records == 1


# bounds


def many(count: int, most: int) -> Sequence[dict[str, object]]:
    """One flow with ``most`` messages, and others with one each."""
    return [row(number) for number in range(most)] + [row(most + number, src_ue_id=number + 1) for number in range(count)]


def test_beyond_the_bound_the_rarest_flows_are_given_up_and_counted(tmp_path: Path) -> None:
    write_part(tmp_path, many(30, 5))
    found = week(tmp_path, most_flows=10)
    assert len(found.flows) == 10
    assert next(iter(messages(found).values())) == 5
    assert (found.more_flows, found.more_messages) == (21, 21)


def test_a_flood_of_names_does_not_make_memory_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MERGED_ROWS", 10)
    for hour in range(6):
        write_part(tmp_path, [row(1 + n, hour * HOUR_US, src_ue_id=100 * hour + n) for n in range(40)])
    write_part(tmp_path, [row(number) for number in range(3)])
    found = week(tmp_path, most_flows=5)
    assert len(found.flows) == 5
    assert sum(messages(found).values()) + found.more_messages == 6 * 40 + 3
    assert found.more_flows == 36  # at least: flows of several hours that were given up may be the same
