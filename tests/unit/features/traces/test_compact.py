"""Compaction: from spool files to Parquet files by hour, exactly once, however often it is cut off."""

import datetime as dt
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.features.traces import compact, layout
from streamer.features.traces.compact import compact_spool
from streamer.features.traces.event import EVENT_SCHEMA, to_event_columns
from streamer.features.traces.layout import Compaction, Folders
from streamer.features.traces.record import SCHEMA, Buffer, to_columns
from streamer.features.traces.spool import SpoolWriter, Stream
from tests.examples import examples
from tests.unit.features.traces.streams import NOON_MS, buffer, event, noon_buffer

GIB = 1024**3
HOUR_MS = 3_600_000


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    found = Folders(tmp_path / "traces", "gateway.veh1")
    found.create()
    return found


def spooled(folders: Folders, name: str, *buffers: Buffer) -> Path:
    """A closed spool file with a batch for each buffer."""
    path = folders.spool / f"{name}.arrows"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
        for each in buffers:
            writer.write_batch(to_columns(each, 0))
    return path


def parts(folders: Folders) -> dict[str, list[int]]:
    """Partition → seqs, over all Parquet files, read as any reader would."""
    found: dict[str, list[int]] = {}
    for file in folders.path.rglob("part-*.parquet"):
        hidden = any(part.startswith(".") for part in file.relative_to(folders.path).parts)
        assert not hidden
        found.setdefault(str(file.parent.relative_to(folders.path)), []).extend(
            pq.ParquetFile(file).read(["seq"]).column("seq").to_pylist()
        )
    return {partition: sorted(seqs) for partition, seqs in found.items()}


def test_records_go_to_the_folder_of_their_hour(folders: Folders) -> None:
    hours = [NOON_MS, NOON_MS + HOUR_MS - 1, NOON_MS + HOUR_MS, NOON_MS + 12 * HOUR_MS, NOON_MS - 5 * HOUR_MS]
    spooled(folders, "1-1", buffer(0, hours), buffer(5, hours))
    done = compact_spool(folders, GIB)
    assert (done.files, done.records, done.problems) == (4, 10, [])
    assert parts(folders) == {
        "date=2026-11-21/hour=12/streamer=gateway.veh1": [0, 1, 5, 6],
        "date=2026-11-21/hour=13/streamer=gateway.veh1": [2, 7],
        "date=2026-11-22/hour=0/streamer=gateway.veh1": [3, 8],
        "date=2026-11-21/hour=7/streamer=gateway.veh1": [4, 9],
    }
    assert folders.closed() == []
    assert done.bytes == sum(file.stat().st_size for file in folders.path.rglob("*.parquet"))


