"""Until when the traces of each streamer are complete, hour by hour, on hand-made records."""

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_jobs import completeness, streamer_health
from spark_jobs.batch import Batch
from tests.spark.traces import DATE, Record, at, frame, record, write

BEFORE, AFTER = (DATE + dt.timedelta(days=days) for days in (-1, 1))
LONG_AGO = at("20:00", DATE - dt.timedelta(days=9))
NOON = at("12:00")
EPOCH, SECOND = at("00:00:04", dt.date(1970, 1, 1)), dt.timedelta(seconds=1)
BITS = 3


def numbered(name: str, *seen: tuple[int, dt.datetime], run_ts: dt.datetime = LONG_AGO, waited_s: int = 0) -> list[Record]:
    latency_us = waited_s * 1_000_000
    return [record(ts, seq=seq, run_ts=run_ts, latency_us=latency_us, streamer=name) for seq, ts in seen]


def left_out(*paths: str) -> dict[dt.date, dict[str, str]]:
    return {DATE: dict.fromkeys(paths, "torn")}


Row = dict[str, Any]
Hours = dict[int, Row]


RECORDS = [
    *numbered("whole", (20, at("23:00", BEFORE)), (21, at("00:30")), (22, at("19:10")), (23, at("00:10", AFTER))),
    # the record that came at 23:50 had its outcome after midnight, among those of the next day
    *numbered("waited", (0, at("01:00"))),
    *numbered("waited", (2, at("23:50")), waited_s=1_200),
    *numbered("waited", (1, at("00:05", AFTER)), (3, at("00:20", AFTER))),
    *numbered("waits from before", (1, at("23:50", BEFORE)), waited_s=12_000),
    *numbered("waits from before", (0, at("01:00")), (2, at("04:00")), (3, at("01:00", AFTER))),
    *numbered("waits for hours", (1, at("20:00", BEFORE)), waited_s=18_000),
    *numbered("waits for hours", (0, at("23:00", BEFORE)), (2, at("04:00")), (3, at("01:00", AFTER))),
    # two gaps that begin at 7, the second reaches to 10; and one over many buckets
    *numbered("gaps", (0, at("23:00", BEFORE)), (1, at("07:10")), (3, at("07:50")), (6, at("10:10")), (7, at("11:00"))),
    *numbered("gaps", (100, at("12:30")), (101, at("13:30")), (102, at("08:00", AFTER))),
    *numbered("over midnight", (0, at("22:00")), (5, at("02:00", AFTER))),
    *numbered("since the day before", (0, at("22:00", BEFORE)), (5, at("03:20")), (6, at("01:00", AFTER))),
    *numbered("restarted", (8, at("11:50"))),
    *numbered("restarted", (0, at("12:10")), (1, at("03:00", AFTER)), run_ts=NOON),
    *numbered("restarted badly", (8, at("23:00", BEFORE)), (9, at("11:50"))),
    *numbered("restarted badly", (2, at("12:10")), (3, at("03:00", AFTER)), run_ts=NOON),
    *numbered("went silent", (0, at("23:00", BEFORE)), (1, at("14:20"))),
    *numbered("silent all day", (0, at("23:00", BEFORE))),
    *numbered("silent for a day", (0, at("23:00", BEFORE)), (1, at("04:00", AFTER))),
    *numbered("came back", (5_000, at("05:30")), (5_001, at("02:00", AFTER))),
    # the clock was set after the first messages of the run, whose records are of 1970
    *numbered("booted in 1970", (3, at("08:10")), (4, at("09:10")), (5, at("01:00", AFTER)), run_ts=EPOCH),
    *numbered("boots in 1970 daily", (2, at("09:10", BEFORE)), run_ts=EPOCH),
    *numbered("boots in 1970 daily", (4, at("09:10")), (5, at("17:00")), (8, at("18:30", AFTER)), run_ts=EPOCH + SECOND),
    *numbered("boots in 1970 daily", (3, at("19:10", AFTER)), run_ts=EPOCH + 2 * SECOND),
    *numbered("new", (0, at("12:10")), (1, at("01:00", AFTER)), run_ts=NOON),
    *numbered("of tomorrow", (0, at("12:10", AFTER)), run_ts=at("11:00", AFTER)),
    *numbered("left out", (0, at("23:00", BEFORE)), (1, at("04:00")), (3, at("06:00")), (4, at("01:00", AFTER))),
]
"""One streamer per case."""


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> tuple[dict[str, Hours], dict[str, Row]]:
    """The rows of each streamer by hour, and those of `streamer_health`."""
    files = left_out(
        "hour=5/streamer=left%20out/a.parquet", "hour=9/streamer=bad/b.parquet", "hour=9/streamer=bad/c.parquet"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamer_health, "_BUCKET_BITS", BITS)
        health, hours = streamer_health.transform(frame(spark, RECORDS).coalesce(1).cache(), [], [DATE], files)
        found: dict[str, Hours] = {}
        for row in hours.collect():
            found.setdefault(row.streamer, {})[row.hour] = row.asDict()
        return found, {row.streamer: row.asDict() for row in health.collect()}


