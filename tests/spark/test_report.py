"""The report's figures equal the tables: hand-made tables in, figures reckoned by hand out; and its command line."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from spark_jobs import report, tables
from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.report.__main__ import main
from spark_jobs.schema import OUTCOMES
from spark_jobs.session import small_frame
from spark_jobs.storage import Storage
from spark_jobs.tables import ROUTE_HOURLY
from tests.spark.report_pages import Page
from tests.spark.report_rows import DAY
from tests.spark.report_tables import LOST, hour, make, put


def written_to(spark: SparkSession, root: Path, to: str) -> tuple[str, str]:
    return report.put(Storage(spark), report.collected(ParquetTables(spark, str(root)), DAY), to)


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Page]:
    root = tmp_path_factory.mktemp("report")
    make(root / "tables")
    html, data = written_to(spark, root / "tables", str(root / "out"))
    assert sorted(path.name for path in (root / "out").iterdir()) == ["report-2026-11-20.html", "report-2026-11-20.json"]
    return json.loads(Path(data).read_text()), Page(Path(html).read_text())


@pytest.fixture(scope="module")
def figures(written: tuple[dict[str, Any], Page]) -> dict[str, Any]:
    return written[0]


def key(figures: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(line for line in figures["key"] if line["name"] == name)
    return found


def test_key_figures_compare_with_the_recorded_days_of_the_fourteen_before(figures: dict[str, Any]) -> None:
    messages = key(figures, "messages")
    assert (messages["value"], messages["usual"], messages["days"]) == (135, 75.0, 2)
    assert messages["change"] == pytest.approx(0.8)
    assert messages["trend"] == [50, *[None] * 12, 100, 135]
    assert (key(figures, "bytes")["value"], key(figures, "redelivered")["value"]) == (1350, 3 + 5 + 3 + 7)
    assert (key(figures, "failed")["value"], key(figures, "failed")["usual"]) == (7, 5.0)
    assert key(figures, "delivered_share")["value"] == pytest.approx(119 / 126)
    assert (key(figures, "lost")["value"], key(figures, "lost")["usual"], key(figures, "lost")["days"]) == (5, 2.0, 2)
    assert (key(figures, "objectives")["value"], key(figures, "objectives")["of"]) == (1, 2)
    assert key(figures, "records_missing")["value"] == 13


def test_volume_is_by_hour_and_busiest_route_first(figures: dict[str, Any]) -> None:
    volume = figures["volume"]
    assert [(row["streamer"], row["route"], row["messages"]) for row in volume["routes"]] == [
        ("gw", "up", 100),
        ("gw", "down", 25),
        ("back", "up", 10),
    ]
    assert {at: n for at, n in enumerate(volume["routes"][0]["hours"]) if n} == {3: 60, 5: 40}
    assert {at: n for at, n in enumerate(volume["hours"]) if n} == {3: 85, 5: 40, 7: 10}
    assert volume["others"] is None


def test_outcomes_are_summed_by_route(figures: dict[str, Any]) -> None:
    first = figures["outcomes"]["routes"][0]
    assert {name: first[name] for name in OUTCOMES} == {
        "delivered": 90,
        "expired": 4,
        "rejected": 1,
        "dead_lettered": 2,
        "duplicate": 3,
        "local": 0,
        "unwanted": 0,
        "unheard": 0,
        "sampled_out": 0,
        "unconfirmed": 0,
        "superseded": 0,
    }
    assert first["delivered_share"] == pytest.approx(90 / 97)
    totals = figures["outcomes"]["totals"]
    assert (totals["messages"], totals["delivered"], totals["local"], totals["unheard"]) == (135, 119, 1, 5)


def test_latency_is_that_of_the_tables(figures: dict[str, Any]) -> None:
    (row,) = figures["latency"]["routes"]
    assert [row[f"latency_{rank}_us"] for rank in ("p50", "p90", "p99", "max")] == [1500, 2500, 31000, 41000]
    assert (row["latency_messages"], row["queue_wait_p50_us"], row["queue_wait_p99_us"]) == (90, 110, 330)


def test_dead_letters_have_a_usual_even_on_a_reason_without_one_today(figures: dict[str, Any]) -> None:
    reasons = [(row["ucode"], row["messages"], row["usual"]) for row in figures["dead_letters"]["reasons"]]
    assert reasons == [("DEADLINE_EXCEEDED", 4, 5.0), ("UNAVAILABLE", 2, 0.0)]
    worst = figures["dead_letters"]["worst"][0]
    assert (worst["source"], worst["sink"], worst["first_ts"]) == ("//veh1/10002", "//cloud/3", "2026-11-20T01:02:03.000Z")


def test_the_audit_counts_and_shows_the_earliest_examples(figures: dict[str, Any]) -> None:
    audit = figures["audit"]
    assert (audit["messages"], audit["crowded"], audit["latency_max_us"]) == (100, 3, 99000)
    assert [(row["status"], row["messages"], row["copies"], row["usual"]) for row in audit["statuses"]] == [
        ("delivered", 95, 6, 40.0),
        ("lost", 5, 0, 2.0),
    ]
    (group,) = figures["findings"]["groups"]
    assert (group["messages"], len(group["examples"])) == (5, 3)
    first = group["examples"][0]
    assert (first["msg_id"], first["msg_ts"]) == (str(LOST), "2026-11-20T08:59:58.125Z")
    assert (first["source"], first["sink"], first["missing_at"]) == ("//veh1/10002/0", "//cloud/3/7FFF", "back")


def test_what_needs_attention_comes_first(figures: dict[str, Any]) -> None:
    assert [(row["objective"], row["met"], row["budget_left"]) for row in figures["slo"]["rows"]] == [
        ("availability", False, -6.22),
        ("p99_latency_ms", True, None),
    ]
    assert [row["score"] for row in figures["anomalies"]["rows"]] == [-13.5, 8.99]
    assert [(row["streamer"], row["records_missing"], row["hours"]) for row in figures["health"]["rows"]] == [
        ("gw", 13, 2),
        ("back", 0, 1),
    ]
    totals = {"records": 135, "restarts": 1, "gaps": 2, "records_missing": 13, "records_impossible": 5, "files_left_out": 0}
    at = {"records_missing_at": 1, "records_impossible_at": 1, "files_left_out_at": 0}
    assert figures["health"]["totals"] == totals | at | {"streamers": 2}


def test_the_other_tables_are_shown_as_they_are(figures: dict[str, Any]) -> None:
    assert figures["ttl_margin"]["rows"][0]["least_margin_ms"] == -17
    assert figures["fan_out"]["totals"] == {"publishes": 5, "expected": 40, "missing": 3}
    assert [(row["topic"], row["hour"], row["lacking"]) for row in figures["fan_out"]["rows"]] == [
        ("//veh1/10002/8000", 9, 2)
    ]
    assert [(row["streamer"], row["missing"]) for row in figures["fan_out"]["lacking"]] == [("gw", 2), ("back", 1)]
    assert figures["missing"] == []
    assert figures["streamers"] == ["back", "gw"]


def test_the_page_shows_every_figure(written: tuple[dict[str, Any], Page]) -> None:
    figures, page = written
    page.must_show(figures)
    assert str(LOST) in page.text


def test_missing_tables_and_empty_days_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "tables", tables.SLO, [])
    put(tmp_path / "tables", tables.ROUTE_HOURLY, [hour(3, "gw", "up", delivered=9)], days_back=1)
    html, data = written_to(spark, tmp_path / "tables", f"file://{tmp_path}/out")
    figures = json.loads((tmp_path / "out" / Path(data).name).read_text())
    untold = {"slo", "rollup", "latency"}
    assert set(figures["missing"]) == set(tables.TABLES | tables.VIEWS) - untold
    assert (figures["slo"], figures["volume"]) == ({"met": 0, "objectives": 0, "rows": [], "more": 0}, None)
    page = Page((tmp_path / "out" / Path(html).name).read_text())
    assert "No objectives are set." in page.text
    hidden = {"outcomes", "latency", "fan_out_missing", "cohorts", "link_sessions"}  # named at the top only, or by others
    for table in (tables.TABLES | tables.VIEWS).keys() - untold - hidden:
        assert f"the table {table} was not written for this day" in page.text


def test_text_of_a_foreign_trace_file_that_is_not_utf8_is_shown_as_far_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """Also where it is a key: two routes that only differ in such bytes are one in the report."""
    put(
        tmp_path,
        tables.ROUTE_HOURLY,
        [hour(3, "gw", name, delivered=n) for name, n in (("up?", 2), ("up!", 3), ("fine", 1))],
    )
    store = ParquetTables(spark, str(tmp_path))
    foreign = sf.expr("CAST(if(route LIKE 'up%', X'7570FF', CAST(route AS BINARY)) AS STRING)")
    rows = store.read(spark, tables.ROUTE_HOURLY).withColumn("route", foreign).localCheckpoint()
    store.publish(rows, tables.ROUTE_HOURLY, [DAY])
    _, data = written_to(spark, tmp_path, str(tmp_path / "out"))
    routes = json.loads(Path(data).read_text())["volume"]["routes"]
    assert [(row["route"], row["messages"]) for row in routes] == [("up\N{REPLACEMENT CHARACTER}", 5), ("fine", 1)]


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads tables on this machine needs no Java."""
    monkeypatch.setattr("spark_jobs.report.__main__.session", None)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["--date", "2026-11-20", *arguments])
    return status, *capsys.readouterr()


