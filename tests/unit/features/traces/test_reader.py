"""Reading traces while they are written, compacted and deleted: every record once, and gaps counted."""

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer import __version__
from streamer.features.traces.reader import SeenRecords, SpoolReader, ended_us, newest, parquet_files, read_parquet
from streamer.features.traces.record import SCHEMA, VERSION_KEY
from tests.unit.features.traces.folders import HOUR_US, NAME, NOW_US, RUN_US, Row, SpoolFileWriter, row, table, write_part


def batch(*rows: Row, streamer: str = NAME) -> pa.RecordBatch:
    found = table(rows).append_column("streamer", pa.array([streamer] * len(rows), pa.string()))
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in found.columns], found.schema.names)


def numbers(batches: object) -> list[int]:
    return [seq for each in batches for seq in each.column("seq").to_pylist()]  # type: ignore[attr-defined]


def complaints(path: Path) -> list[str]:
    """What is complained about when all Parquet files of a folder are read."""
    found: list[str] = []
    for file in parquet_files(path):
        list(read_parquet(file, None, found.append))
    return found


# Parquet files


def test_parquet_files_are_found_with_their_hour_and_streamer_the_latest_first(tmp_path: Path) -> None:
    (early,) = write_part(tmp_path, [row(1, 2 * HOUR_US)])
    (late,) = write_part(tmp_path, [row(2)], streamer="a/b")
    found = parquet_files(tmp_path)
    assert [(file.path, file.streamer, file.hour_us) for file in found] == [
        (late, "a/b", NOW_US // HOUR_US * HOUR_US),
        (early, NAME, NOW_US // HOUR_US * HOUR_US - 2 * HOUR_US),
    ]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (good,) = write_part(tmp_path, [row(1)])
    os.mkfifo(pipe := good.with_name("pipe.parquet"))
    assert complaints(tmp_path) == [f"{pipe}: cannot be read: not a regular file"]
    os.makedirs(tmp_path / ".spool" / NAME)
    os.mkfifo(spooled := tmp_path / ".spool" / NAME / "part.arrows.open")
    found: list[str] = []
    reader = SpoolReader(tmp_path, found.append)
    assert [*reader.batches(), *reader.batches()] == []
    assert found == [f"{spooled}: cannot be read: not a regular file"]  # once
    reader.close()


def foreign(like: Path, records: pa.Table) -> None:
    pq.write_table(records, like, compression="zstd")


def test_a_file_of_another_program_is_named(tmp_path: Path) -> None:
    (path,) = write_part(tmp_path, [row(1)])
    foreign(path, pa.table({"x": [1]}))
    assert complaints(tmp_path) == [f"{path}: no file of traces: it has no columns ts, run_ts, seq"]
    foreign(path, pa.table({"ts": pa.nulls(1), "run_ts": pa.nulls(1), "seq": pa.nulls(1)}))
    assert complaints(tmp_path) == [f"{path}: no file of traces: it has records without ts or run_ts or seq"]


def test_what_is_small_only_while_it_is_compressed_is_not_decoded(tmp_path: Path) -> None:
    (path,) = write_part(tmp_path, [row(1)])
    records = pq.read_table(path, partitioning=None)
    columns = {name: pa.repeat(records.column(name)[0], 256) for name in records.column_names}
    columns["route"] = pa.array(["a" * (1 << 20)] * 256)  # of which the file has one value
    foreign(path, pa.table(columns))
    assert path.stat().st_size < 1 << 20
    (text,) = complaints(tmp_path)
    assert text.startswith(f"{path}: no file of traces: more than")


@pytest.mark.parametrize(
    "name",
    ["date=2026-11-21/hour=7/streamer=x/.part.parquet", "date=2026-11-21/hour=7/streamer=x/part.txt",
     "date=yesterday/hour=7/streamer=x/part.parquet", "date=2026-11-21/hour=x/streamer=x/part.parquet",
     "date=2026-11-21/part.parquet"],
)  # fmt: skip
def test_other_files_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    assert parquet_files(tmp_path) == []


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert parquet_files(tmp_path / "nothing") == []


def test_a_parquet_file_is_read_with_its_streamer_as_far_as_it_is_wanted(tmp_path: Path) -> None:
    write_part(tmp_path, [row(1), row(2, outcome="expired"), row(3)])
    (file,) = parquet_files(tmp_path)
    found = list(read_parquet(file, ds.field("outcome") == "delivered", pytest.fail, ("seq", "outcome")))
    assert numbers(found) == [1, 3]
    assert found[0].schema.names == ["seq", "outcome", "streamer"]
    assert found[0].column("streamer").to_pylist() == [NAME, NAME]


def test_a_column_that_an_older_file_lacks_is_empty(tmp_path: Path) -> None:
    write_part(tmp_path, [row(1, traceparent="x")], without=("traceparent",))
    (file,) = parquet_files(tmp_path)
    (found,) = read_parquet(file, None, pytest.fail)
    assert found.column("traceparent").to_pylist() == [None]


def test_a_file_that_is_gone_has_no_records_and_one_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (path,) = write_part(tmp_path, [row(1)])
    (file,) = parquet_files(tmp_path)
    path.write_bytes(b"nonsense")
    (said,) = complaints(tmp_path)
    assert said.startswith(f"{path}: cannot be read: ")
    assert "\n" not in said
    path.unlink()
    assert list(read_parquet(file, None, pytest.fail)) == []


# the spool


def test_records_are_read_once_as_they_are_written_and_also_after_their_file_was_closed_and_deleted(tmp_path: Path) -> None:
    writer, reader = SpoolFileWriter(tmp_path), SpoolReader(tmp_path, pytest.fail)
    writer.write(row(1), row(2))
    assert numbers(reader.batches()) == [1, 2]
    assert numbers(reader.batches()) == []
    writer.write(row(3))
    closed = writer.close()
    assert numbers(reader.batches()) == [3]
    closed.unlink()
    assert numbers(reader.batches()) == []
    reader.close()


def test_a_file_that_was_closed_before_it_was_found_is_read(tmp_path: Path) -> None:
    writer = SpoolFileWriter(tmp_path)
    writer.write(row(1))
    writer.close()
    reader = SpoolReader(tmp_path, pytest.fail)
    assert numbers(reader.batches()) == [1]
    reader.close()


def test_a_torn_end_is_read_when_it_is_whole(tmp_path: Path) -> None:
    writer = SpoolFileWriter(tmp_path)
    whole = writer.write(row(1))
    writer.write(row(2))
    content = writer.path.read_bytes()
    writer.path.write_bytes(content[: whole + 20])
    reader = SpoolReader(tmp_path, pytest.fail)
    assert numbers(reader.batches()) == [1]
    with writer.path.open("ab") as file:
        file.write(content[whole + 20 :])
    assert numbers(reader.batches()) == [2]
    reader.close()


def test_every_streamers_files_are_read_with_its_name(tmp_path: Path) -> None:
    for name, seq in (("a/b", 1), ("b", 2)):
        SpoolFileWriter(tmp_path, streamer=name).write(row(seq))
    reader = SpoolReader(tmp_path, pytest.fail)
    assert [(each.column("streamer")[0].as_py(), each.num_rows) for each in reader.batches()] == [("a/b", 1), ("b", 1)]
    reader.close()


def newer(text: str = "2", **more: str) -> dict[bytes, bytes]:
    return {
        VERSION_KEY: text.encode(),
        **{f"ustreamer.trace.{name}".encode(): value.encode() for name, value in more.items()},
    }


def test_a_file_of_a_newer_version_is_complained_about_with_both_versions_and_what_to_do(tmp_path: Path) -> None:
    (path,) = write_part(tmp_path, [row(1)])
    records = pq.read_table(path)
    for metadata, writer in ((newer(written_by="9.8.7"), "ustreamer 9.8.7"), (newer(), "a newer ustreamer")):
        pq.write_table(records.replace_schema_metadata(metadata), path)
        (said,) = complaints(tmp_path)
        assert said.startswith(f"{path}: format 2 was written by {writer}; this is ustreamer {__version__}, which knows")
        assert said.endswith(" or newer, or move the file away")
    pq.write_table(records.replace_schema_metadata(newer("one")), path)
    assert complaints(tmp_path) == []


def test_a_newer_file_in_the_spool_is_complained_about_once(tmp_path: Path) -> None:
    SpoolFileWriter(tmp_path).write(row(1))
    (path,) = tmp_path.glob(".spool/*/*.open")
    schema = SCHEMA.with_metadata(newer(written_by="9.8.7"))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table([row(1)]).replace_schema_metadata(schema.metadata))
    said: list[str] = []
    reader = SpoolReader(tmp_path, said.append)
    assert numbers(reader.batches()) == []
    assert numbers(reader.batches()) == []
    assert [text.partition(";")[0] for text in said] == [
        f"{path.parent / path.stem}.open: format 2 was written by ustreamer 9.8.7"
    ]
    reader.close()


# records that were seen


def test_a_record_that_was_seen_is_not_seen_again() -> None:
    seen = SeenRecords()
    assert numbers([seen.add(batch(row(1), row(2)))]) == [1, 2]
    assert numbers([seen.add(batch(row(2), row(3)))]) == [3]
    assert numbers([seen.add(batch(row(2), streamer="other"))]) == [2]
    assert numbers([seen.add(batch(row(2, run_ts=RUN_US + 1)))]) == [2]


@given(st.lists(st.integers(0, 30), unique=True, min_size=1), st.randoms(use_true_random=False))
def test_in_any_order_and_pieces_records_are_seen_once_and_gaps_counted(kept: list[int], order: random.Random) -> None:
    seen = SeenRecords()
    left = kept * 2
    order.shuffle(left)
    found: list[int] = []
    while left:
        piece, left = left[:3], left[3:]
        found += numbers([seen.add(batch(*(row(seq) for seq in dict.fromkeys(piece))))])
    assert sorted(found) == sorted(kept)
    assert seen.missing(0) == max(kept) + 1 - len(kept)


def test_only_gaps_since_a_moment_count() -> None:
    seen = SeenRecords()
    seen.add(batch(row(1, 10_000_000), row(5, 5_000_000), row(9)))
    assert seen.missing(NOW_US - 20_000_000) == 3 + 3  # the start of the run was before
    assert seen.missing(NOW_US) == 3
    assert seen.missing(RUN_US) == 1 + 3 + 3


def test_a_record_ended_when_its_latency_was_over() -> None:
    assert ended_us(batch(row(1, 0, 1000), row(2, 0, None))).tolist() == [NOW_US + 1000, NOW_US]


# the newest


def test_the_newest_records_are_those_that_ended_last_without_duplicates() -> None:
    first = newest(None, batch(row(1, 30), row(2, 10), row(3, 20)), 2)
    assert first.column("seq").to_pylist() == [3, 2]
    both = newest(first, batch(row(2, 10), row(4, 5)), 3)
    assert both.column("seq").to_pylist() == [3, 2, 4]


def test_whether_records_were_seen_can_be_asked_without_remembering_them() -> None:
    seen = SeenRecords()
    assert seen.has(batch(row(1))).tolist() == [False]
    seen.add(batch(row(1), row(2), row(5)))
    asked = batch(row(2), row(3), row(5), row(1, run_ts=RUN_US + 1))
    assert seen.has(asked).tolist() == seen.has(asked).tolist() == [True, False, True, False]
    assert seen.has(batch(row(2), streamer="gateway.veh2")).tolist() == [False]
    assert seen.has(batch(row(1)).slice(0, 0)).tolist() == []