def ends(hours: Hours) -> dict[int, str]:
    """The hours that are not complete to their ends, with the time until which they are."""
    found = {}
    for hour, row in sorted(hours.items()):
        until = row["complete_until"]
        end = at("00:00") + dt.timedelta(hours=hour + 1)
        if until is None or until.replace(tzinfo=dt.UTC) != end:
            found[hour] = "" if until is None else f"{until:%H:%M}"
    return found


def counts(hours: Hours) -> dict[int, tuple[int, int]]:
    found = {hour: (row["expected"], row["seen"]) for hour, row in hours.items()}
    return {hour: each for hour, each in found.items() if each != (0, 0)}


NOTHING = dict.fromkeys(range(24), "")


@pytest.mark.parametrize(
    ("streamer", "expected", "until"),
    [
        ("whole", {0: (1, 1), 19: (1, 1)}, {}),
        ("waited", {1: (1, 1), 23: (1, 1)}, {}),
        ("waits from before", {1: (1, 1), 4: (1, 1)}, {}),
        ("waits for hours", {4: (1, 1)}, {}),
        (
            "gaps",
            {7: (2 + 1 + 2, 2), 10: (1, 1), 11: (1 + 92, 1), 12: (1, 1), 13: (1, 1)},
            {7: "07:10", 8: "", 9: "", 10: "", 11: "11:00", 12: ""},
        ),
        ("over midnight", {22: (5, 1)}, {22: "22:00", 23: ""}),
        ("since the day before", {3: (1, 1)}, {0: "", 1: "", 2: "", 3: ""}),
        ("restarted", {11: (1, 1), 12: (1, 1)}, {}),
        ("restarted badly", {11: (1, 1), 12: (1 + 2, 1)}, {12: "12:00"}),
        ("went silent", {14: (1, 1)}, {14: "14:20"} | dict.fromkeys(range(15, 24), "")),
        ("silent all day", {}, NOTHING),
        ("silent for a day", {}, {}),
        ("came back", {5: (1, 1)}, {}),
        ("booted in 1970", {8: (1, 1), 9: (1, 1)}, {}),
        ("boots in 1970 daily", {9: (1, 1), 17: (1 + 2, 1)}, {17: "17:00"} | dict.fromkeys(range(18, 24), "")),
        ("new", {12: (1, 1)}, {}),
        ("left out", {4: (1 + 1, 1), 6: (1, 1)}, {4: "04:00", 5: ""}),
        ("bad", {}, NOTHING),
    ],
)
def test_each_hour_says_until_when_it_is_complete(
    made: tuple[dict[str, Hours], Any], streamer: str, expected: dict[int, tuple[int, int]], until: dict[int, str]
) -> None:
    hours = made[0][streamer]
    assert list(hours) == list(range(24))
    assert counts(hours) == expected
    assert ends(hours) == until