def test_a_part_has_the_schema_its_version_and_every_value(folders: Folders) -> None:
    batch = to_columns(noon_buffer(0, 100), 17)
    with pa.OSFile(str(folders.spool / "1-1.arrows"), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(batch)
    compact_spool(folders, GIB)
    (file,) = folders.parquet_files()
    found = pq.ParquetFile(file)
    assert found.read().cast(SCHEMA).equals(pa.Table.from_batches([batch]))
    assert found.metadata.metadata[b"ustreamer.trace.version"] == b"1"
    assert {found.schema.column(n).physical_type for n in range(4)} == {"INT64"}
    assert all(found.metadata.row_group(0).column(n).compression == "ZSTD" for n in range(len(SCHEMA)))


def test_more_records_than_a_row_group_holds(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_ROW_GROUP", 64)
    spooled(folders, "1-1", *(buffer(n * 50, [NOON_MS + (n % 3) * HOUR_MS] * 50) for n in range(9)))
    assert compact_spool(folders, GIB).records == 450
    assert {partition.split("/")[1]: len(seqs) for partition, seqs in parts(folders).items()} == {
        "hour=12": 150,
        "hour=13": 150,
        "hour=14": 150,
    }


def test_names_with_odd_characters_get_a_folder_of_their_own(tmp_path: Path) -> None:
    folders = Folders(tmp_path, "[fe80::1]")
    folders.create()
    spooled(folders, "1-1", noon_buffer(0, 1))
    compact_spool(folders, GIB)
    assert parts(folders) == {"date=2026-11-21/hour=12/streamer=%5Bfe80%3A%3A1%5D": [0]}


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_of_a_torn_file_every_completed_batch_is_kept(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folders = Folders(tmp_path_factory.mktemp("traces"), "gateway.veh1")
    folders.create()
    ends = [len(spooled(folders, "1-1", *(noon_buffer(n * 5, 5) for n in range(count))).read_bytes()) for count in range(4)]
    whole = (folders.spool / "1-1.arrows").read_bytes()
    mark = 8  # bytes: the end of a stream, which each of these has
    cut = data.draw(st.integers(0, len(whole)))
    (folders.spool / "1-1.arrows").write_bytes(whole[:cut])
    complete = max((n for n in range(4) if ends[n] - mark <= cut), default=0)
    done = compact_spool(folders, GIB)
    assert done.records == complete * 5
    assert done.problems == []
    assert sorted(seq for seqs in parts(folders).values() for seq in seqs) == list(range(complete * 5))
    assert folders.closed() == []


def test_compacting_again_doubles_nothing(folders: Folders) -> None:
    spool_file = spooled(folders, "1-1", buffer(0, [NOON_MS, NOON_MS + HOUR_MS]))
    again = spool_file.read_bytes()
    compact_spool(folders, GIB)
    before = {file: file.read_bytes() for file in folders.parquet_files()}
    spool_file.write_bytes(again)  # as if it had been killed before the spool file was gone
    compact_spool(folders, GIB)
    assert {file: file.read_bytes() for file in folders.parquet_files()} == before


def test_two_spool_files_of_an_hour_are_two_parts(folders: Folders) -> None:
    spooled(folders, "1-1", noon_buffer(0, 2))
    spooled(folders, "1-2", noon_buffer(2, 2))
    spooled(folders, "2-1", noon_buffer(0, 2))
    assert compact_spool(folders, GIB).files == 3
    assert parts(folders) == {"date=2026-11-21/hour=12/streamer=gateway.veh1": [0, 0, 1, 1, 2, 3]}


def test_unfinished_files_of_an_earlier_compaction_are_deleted(folders: Folders) -> None:
    stale = folders.unfinished / "part-x.parquet"
    stale.write_bytes(b"PAR1")
    compact_spool(folders, GIB)
    assert not stale.exists()


def test_the_oldest_hours_go_first_and_emptied_folders_with_them(folders: Folders) -> None:
    for hour in range(6):
        spooled(folders, f"1-{hour}", buffer(hour * 10, [NOON_MS + hour * HOUR_MS] * 10))
    compact_spool(folders, GIB)
    sizes = [file.stat().st_size for file in folders.parquet_files()]
    other = folders.path / "date=2026-11-21" / "hour=12" / "streamer=other"
    other.mkdir()
    (other / "part-1.parquet").write_bytes(b"not ours")
    done = compact_spool(folders, sum(sizes[3:]))
    assert (done.deleted_files, done.deleted_bytes) == (3, sum(sizes[:3]))
    assert sorted(path.name for path in (folders.path / "date=2026-11-21").iterdir()) == [
        "hour=12",
        "hour=15",
        "hour=16",
        "hour=17",
    ]
    assert (other / "part-1.parquet").exists()


def test_a_full_disk_leaves_everything_to_be_compacted_later(folders: Folders) -> None:
    spooled(folders, "1-1", noon_buffer(0, 100))
    (folders.path / "date=2026-11-21").write_text("in the way")
    done = compact_spool(folders, GIB)
    assert len(done.problems) == 1
    assert len(folders.closed()) == 1
    (folders.path / "date=2026-11-21").unlink()
    assert compact_spool(folders, GIB).records == 100


def other_stream(folders: Folders, name: str, batch: pa.RecordBatch) -> Path:
    path = folders.spool / name
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return path


def test_a_spool_file_of_another_version_is_compacted_too(folders: Folders) -> None:
    batch = to_columns(noon_buffer(0, 3), 0).drop_columns(["traceparent"])
    other_stream(folders, "1-1.arrows", batch.append_column("news", pa.array([1, 2, 3])))
    assert compact_spool(folders, GIB).records == 3
    (file,) = folders.parquet_files()
    found = pq.ParquetFile(file)
    assert found.schema_arrow.names == [*SCHEMA.names, "news"]  # what we do not know stays
    assert found.read(["traceparent"]).column(0).null_count == 3
    assert found.read(["news"]).column(0).to_pylist() == [1, 2, 3]


def test_a_file_that_cannot_be_compacted_is_set_aside_and_holds_up_no_other(folders: Folders) -> None:
    strange = pa.record_batch({"ts": pa.array(["yesterday"])})
    other_stream(folders, "1-1.arrows", strange)
    spooled(folders, "1-2", noon_buffer(0, 10))
    done = compact_spool(folders, GIB)
    assert (done.records, done.bad + done.torn) == (10, 1)
    assert folders.closed() == []
    assert parts(folders) == {"date=2026-11-21/hour=12/streamer=gateway.veh1": list(range(10))}


def test_a_batch_without_what_every_record_has_is_bad(folders: Folders) -> None:
    other_stream(folders, "1-1.arrows", to_columns(noon_buffer(0, 3), 0).drop_columns(["seq"]))
    done = compact_spool(folders, GIB)
    assert (done.records, done.bad) == (0, 1)
    assert [file.name for file in folders.bad()] == ["1-1.arrows.bad"]
    assert compact_spool(folders, 1).deleted_files == 1
    assert folders.bad() == []


@pytest.mark.long
def test_the_process_prints_what_it_has_done(folders: Folders) -> None:
    spooled(folders, "1-1", noon_buffer(0, 100))
    command = [sys.executable, "-m", "streamer.features.traces.compact", str(folders.path), "gateway.veh1", str(GIB)]
    found = subprocess.run(command, capture_output=True, check=True)
    said = Compaction(**json.loads(found.stdout))
    assert (said.files, said.records, said.problems) == (1, 100, [])
    (folders.path / "date=2026-11-21").rename(folders.path / "date=2026-11-20")
    (folders.path / "date=2026-11-21").write_text("in the way")
    spooled(folders, "1-2", noon_buffer(0, 100))
    failed = subprocess.run(command, capture_output=True, check=False)
    assert failed.returncode == 1
    assert len(Compaction(**json.loads(failed.stdout)).problems) == 1


@pytest.fixture(params=[0o000, 0o077], ids=["umask-0", "umask-077"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_nobody_outside_owner_and_group_can_read_a_trace(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "new" / "traces", "gateway.veh1")
    spool = SpoolWriter(folders, 1, rotate_s=3600, rotate_bytes=1, max_bytes=GIB, on_closed=lambda: None)
    spool.start()
    for number in range(2):
        spool.take(noon_buffer(number * 3, 3))
    assert spool.stop(10)
    assert compact_spool(folders, GIB).records == 6
    spooled(folders, "9-1", noon_buffer(6, 1))  # what an earlier version has left open to everybody
    compact_spool(folders, GIB)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o750}
    assert {mode for path, mode in modes.items() if path.suffix == ".parquet"} == {0o640}
    assert {mode for path, mode in modes.items() if path.suffix == ".lock"} <= {0o600}


@pytest.mark.usefixtures("umask")
def test_a_trace_that_is_being_written_is_as_closed_as_a_complete_one(folders: Folders) -> None:
    stream = Stream(folders.spool / "1-1.arrows.open", SCHEMA, 0)
    stream.write(to_columns(noon_buffer(0, 1), 0))
    assert stat.S_IMODE(stream.path.stat().st_mode) == 0o640
    stream.close()
    (closed,) = folders.closed()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o640


def test_a_folder_that_somebody_else_has_made_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "traces"
    shared.mkdir()
    shared.chmod(0o2775)
    Folders(shared, "gateway.veh1").create()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o2775
    assert stat.S_IMODE((shared / ".spool").stat().st_mode) == 0o2750  # and its group goes on to what is below


NEWER = SCHEMA.with_metadata({b"ustreamer.trace.version": b"2", b"ustreamer.trace.written_by": b"9.8.7"})


def test_what_a_newer_version_has_written_is_left_for_it(folders: Folders) -> None:
    path = other_stream(folders, "1-1.arrows", pa.record_batch(to_columns(noon_buffer(0, 5), 0).columns, schema=NEWER))
    before = path.read_bytes()
    spooled(folders, "2-1", noon_buffer(5, 5))
    done = compact_spool(folders, GIB)
    assert (done.files, done.records, done.bad) == (1, 5, 0)
    (problem,) = done.problems
    assert problem.startswith("1-1.arrows: format 2 was written by ustreamer 9.8.7; this is")
    assert path.read_bytes() == before
    assert folders.bad() == []


def test_the_names_of_files_tell_a_version_above_the_first(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    first = folders.part(Path("1-1.arrows"), dt.date(2026, 11, 21), 7)
    monkeypatch.setattr(layout, "VERSION", 2)
    second = folders.part(Path("1-1.arrows"), dt.date(2026, 11, 21), 7)
    assert second.name == f"{first.stem}.v2.parquet"


def test_events_go_to_the_folder_of_their_date_and_count_as_no_records(folders: Folders) -> None:
    midnight = NOON_MS + 12 * HOUR_MS
    path = folders.events / "1-1.arrows"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, EVENT_SCHEMA) as writer:
        writer.write_batch(to_event_columns([event(0, midnight - 1), event(1, midnight), event(2, midnight + HOUR_MS)], 0))
    done = compact_spool(folders, GIB)
    assert (done.files, done.records, done.bad, done.problems) == (2, 0, 0, [])
    found = {
        str(file.parent.relative_to(folders.path)): pq.ParquetFile(file).read().to_pylist()
        for file in folders.path.rglob("events-*.parquet")
    }
    assert {folder: [each["seq"] for each in rows] for folder, rows in found.items()} == {
        "_events/date=2026-11-21/streamer=gateway.veh1": [0],
        "_events/date=2026-11-22/streamer=gateway.veh1": [1, 2],
    }
    assert parts(folders) == {}
    assert folders.closed() == []
