from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from spark_jobs import slo
from spark_jobs.schema import OUTCOMES
from spark_jobs.session import small_frame
from spark_jobs.slo_file import LIMITS, SloFileError, Target, load
from spark_jobs.tables import SLO
from tests.spark.traces import DATE

COLUMNS = [name for name in SLO.columns if name != "date"]


def hourly(spark: SparkSession, *rows: tuple[str, str, dict[str, int]]) -> DataFrame:
    """Streamer, route, outcomes."""
    ddl = "date DATE, streamer STRING, route STRING, " + ", ".join(f"{outcome} BIGINT" for outcome in OUTCOMES)
    return small_frame(spark, [(DATE, s, r, *(given.get(each, 0) for each in OUTCOMES)) for s, r, given in rows], ddl)


def daily(spark: SparkSession, *rows: tuple[str, str, str, int]) -> DataFrame:
    return small_frame(
        spark, [(DATE, *row) for row in rows], "date DATE, streamer STRING, route STRING, measure STRING, p99_us BIGINT"
    )


def judged(made: DataFrame) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in made.select(COLUMNS).collect()}


def test_each_objective_is_judged_over_the_whole_day(spark: SparkSession) -> None:
    hours = hourly(
        spark,
        ("gw", "up", {"delivered": 600, "expired": 1, "duplicate": 50}),
        ("gw", "up", {"delivered": 398, "rejected": 1, "unheard": 50}),
    )
    latencies = daily(spark, ("gw", "up", "latency", 250_000), ("gw", "up", "queue_wait", 1))
    targets = [
        Target("a", "gw", "up", "availability", 0.998),
        Target("a", "gw", "up", "p99_latency_ms", 250.0),
        Target("a", "gw", "up", "expiry_rate", 0.0005),
        Target("exact", "gw", "up", "expiry_rate", 0.001),
        Target("strict", "gw", "up", "availability", 0.999),
        Target("strict", "gw", "up", "p99_latency_ms", 249.9),
        Target("strict", "gw", "up", "expiry_rate", 0.004),
    ]
    assert judged(slo.transform(hours, latencies, targets)) == {
        ("a", "gw", "up", "availability", 0.998, 0.998, True, 0.0, 1000),  # just reached
        ("a", "gw", "up", "p99_latency_ms", 250.0, 250.0, True, None, 998),
        ("a", "gw", "up", "expiry_rate", 0.0005, 0.001, False, -1.0, 1000),
        ("exact", "gw", "up", "expiry_rate", 0.001, 0.001, True, 0.0, 1000),
        ("strict", "gw", "up", "availability", 0.999, 0.998, False, -1.0, 1000),
        ("strict", "gw", "up", "p99_latency_ms", 249.9, 250.0, False, None, 998),
        ("strict", "gw", "up", "expiry_rate", 0.004, 0.001, True, 0.75, 1000),
    }


def test_patterns_choose_streamers_and_routes(spark: SparkSession) -> None:
    patterns = {
        "all but its own": ("*", "*", {("gw.a", "up"), ("gw.b", "up"), ("hub", "up.x")}),
        "prefix": ("gw.*", "*", {("gw.a", "up"), ("gw.b", "up")}),
        "exact": ("gw.a", "up", {("gw.a", "up")}),
        "suffix": ("*.b", "u*", {("gw.b", "up")}),
        "only the star is special": ("*", "up?*", set()),
        "a dot is a dot": ("gw?a*", "*", set()),
        "own route in full": ("*", "dead-letter/cloud", {("hub", "dead-letter/cloud")}),
        "own routes of a kind": ("*", "rpc-error/*", {("hub", "rpc-error/cloud")}),
        "what its services send": ("*", "core/*", {("hub", "core/cloud")}),
        "own route without an endpoint": ("*", "none", {("hub", "none")}),
        "no kind in full": ("*", "*/cloud", set()),
    }
    targets = [Target(name, streamer, route, "availability", 0.5) for name, (streamer, route, _) in patterns.items()]
    one = {"delivered": 1}
    routes = [
        ("gw.a", "up"),
        ("gw.b", "up"),
        *(("hub", name) for name in ("up.x", "none", "core/cloud", "dead-letter/cloud", "rpc-error/cloud")),
    ]
    hours = hourly(spark, *((streamer, route, one) for streamer, route in routes))
    made = slo.transform(hours, daily(spark), targets).collect()
    assert {name: {(row.streamer, row.route) for row in made if row.name == name} for name in patterns} == {
        name: matches for name, (_, _, matches) in patterns.items()
    }