def test_a_streamer_that_began_later_has_no_rows(made: tuple[dict[str, Hours], Any]) -> None:
    assert "of tomorrow" not in made[0]


def test_files_that_are_left_out_are_those_of_the_hour(made: tuple[dict[str, Hours], Any]) -> None:
    files = {
        (name, hour): row["files_left_out"]
        for name, of in made[0].items()
        for hour, row in of.items()
        if row["files_left_out"]
    }
    assert files == {("left out", 5): 1, ("bad", 9): 2}


def test_what_is_missing_is_as_much_as_the_health_of_the_streamer_says(
    made: tuple[dict[str, Hours], dict[str, Row]],
) -> None:
    hours, health = made
    sums = {
        name: (sum(row["seen"] for row in of.values()), sum(row["expected"] - row["seen"] for row in of.values()))
        for name, of in hours.items()
    }
    without = {"silent all day", "silent for a day"}
    assert {name: sum_ for name, sum_ in sums.items() if name not in without} == {
        name: (row["records"], row["records_missing"]) for name, row in health.items()
    }
    assert {sums[name] for name in without} == {(0, 0)}


def test_a_streamer_that_was_stopped_in_order_is_complete_until_it_begins_again(spark: SparkSession, tmp_path: Path) -> None:
    names = (
        "stopped",
        "stopped on the next day",
        "began again",
        "stopped before",
        "crashed",
        "pair",
        "taken over",
        "killed",
        "standby",
    )
    write(tmp_path, [each for name in names for each in numbered(name, (0, at("12:10")), run_ts=NOON)])
    write(tmp_path, numbered("stopped before", (0, at("15:10")), run_ts=at("15:00")))
    tell(tmp_path, "stopped", ("started", NOON), ("stopped", at("14:00")))
    tell(tmp_path, "stopped on the next day", ("stopped", at("01:00", AFTER)))
    tell(tmp_path, "began again", ("started", NOON), ("stopped", at("14:00")))
    tell(tmp_path, "began again", ("started", at("16:00")), ("down", at("16:01")), run_ts=at("16:00"))
    tell(tmp_path, "stopped before", ("stopped", at("14:00")))
    tell(tmp_path, "crashed", ("started", NOON), ("down", at("12:01")))
    for name in ("pair", "taken over"):  # the standby, of a version that writes events, began before the active one ended
        tell(tmp_path, name, ("started", NOON), ("up", at("12:01")))
        tell(tmp_path, name, ("started", at("12:05")), ("stopped", at("23:00")), run_ts=at("12:05"))
    write(tmp_path, numbered("taken over", (0, at("13:10")), run_ts=at("12:05")))
    for name, *links in (("killed", ("down", at("14:20"))), ("standby",)):
        tell(tmp_path, name, ("started", at("14:20")), *links, ("stopped", at("15:00")), run_ts=at("14:20"))
    batch = Batch(spark, str(tmp_path), f"{tmp_path}/tables", (DATE,), reach=(2, 1), left_out={})
    found: dict[str, Hours] = {}
    for row in streamer_health.compute(batch)[1].collect():
        found.setdefault(row.streamer, {})[row.hour] = row.asDict()
    batch.release()
    silent = dict.fromkeys(range(16, 24), "")
    assert {name: ends(hours) for name, hours in found.items()} == {
        "stopped": {},
        "stopped on the next day": {},
        "began again": silent | {16: "16:01"},
        "stopped before": silent | {15: "15:10"},
        "crashed": silent | {12: "12:10", 13: "", 14: "", 15: ""},
        "pair": silent | {12: "12:10", 13: "", 14: "", 15: ""},
        "taken over": {12: "12:10", 13: ""},
        "killed": {12: "12:10", 13: "", 14: ""},
        "standby": silent | {12: "12:10", 13: "", 14: "", 15: ""},
    }


# the command


T = f"{DATE}T24:00Z"


def asked(capsys: pytest.CaptureFixture[str], traces: Path | str, *more: str, **given: Any) -> tuple[int, list[str]]:
    code = completeness.main(["--input", str(traces), "--wait-complete-until", T, *more], **given)
    return code, capsys.readouterr().out.splitlines()


