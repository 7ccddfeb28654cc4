"""What a night says about itself when it is over: the verdict, the exit code, what is posted, the metrics."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # has neither stubs nor py.typed
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from spark_jobs import nightly, report, webhook
from spark_jobs.nightly import NightlyRun
from spark_jobs.report import verdict as verdicts
from spark_jobs.report.figures import figures
from spark_jobs.report.page import render
from spark_jobs.report.sentences import KINDS, judged, verdict
from spark_jobs.storage import Storage
from tests.pages import DOCS
from tests.spark.report_pages import MADE
from tests.spark.report_rows import DAY, collected
from tests.spark.report_tables import make
from tests.spark.traces import DATE, record, write

pytestmark = pytest.mark.long

SCHEMA = json.loads((DOCS / "verdict.schema.json").read_text())
Json = dict[str, Any]


def checked(found: Json) -> Json:
    jsonschema.validate(found, SCHEMA)
    assert found.keys() == SCHEMA["properties"].keys()
    return found


def test_the_verdict_is_the_decision_of_the_headline_with_its_figures() -> None:
    day = figures(collected(), DAY, MADE) | {"jobs_failed": ["latency", "slo"]}
    found = checked(verdicts.verdict(day))
    level, text = verdict(day)
    assert (found["level"], found["text"]) == (level, text)
    assert [each["text"] for each in found["reasons"]] == [each.text for each in judged(day)[1]]
    page = render(day)
    assert all(f'id="{each["help"].partition("#")[2]}"' in page for each in found["reasons"])
    kinds = {each["kind"]: each["figures"] for each in found["reasons"]}
    assert kinds["jobs_failed"] == {"jobs": 2}
    assert kinds["lost"] == {"messages": found["figures"]["lost"]}
    assert kinds["records_missing"] == {"records": found["figures"]["records_missing"]}
    assert found["jobs_failed"] == ["latency", "slo"]


def test_every_kind_of_reason_is_in_the_schema() -> None:
    reasons = SCHEMA["properties"]["reasons"]["items"]["properties"]["kind"]["examples"]
    everything = figures(collected(), DAY, MADE) | {"jobs_failed": ["latency"]}
    everything["health"]["totals"] |= dict.fromkeys(("files_left_out", "records_impossible", "records_impossible_at"), 1)
    everything["fan_out"]["totals"]["missing"] = everything["slo"]["objectives"] = 100
    everything["cohorts"]["rows"][0]["is_worse"] = everything["usual"]["measures"][0]["is_worse"] = True
    everything["usual"]["measures"][0]["usual_share"] = 0.0
    told = {each.kind for each in judged(everything)[1]}
    told |= {each.kind for each in judged(figures({}, DAY, MADE))[1]}
    silent = collected() | {"routes": [], "audit_days": [], "anomalies": [], "slo": [], "clocks": [], "fan_out_totals": [{}]}
    silent |= {"silent": [], "silent_totals": [{"silent": 0, "usual": 0, "recorded": 0}]}
    silent |= {"slo_met": [{"objectives": 0}], "health_totals": [dict.fromkeys(everything["health"]["totals"], 0)]}
    quiet = figures(silent, DAY, MADE)
    quiet["fan_out"]["totals"] = {"expected": 0, "missing": 0}
    told |= {each.kind for each in judged(quiet)[1]}
    assert told == set(reasons) == set(KINDS)


def test_a_good_day_has_no_reasons_and_an_unknown_one_has_no_figures() -> None:
    found = checked(verdicts.verdict(figures({}, DAY, MADE)))
    assert (found["level"], [each["kind"] for each in found["reasons"]]) == ("unknown", ["tables_missing"])
    assert set(found["figures"].values()) == {None}
    assert (found["jobs_failed"], found["pairs"], found["streamers"]) == (None, [], [])


def test_streamers_and_files_are_bounded() -> None:
    day = figures(collected(), DAY, MADE)
    row = day["health"]["rows"][0] | {"files_left_out": 0, "records_impossible": 0}
    day["health"] |= {"clocks": [], "more_clocks": 0, "more": 0}
    day["fan_out"] |= {"lacking": [], "more_lacking": 0}
    day["findings"] |= {"between": [], "more_between": 0}

    def named(count: int, records_missing: int) -> Json:
        day["health"]["rows"] = [row | {"streamer": f"gw{n:03}", "records_missing": records_missing} for n in range(count)]
        return checked(verdicts.verdict(day, {f"hour=1/streamer=a/{n:03}.parquet": "torn" for n in range(count)}))

    few, many, good = named(20, 3), named(21, 3), named(21, 0)
    assert (few["streamers"][0], len(few["streamers"]), few["more_streamers"]) == (
        {"streamer": "gw000", "records_missing": 3},
        20,
        False,
    )
    assert (len(many["streamers"]), len(many["files_left_out"]), many["more_streamers"]) == (20, 20, True)
    assert (good["streamers"], good["more_streamers"]) == ([], False)
    day["health"]["more"] = 7
    assert (named(2, 3)["more_streamers"], named(2, 0)["more_streamers"]) == (True, False)


def test_the_newest_verdict_is_that_of_the_newest_date(spark: SparkSession, tmp_path: Path) -> None:
    def put(days: int, **changed: Any) -> bool:
        made = verdicts.verdict(figures(collected(), DAY + dt.timedelta(days=days), MADE)) | changed
        return verdicts.put(Storage(spark), made, str(tmp_path / "report"))[1]

    assert put(0)
    assert put(-1)
    assert (json.loads((tmp_path / "report/verdict.json").read_text()))["date"] == str(DAY)
    assert put(1)
    assert (json.loads((tmp_path / "report/verdict.json").read_text()))["date"] == str(DAY + dt.timedelta(days=1))
    assert not put(0)
    assert not put(0, created="later")
    assert put(0, level="good")
    assert put(0, level="good", jobs_failed=["slo"])
    (tmp_path / f"report/verdict-{DAY}.json").write_text("{")
    assert put(0)


# the night


Night = Callable[..., tuple[int, str]]


@pytest.fixture
def night(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Night:
    """Runs the night with hand-made tables; gives its exit code and all that it said."""
    monkeypatch.delenv(webhook.VARIABLE, raising=False)

    def run(*arguments: str, failed: frozenset[str] = frozenset(), changed: bool = True) -> tuple[int, str]:
        def made(self: NightlyRun, *_: Any, **__: Any) -> bool:
            if not (tmp_path / "tables" / "slo").exists():
                make(tmp_path / "tables")
            self.changed.update({DATE} if changed else ())
            self.failed.update({DATE: set(failed)} if failed else {})
            return not failed

        monkeypatch.setattr(NightlyRun, "run", made)
        if not (tmp_path / "traces").exists():
            write(tmp_path / "traces", [record()])
        words = ["--input", f"{tmp_path}/traces", "--output", f"{tmp_path}/tables", *arguments]
        code = nightly.main(words if "--lookback-days" in words else [*words, "--date", str(DATE)])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def written(tmp_path: Path, name: str = "verdict.json") -> Json:
    return checked(json.loads((tmp_path / "tables/report" / name).read_text()))


def test_a_night_leaves_its_verdict_beside_the_report(night: Night, tmp_path: Path) -> None:
    code, said = night()
    assert code == 0
    assert f"{DATE} verdict: attention: 5 messages lost (5 from gw to back), " in said
    found = written(tmp_path, f"verdict-{DATE}.json")
    assert found == written(tmp_path)
    assert (found["level"], found["jobs_failed"]) == ("attention", [])
    assert found["figures"]["lost"] == 5
    assert found["pairs"] == [{"src_authority": "veh1", "sink_authority": "cloud", "lost": 5}]
    faults = {"messages_lost": 5, "records_missing": 13, "records_impossible": 5, "broadcasts_missing": 2}
    assert {"streamer": "gw"} | faults in found["streamers"]
    page = (tmp_path / f"tables/report/report-{DATE}.html").read_text()
    assert found["text"] in page


def test_attention_has_an_exit_code_of_its_own_if_asked_for_and_a_failure_comes_first(night: Night, tmp_path: Path) -> None:
    code, said = night("--fail-on-attention")
    assert code == 3
    assert f"{DATE} needs attention: 5 messages lost (5 from gw to back), " in said
    assert night("--fail-on-attention", "--lookback-days", "36500", changed=False)[0] == 3  # the newest verdict
    assert night("--fail-on-attention", failed=frozenset({"slo"}))[0] == 1
    assert night("--fail-on-attention", "--slo", f"{tmp_path}/none.yaml")[0] == 2


def test_a_good_night_ends_with_0_whatever_is_asked_for(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_jobs.report.sentences.judged", lambda _: ("good", []))
    assert night("--fail-on-attention")[0] == 0


def test_jobs_that_failed_are_in_the_verdict_even_if_no_table_is_new(night: Night, tmp_path: Path) -> None:
    code, _ = night(failed=frozenset({"slo", "latency"}), changed=False)
    found = written(tmp_path)
    assert (code, found["jobs_failed"], found["level"]) == (1, ["latency", "slo"], "attention")
    assert "2 jobs failed" in found["text"]


def test_a_report_that_cannot_be_drawn_does_not_take_the_verdict_along(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ImportError("no jinja2")

    monkeypatch.setattr(report, "put", broken)
    code, said = night("--metrics-file", f"{tmp_path}/night.prom")
    assert (code, written(tmp_path)["level"]) == (1, "attention")
    assert f"{DATE} report: FAILED: no jinja2" in said
    assert metrics(tmp_path)["ustreamer_nightly_last_run_jobs_failed"] == 1


def test_new_verdicts_are_posted_and_known_ones_are_not(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[tuple[str, Any]] = []
    monkeypatch.setattr(webhook, "post", lambda to, content: got.append((to, content)))
    (tmp_path / "url").write_text("https://hook.example/s3cr3t")
    asked = ("--webhook-url-file", f"{tmp_path}/url")
    code, said = night(*asked)
    assert (code, got) == (0, [("https://hook.example/s3cr3t", written(tmp_path))])
    assert "s3cr3t" not in said
    assert night(*asked)[0] == 0
    assert len(got) == 1
    assert night(*asked, failed=frozenset({"slo"}))[0] == 1
    assert got[1][1]["jobs_failed"] == ["slo"]


def test_nobody_takes_the_verdict_which_is_told_and_changes_no_table(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise webhook.WebhookError("it answers with status 404")

    monkeypatch.setattr(webhook, "post", refused)
    monkeypatch.setenv(webhook.VARIABLE, "https://hook.example/s3cr3t")
    code, said = night("--metrics-file", f"{tmp_path}/night.prom")
    assert (code, written(tmp_path)["level"]) == (5, "attention")
    assert f"{DATE} verdict: not posted: it answers with status 404" in said
    assert "s3cr3t" not in said
    assert metrics(tmp_path)["ustreamer_nightly_last_run_webhook_failed"] == 1
    monkeypatch.setenv(webhook.VARIABLE, "hook.example/s3cr3t")
    code, said = night()
    assert (code, said) == (2, f"${webhook.VARIABLE}: expected one URL that begins with https:// or http://\n")


def metrics(tmp_path: Path) -> dict[str, float]:
    families = text_string_to_metric_families((tmp_path / "night.prom").read_text())
    return {sample.name + "".join(sample.labels.values()): sample.value for each in families for sample in each.samples}


def test_metrics_tell_how_the_last_run_went(night: Night, tmp_path: Path) -> None:
    asked = ("--metrics-file", f"{tmp_path}/night.prom")
    assert night(*asked, "--slo", f"{tmp_path}/none.yaml")[0] == 2
    assert metrics(tmp_path)["ustreamer_nightly_last_run_exit_code"] == 2
    assert "ustreamer_nightly_verdict_levelgood" not in metrics(tmp_path)
    assert night(*asked, "--fail-on-attention")[0] == 3
    found = metrics(tmp_path)
    assert found.pop("ustreamer_nightly_last_run_timestamp_seconds") > 0
    assert found.pop("ustreamer_nightly_last_run_duration_seconds") > 0
    reasons = {name for name, value in found.items() if "_reason" in name and value}
    assert reasons == {f"ustreamer_nightly_verdict_reason{each['kind']}" for each in written(tmp_path)["reasons"]}
    found = {name: value for name, value in found.items() if "_reason" not in name}
    assert {name.removeprefix("ustreamer_nightly_"): value for name, value in found.items()} == {
        "last_run_exit_code": 3,
        "last_run_dates": 1,
        "last_run_jobs_failed": 0,
        "last_run_files_left_out": 0,
        "last_run_webhook_failed": 0,
        "verdict_date_timestamp_seconds": dt.datetime(2026, 11, 20, tzinfo=dt.UTC).timestamp(),
        "verdict_levelgood": 0,
        "verdict_levelattention": 1,
        "verdict_levelunknown": 0,
        "verdict_messages_lost": 5,
        "verdict_records_missing": 13,
        "verdict_files_left_out": 0,
    }
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert oct((tmp_path / "night.prom").stat().st_mode)[-3:] == "644"


def test_a_crash_shows_in_the_metrics_and_a_metrics_file_that_cannot_be_written_is_told(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = night("--metrics-file", f"{tmp_path}/none/night.prom")
    assert (code, f"{tmp_path}/none/night.prom: cannot be written: No such file or directory" in said) == (5, True)
    assert night("--metrics-file", f"{tmp_path}/none/night.prom", failed=frozenset({"slo"}))[0] == 1

    def crashed(*_: Any) -> int:
        raise MemoryError

    monkeypatch.setattr(nightly, "_night", crashed)
    with pytest.raises(MemoryError):
        nightly.main(["--input", "a", "--output", "b", "--metrics-file", f"{tmp_path}/night.prom"])
    assert metrics(tmp_path)["ustreamer_nightly_last_run_exit_code"] == 1