def test_tables_that_are_not_there_are_no_empty_report(
    no_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "tabels"
    found = said(capsys, "--output", str(missing), "--to", str(tmp_path / "report"))
    assert found == (2, "", f"there is no folder {missing}: expected the tables of the nightly jobs\n")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("there", ["", f"{ROUTE_HOURLY.name}/date=2026-11-21"])
def test_a_date_without_tables_is_no_empty_report(
    no_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    (tmp_path / "tables" / there).mkdir(parents=True)
    found = said(capsys, "--output", f"{tmp_path}/tables", "--to", f"{tmp_path}/report")
    assert found == (2, "", f"{tmp_path}/tables has no tables of 2026-11-20: expected those of the nightly jobs\n")
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("scheme", ["", "file:", "nofs:"])
def test_a_folder_that_cannot_be_written_is_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    (tmp_path / "file").touch()
    empty = small_frame(spark, [], ROUTE_HOURLY.ddl)
    ParquetTables(spark, str(tmp_path)).publish(empty, ROUTE_HOURLY, [dt.date(2026, 11, 20)])
    status, out, err = said(capsys, "--output", str(tmp_path), "--to", f"{scheme}{tmp_path}/file/report")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert str(tmp_path / "file") in err


def test_the_page_of_one_streamer_has_a_name_of_its_own_that_stays_in_the_folder(
    no_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "../" + "v" * 300
    put(tmp_path / "tables", ROUTE_HOURLY, [hour(3, name, "up", delivered=2), hour(3, "elsewhere", "up", delivered=1)])
    given = ("--output", f"{tmp_path}/tables", "--to", f"{tmp_path}/report", "--streamer")
    assert said(capsys, *given, name)[0] == 0
    written = sorted(path.name for path in (tmp_path / "report").iterdir())
    assert [path[:24] for path in written] == ["report-2026-11-20-..%2Fv"] * 2
    assert "elsewhere" not in (tmp_path / "report" / written[0]).read_text()
    for unknown in ("v", name[:-1], "%"):
        status, out, err = said(capsys, *given, unknown)
        assert (status, out) == (2, "")
        assert err == f"{tmp_path}/tables has nothing of {unknown!r} on 2026-11-20 or the 14 days before\n"