def lacking(said: list[str]) -> dict[str, str]:
    return dict(line.removeprefix("not complete: ").split(": ", 1) for line in said if line.startswith("not complete: "))


def test_the_command_says_of_each_streamer_what_the_table_says(
    made: tuple[dict[str, Hours], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [each for each in RECORDS if each["streamer"] != "left out"])
    write(tmp_path, [each | {"streamer": "left%20out"} for each in RECORDS if each["streamer"] == "left out"])
    for hour, name in ((5, "left%20out"), (9, "bad")):
        (torn,) = write(tmp_path, [record(f"{hour:02}:10", streamer=name)])
        torn.write_bytes(torn.read_bytes()[:-50])
    whole = {name for name, hours in made[0].items() if not ends(hours)}
    code, said = asked(capsys, tmp_path)
    assert code == 1
    assert said[0] == f"complete until {AFTER}T00:00Z: {len(whole)} of {len(made[0])} streamers"
    told = lacking(said)
    assert told.keys() == made[0].keys() - whole
    assert told["gaps"] == f"lacks 95 records from {DATE}T07:10:00Z on"
    assert told["over midnight"] == f"lacks 4 records from {DATE}T22:00:00Z on"
    assert told["restarted badly"] == f"lacks 2 records from {DATE}T12:00:00Z on"
    assert told["went silent"] == f"nothing since the hour {DATE}T14:00Z"
    assert "part-" in told["left out"]
    assert " cannot be used: cannot be read: " in told["left out"]


def test_it_waits_until_the_share_of_streamers_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        write(tmp_path, numbered(f"veh{number}", (0, at("12:00")), run_ts=NOON))
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        write(tmp_path, numbered(f"veh{len(waited)}", (1, at("00:10", AFTER)), run_ts=NOON))
        waited.append(seconds)

    code, said = asked(capsys, tmp_path, "--share", "0.75", "--timeout", "2h", "--every", "5m", sleep=sleep)
    assert (code, waited) == (0, [300.0] * 3)
    assert [line.split(": ")[1] for line in said[:-1]] == [f"{number} of 4 streamers" for number in range(4)]
    assert lacking(said).keys() == {"veh3"}


def test_who_is_not_complete_is_named_within_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [each for n in range(23) for each in numbered(f"veh{n:02}", (0, at("12:00")), run_ts=NOON)])
    code, said = asked(capsys, tmp_path)
    assert (code, len(said), said[-1]) == (1, 22, "not complete: 3 more streamers")


def test_streamers_without_records_in_the_last_days_are_not_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, numbered("sold", (0, at("12:00", DATE - dt.timedelta(days=7)))))
    write(tmp_path, numbered("parked", (0, at("12:00", DATE - dt.timedelta(days=6)))))
    assert lacking(asked(capsys, tmp_path)[1]).keys() == {"parked"}
    assert lacking(asked(capsys, tmp_path, "--days", "8")[1]).keys() == {"parked", "sold"}
    assert asked(capsys, tmp_path, "--days", "2") == (1, [f"complete until {AFTER}T00:00Z: 0 of 0 streamers"])