def test_what_cannot_be_judged_has_no_row(spark: SparkSession) -> None:
    hours = hourly(spark, ("gw", "quiet", {"unheard": 5}), ("gw", "broken", {"expired": 5}))
    targets = [Target("t", "*", "*", "availability", 0.5), Target("t", "*", "*", "p99_latency_ms", 5.0)]
    assert judged(slo.transform(hours, daily(spark), targets)) == {
        ("t", "gw", "broken", "availability", 0.5, 0.0, False, -1.0, 5)
    }
    assert judged(slo.transform(hours, daily(spark), [])) == set()


def test_one_delivered_message_is_enough_for_a_latency(spark: SparkSession) -> None:
    made = slo.transform(
        hourly(spark, ("gw", "up", {"delivered": 1, "expired": 3})),
        daily(spark, ("gw", "up", "latency", 4_000)),
        [Target("t", "*", "*", "p99_latency_ms", 5.0)],
    )
    assert judged(made) == {("t", "gw", "up", "p99_latency_ms", 5.0, 4.0, True, None, 1)}


def test_the_example_file_is_valid() -> None:
    file = Path(__file__).parents[2] / "config" / "slo.yaml"
    found = load(str(file))
    assert {target.name for target in found.targets} == {"everything"}
    assert (found.limits, found.retired) == (LIMITS, [])
    assert list(yaml.safe_load(file.read_text())["limits"]) == list(LIMITS)


def test_a_file_gives_a_target_per_objective(tmp_path: Path) -> None:
    file = tmp_path / "slo.yaml"
    file.write_text(
        "slos:\n- {name: a, route: up, availability: 0.99, p99_latency_ms: 20}\n"
        "- {name: b, streamer: g*, expiry_rate: 0.1}\n"
    )
    assert load(str(file)).targets == [
        Target("a", "*", "up", "availability", 0.99),
        Target("a", "*", "up", "p99_latency_ms", 20.0),
        Target("b", "g*", "*", "expiry_rate", 0.1),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("slos: [", "slo.yaml: is not YAML", id="yaml"),
        pytest.param("- 1", "slo.yaml: expected a mapping with the keys slos, limits and retired", id="top"),
        pytest.param("slo: []", "slo: expected one of slos, limits, retired (did you mean slos?)", id="top-key"),
        pytest.param("slos: {}", "slos: expected a list", id="list"),
        pytest.param("limits: 3", "limits: expected a mapping", id="limits"),
        pytest.param("limits: {silnt: 0}", "limits.silnt: expected one of lost_per_million, unknown, ", id="limit-key"),
        pytest.param("limits: {silent: 5}", "limits.silent: expected a number from 0 to 1, got 5", id="limit"),
        pytest.param("retired: gw", "retired: expected a list of streamers", id="retired"),
        pytest.param("slos: [up]", "slos[0]: expected a mapping", id="entry"),
        pytest.param(
            "slos: [{name: a, availabilty: 0.9}]",
            "slos[0].availabilty: expected one of name, streamer, route, availability, p99_latency_ms, expiry_rate "
            "(did you mean availability?)",
            id="nearest-name",
        ),
        pytest.param("slos: [{availability: 0.9}]", "slos[0].name: expected a string", id="no-name"),
        pytest.param("slos: [{name: a, route: 7, availability: 0.9}]", "slos[0].route: expected a string", id="route"),
        pytest.param("slos: [{name: a}]", "slos[0]: expected at least one of availability", id="no-objective"),
        pytest.param("slos: [{name: a, availability: 1}]", "slos[0].availability: expected a share", id="no-budget"),
        pytest.param("slos: [{name: a, availability: 99.9}]", "excluded, got 99.9", id="percent"),
        pytest.param("slos: [{name: a, expiry_rate: yes}]", "excluded, got True", id="boolean"),
        pytest.param("slos: [{name: a, p99_latency_ms: .nan}]", "expected a number of ms above 0, got nan", id="nan"),
        pytest.param("slos: [{name: a, p99_latency_ms: 1s}]", "expected a number of ms above 0, got '1s'", id="unit"),
        pytest.param(
            "slos: [{name: a, expiry_rate: 0.1}, {name: a, expiry_rate: 0.2}]",
            "slos[1].name: 'a' is already taken",
            id="twice",
        ),
    ],
)  # fmt: skip
def test_mistakes_say_file_key_and_what_was_expected(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "slo.yaml"
    file.write_text(text)
    with pytest.raises(SloFileError) as raised:
        load(str(file))
    assert str(raised.value).startswith(str(file))
    assert says in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SloFileError, match=r"none\.yaml: cannot be read"):
        load(str(tmp_path / "none.yaml"))
