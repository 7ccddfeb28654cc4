"""The section `trace`; where traces are stored, in which order files are taken, and which go first if there are too many."""

import os
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from streamer.features.every import FILE
from streamer.features.traces.config import TraceConfig
from streamer.features.traces.layout import Compaction, Deleted, Folders, sync
from tests.configurations import config_of, endpoint_of

DAY = date(2026, 11, 21)
NOW_S = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
YEARS = 20


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    found = Folders(tmp_path, "gateway.veh1")
    found.create()
    return found


def spooled(folders: Folders, *names: str, size: int = 10, written_s: float = NOW_S) -> list[Path]:
    paths = [folders.spool / name for name in names]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(size))
        os.utime(path, (written_s + number, written_s + number))
    return paths


def parquet(folders: Folders, hour: int, name: str = "a", day: date = DAY, size: int = 10) -> Path:
    path = folders.partition(day, hour) / f"part-{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_spool_files_are_told_apart_by_their_ends_and_ordered_by_run_and_number(folders: Folders) -> None:
    spooled(folders, "9-2.arrows", "10-1.arrows", "9-10.arrows", "9-11.arrows.open", "9-1.arrows.bad", "x.arrows")
    assert names(folders.closed()) == ["x.arrows", "9-2.arrows", "9-10.arrows", "10-1.arrows"]
    assert names(folders.left_open()) == ["9-11.arrows.open"]
    assert names(folders.bad()) == ["9-1.arrows.bad"]


def test_the_name_of_a_streamer_is_the_name_of_one_folder(tmp_path: Path) -> None:
    folders = Folders(tmp_path, "../a/b")
    assert folders.partition(DAY, 7) == tmp_path / "date=2026-11-21" / "hour=7" / "streamer=..%2Fa%2Fb"
    assert folders.spool.parent == tmp_path / ".spool"


def test_the_parquet_file_of_a_spool_file_and_hour_always_has_the_same_name(folders: Folders) -> None:
    first, second = spooled(folders, "1-1.arrows", "1-2.arrows")
    part = folders.part(first, DAY, 7)
    assert part == folders.part(first, DAY, 7)
    others = {folders.part(second, DAY, 7).name, folders.part(first, DAY, 8).name, part.name}
    others.add(Folders(folders.path, "other").part(first, DAY, 7).name)
    assert len(others) == 4


def test_parquet_files_are_in_the_order_of_their_hours_and_only_our_own(folders: Folders) -> None:
    late, early = parquet(folders, 10), parquet(folders, 9)
    day_before = parquet(folders, 23, day=date(2026, 11, 20))
    parquet(Folders(folders.path, "other"), 8)
    (folders.partition(DAY, 9) / ".hidden.parquet").touch()
    assert folders.parquet_files() == [day_before, early, late]


def test_the_size_of_all_files_counts_every_kind(folders: Folders) -> None:
    spooled(folders, "1-1.arrows", "1-2.arrows.open", "1-3.arrows.bad", size=3)
    parquet(folders, 1, size=5)
    assert folders.total_bytes() == 14


def test_bad_files_go_first_then_the_oldest_parquet_files_then_closed_spool_files(folders: Folders) -> None:
    spooled(folders, "1-1.arrows.bad", "1-2.arrows", "1-3.arrows", "1-4.arrows.open")
    old, new = parquet(folders, 1), parquet(folders, 2)
    assert folders.keep_to(60, NOW_S) == Deleted(0, 0)
    assert folders.keep_to(50, NOW_S) == Deleted(1, 10)
    assert folders.bad() == []
    assert folders.keep_to(31, NOW_S) == Deleted(2, 20)
    assert (old.exists(), new.exists(), len(folders.closed())) == (False, False, 2)
    assert folders.keep_to(0, NOW_S) == Deleted(2, 20)
    assert names(folders.left_open()) == ["1-4.arrows.open"]


@pytest.mark.parametrize("day", [date(2026 + YEARS, 11, 21), date(2026, 11, 24)], ids=["years ahead", "two days ahead"])
def test_files_from_the_future_go_before_all_others(folders: Folders, day: date) -> None:
    """Else they would stay for ever, and what is written today would go at once."""
    old, today, tomorrow = parquet(folders, 1), parquet(folders, 1, day=date(2026, 11, 22)), date(2026, 11, 23)
    late, early = parquet(folders, 9, day=day), parquet(folders, 8, day=day)
    near = parquet(folders, 0, day=tomorrow)  # as a clock may be wrong that nobody has set
    assert folders.ahead(NOW_S) == [early, late]
    assert folders.keep_to(40, NOW_S) == Deleted(1, 10)
    assert (early.exists(), late.exists(), old.exists()) == (False, True, True)
    assert folders.keep_to(20, NOW_S) == Deleted(2, 20)
    assert folders.parquet_files() == [today, near]
    assert folders.ahead(NOW_S) == []