def test_several_runs_and_copies_in_merged_files_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hour = [*numbered("hub", (7, at("12:01")), (8, at("12:02")))]
    hour += numbered("hub", (0, at("12:10")), (1, at("12:20")), run_ts=at("12:05"))
    write(tmp_path, numbered("hub", (6, at("23:00", BEFORE))) + hour)
    write(tmp_path, hour)
    write(tmp_path, numbered("hub", (2, at("03:00", AFTER)), run_ts=at("12:05")))
    assert asked(capsys, tmp_path) == (0, [f"complete until {AFTER}T00:00Z: 1 of 1 streamers"])
    (rest,) = (tmp_path / f"date={AFTER}").rglob("*.parquet")
    rest.unlink()
    write(tmp_path, numbered("hub", (3, at("03:00", AFTER)), run_ts=at("12:05")))
    assert lacking(asked(capsys, tmp_path)[1]) == {"hub": f"lacks 1 records from {DATE}T12:20:00Z on"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--wait-complete-until", "2026-11-20T07:30Z"], "expected a full hour in UTC, such as 2026-11-26T24:00Z"),
        (["--wait-complete-until", "2026-11-20T25:00Z"], "expected a full hour in UTC"),
        (["--share", "0"], "expected a share above 0 and up to 1"),
        (["--share", "99%"], "expected a share above 0 and up to 1"),
        (["--timeout", "soon"], "expected a time such as 90s, 30m or 2h"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str) -> None:
    with pytest.raises(SystemExit) as ended:
        asked(capsys, tmp_path, *more)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_traces_that_are_not_there_end_it_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (f"{tmp_path}/none", f"file://{tmp_path}/none", "nofs://a/b"):
        assert completeness.main(["--input", folder, "--wait-complete-until", T]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert asked(capsys, f"file://{tmp_path}")[0] == 1


def tell(root: Path, streamer: str, *events: tuple[str, dt.datetime], run_ts: dt.datetime = NOON) -> Path:
    """Write events as the daemon does, in a file of their own."""
    rows = [{"ts": ts, "seq": seq, "run_ts": run_ts, "event": event} for seq, (event, ts) in enumerate(events)]
    us = pa.timestamp("us", "UTC")
    schema = pa.schema({"ts": us, "seq": pa.int64(), "run_ts": us, "event": pa.string()})
    folder = root / "_events" / f"date={events[-1][1].date()}" / f"streamer={streamer}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events-{uuid.uuid4()}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def test_a_streamer_that_has_stopped_in_order_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later, killed = at("15:00"), at("11:00")
    for name in (
        "stopped",
        "stopped with a gap",
        "started again",
        "began behind",
        "killed",
        "torn",
        "newer",
        "runs since",
        "pair",
        "standby",
    ):
        write(tmp_path, numbered(name, (0, at("12:10")), run_ts=NOON))
    write(tmp_path, numbered("stopped with a gap", (2, at("12:20")), run_ts=NOON))
    for name in ("stopped", "stopped with a gap", "started again", "began behind", "runs since"):
        tell(tmp_path, name, ("started", NOON), ("down", at("12:01")), ("stopped", at("14:00")))
    tell(tmp_path, "started again", ("started", later), ("down", later), run_ts=later)
    tell(tmp_path, "standby", ("started", later), ("stopped", at("23:00")), run_ts=later)
    tell(tmp_path, "pair", ("started", NOON), ("up", at("12:01")))
    tell(tmp_path, "pair", ("started", at("12:05")), ("stopped", at("23:00")), run_ts=at("12:05"))
    behind = at("06:00", AFTER)
    tell(tmp_path, "began behind", ("started", behind), ("down", behind), run_ts=behind)
    write(tmp_path, numbered("runs since", (0, at("15:10")), run_ts=later))
    tell(tmp_path, "killed", ("stopped", at("11:30")), run_ts=killed)
    torn = tell(tmp_path, "torn", ("stopped", at("14:00")))
    torn.write_bytes(torn.read_bytes()[:-20])
    newer = tell(tmp_path, "newer", ("stopped", at("14:00")))
    newer.rename(newer.with_name(f"{newer.stem}.v2.parquet"))
    told = lacking(asked(capsys, tmp_path)[1])
    assert told == {
        "stopped with a gap": f"lacks 1 records from {DATE}T12:10:00Z on",
        "started again": f"nothing since the hour {DATE}T12:00Z",
        "killed": f"nothing since the hour {DATE}T12:00Z",
        **dict.fromkeys(("pair", "standby"), f"nothing since the hour {DATE}T12:00Z"),
        "torn": f"nothing since the hour {DATE}T12:00Z",
        "newer": f"nothing since the hour {DATE}T12:00Z",
        "runs since": f"nothing since the hour {DATE}T15:00Z",
    }
