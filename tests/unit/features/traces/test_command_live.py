"""``streamer traces`` while the daemon writes, closes, compacts and deletes."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamer.features.traces import command as traces_command
from streamer.features.traces import reader
from streamer.features.traces.compact import compact_spool
from streamer.features.traces.layout import Folders
from streamer.features.traces.spool import SpoolWriter
from tests.unit.features.traces.folders import HOUR_US, NAME, NOW_US, SpoolFileWriter, failed, numbers, row, write_part
from tests.unit.features.traces.streams import noon_buffer
from tests.unit.tools.commands import Run


def test_files_that_vanish_after_they_were_listed_have_nothing(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, _ = write_part(folder, [row(0, HOUR_US), row(1, 2000)])
    listed = reader.parquet_files

    def list_and_delete(path: Path) -> list[reader.ParquetFile]:
        files = listed(path)
        gone.unlink()
        return files

    monkeypatch.setattr(reader, "parquet_files", list_and_delete)
    status, out, err = run("tail", "--json")
    assert (status, numbers(out), err) == (0, [1], "")


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_spool_file_that_is_closed_or_compacted_after_it_was_listed_is_read(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    spool = SpoolFileWriter(folder)
    spool.write(row(0))
    find = reader.SpoolReader._find

    def list_and_close(self: reader.SpoolReader) -> set[Path]:
        found = find(self)
        closed = spool.close()
        if is_compacted:
            closed.unlink()
            write_part(folder, [row(0)])
        return found

    monkeypatch.setattr(reader.SpoolReader, "_find", list_and_close)
    assert numbers(run("tail", "--json")[1]) == [0]


def steps(monkeypatch: pytest.MonkeyPatch, *work: Callable[[], object]) -> None:
    """Each step happens while ``tail --follow`` sleeps; then Ctrl-C."""
    todo: Iterator[Callable[[], object]] = iter(work)

    def sleep() -> None:
        step = next(todo, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(traces_command, "_sleep", sleep)


def test_following_prints_every_record_once_while_it_is_compacted(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(seq, 100_000 - seq * 1000) for seq in range(7)]
    write_part(folder, rows[:1])
    spool = SpoolFileWriter(folder)
    spool.write(rows[1])

    def rotate() -> None:  # written, closed, compacted and deleted between two looks; the next file as well
        spool.write(*rows[3:5])
        spool.close().unlink()
        write_part(folder, rows[1:5])
        following = SpoolFileWriter(folder, "1-2")
        following.write(rows[5])
        following.close().unlink()
        write_part(folder, rows[5:6])
        SpoolFileWriter(folder, "1-3").write(rows[6])

    steps(monkeypatch, lambda: spool.write(rows[2]), rotate, lambda: None)
    status, out, err = run("tail", "--json", "--follow")
    assert (status, err) == (0, "")
    assert sorted(numbers(out)) == [0, 1, 2, 3, 4, 5, 6]
    assert numbers(out)[:5] == [0, 1, 2, 3, 4]


def test_following_can_begin_before_there_is_anything(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".spool").mkdir()
    steps(monkeypatch, lambda: None, lambda: SpoolFileWriter(folder).write(row(0), failed(1)))
    status, out, _ = run("tail", "-f", "-n", "0", "--outcome", "expired")
    assert status == 0
    assert [line.split()[1] for line in out.splitlines()] == ["OUTCOME", "expired"]


def test_a_torn_end_is_read_when_it_is_complete(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = SpoolFileWriter(folder)
    half = spool.write(row(0)) + 50
    spool.write(row(1))
    content = spool.path.read_bytes()
    os.truncate(spool.path, half)

    def complete() -> None:
        with spool.path.open("ab") as file:
            file.write(content[half:])

    steps(monkeypatch, complete)
    assert numbers(run("tail", "--json", "-f")[1]) == [0, 1]


def test_what_the_daemon_writes_and_compacts_is_followed(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = Folders(folder, NAME)
    closed = threading.Semaphore(0)
    gib = 1024**3
    spool = SpoolWriter(folders, NOW_US, rotate_s=3600, rotate_bytes=1, max_bytes=gib, on_closed=closed.release)
    spool.start()

    def write(first_seq: int, count: int) -> None:  # a file for each buffer, as it is larger than rotate_bytes
        assert spool.take(noon_buffer(first_seq, count))
        assert closed.acquire(timeout=30)

    def compact_all() -> None:
        write(5, 4)
        assert compact_spool(folders, gib).problems == []

    write(0, 2)
    steps(monkeypatch, lambda: write(2, 3), compact_all, lambda: None)
    status, out, err = run("tail", "--json", "--follow")
    assert (status, numbers(out), err) == (0, [0, 1, 2, 3, 4, 5, 6, 7, 8], "")
    assert spool.stop(30)
    assert numbers(run("tail", "--json")[1]) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert json.loads(run("summary", "--json", "--last", "2h")[1])["records_missing"] == 0