def test_spool_files_from_the_future_go_before_those_of_today(folders: Folders) -> None:
    ahead_s = YEARS * 365 * 86_400
    (ahead,) = spooled(folders, f"{round((NOW_S + ahead_s) * 1e6)}-1.arrows", written_s=NOW_S + ahead_s)
    # The run that began in the future goes on after its clock was set, and a later one begins.
    run = ahead.name.partition("-")[0]
    set_back, later = f"{run}-2.arrows", f"{round((NOW_S + 60) * 1e6)}-1.arrows"
    spooled(folders, set_back, written_s=NOW_S + 30)
    spooled(folders, later, written_s=NOW_S + 90)
    today = parquet(folders, 1)
    assert folders.keep_to(30, NOW_S) == Deleted(1, 10)
    assert (ahead.exists(), today.exists()) == (False, True)
    assert folders.keep_to(10, NOW_S) == Deleted(2, 20)
    assert names(folders.closed()) == [later]


def test_with_a_clock_that_was_never_set_the_oldest_files_go_first_as_always(folders: Folders) -> None:
    old, new, unset = parquet(folders, 1), parquet(folders, 2), parquet(folders, 0, day=date(1970, 1, 1))
    assert folders.keep_to(20, 60.0) == Deleted(1, 10)
    assert folders.keep_to(10, 60.0) == Deleted(1, 10)
    assert [file.exists() for file in (old, new, unset)] == [False, False, True]


def test_folders_that_become_empty_go_and_those_of_other_streamers_stay(folders: Folders) -> None:
    parquet(folders, 1)
    parquet(folders, 2)
    other = parquet(Folders(folders.path, "other"), 2)
    folders.keep_to(0, NOW_S)
    assert not (folders.path / "date=2026-11-21" / "hour=1").exists()
    assert other.exists()
    assert not folders.partition(DAY, 2).exists()


def test_a_lock_is_held_by_one_and_ends_with_its_descriptor(folders: Folders) -> None:
    held = folders.lock("lock", wait=False)
    open_files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BlockingIOError):
        folders.lock("lock", wait=False)
    assert len(os.listdir("/proc/self/fd")) == open_files
    os.close(held)
    os.close(folders.lock("lock", wait=True))


def test_the_entries_of_a_folder_can_be_written_to_the_disk(folders: Folders) -> None:
    sync(folders.spool)
    with pytest.raises(FileNotFoundError):
        sync(folders.path / "nothing")


def test_two_compactions_add_up_and_the_later_one_knows_the_size() -> None:
    first = Compaction(1, 2, 3, 4, 5, 6, 700, 8, ["problem"])
    assert first.followed_by(Compaction(10, 20, 30, 40, 50, 60, 70, 80)) == Compaction(11, 22, 33, 44, 55, 66, 70, 80)
    assert first.followed_by(Compaction()) == Compaction(1, 2, 3, 4, 5, 6, 700)


def test_the_events_of_a_date_are_deleted_after_its_records_and_before_later_ones(folders: Folders) -> None:
    later = date(2026, 11, 22)
    kept = parquet(folders, 0, day=later)
    spool_file = folders.events / "1-1.arrows"
    events = folders.part(spool_file, DAY, 0)
    events.parent.mkdir(parents=True)
    events.write_bytes(bytes(10))
    parquet(folders, 23)
    assert events.relative_to(folders.path).parts[:3] == ("_events", "date=2026-11-21", "streamer=gateway.veh1")
    assert folders.total_bytes() == 30
    assert folders.keep_to(20, NOW_S) == Deleted(1, 10)
    assert events.exists()
    assert folders.keep_to(10, NOW_S) == Deleted(1, 10)
    assert not (folders.path / "_events").exists()
    assert kept.exists()


def test_closed_events_are_deleted_with_the_spool_and_its_folder_stays(folders: Folders) -> None:
    (folders.events / "1-1.arrows").write_bytes(bytes(10))
    assert folders.keep_to(0, NOW_S) == Deleted(1, 10)
    assert folders.events.is_dir()


def test_a_folder_is_enough(tmp_path: Path) -> None:
    options = TraceConfig.model_validate({"path": f"{tmp_path}/"})
    assert (options.rotate_s, options.max_bytes, options.path) == (300, 4096 << 20, tmp_path)
    assert [(each.max_bytes, each.open_bytes) for each in options.folders()] == [(4096 << 20, 64 << 20)]


@pytest.mark.parametrize(("key", "value"), [("rotate_s", 1e308), ("rotate_bytes", 1)])
def test_a_value_that_cannot_be_used_is_refused(key: str, value: float) -> None:
    with pytest.raises(ValidationError):
        TraceConfig.model_validate({"path": "traces", key: value})


def test_the_folder_belongs_to_the_traces() -> None:
    raw = config_of({"e": endpoint_of("memory", "veh1")}, routes=[], trace={"path": "/t"}, journal={"path": "/j.db"})
    assert FILE.model_validate(raw).section(TraceConfig) is not None
    with pytest.raises(ValidationError, match=r"the path /t is taken by trace\.path already"):
        FILE.model_validate(raw | {"log": {"audit": "/t"}})
