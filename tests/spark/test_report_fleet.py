"""The report of a fleet, and the page of one streamer: planted faults in, their names and reasons out. Without Spark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import tables
from spark_jobs.report import reading
from spark_jobs.report.figures import figures
from spark_jobs.report.page import render, shown
from spark_jobs.report.sentences import sentences, troubles, verdict
from tests.spark.fleet_tables import CLOUD, NONE, make_fleet, vehicle
from tests.spark.local_tables import collected
from tests.spark.report_pages import MADE, Page
from tests.spark.report_rows import DAY
from tests.spark.report_tables import hour, put

VEHICLES = 30
HERE = VEHICLES - 3


def of(root: Path, streamer: str | None = None) -> dict[str, Any]:
    return figures(collected(root, streamer), DAY, MADE, streamer)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fleet")
    make_fleet(made, VEHICLES, days=4)
    return made


@pytest.fixture(scope="module")
def found(root: Path) -> dict[str, Any]:
    return of(root)


def test_the_fleet_is_told_by_route_over_all_its_streamers(found: dict[str, Any]) -> None:
    rows = {row["route"]: row for row in found["fleet"]["routes"]}
    assert {route: row["streamers"] for route, row in rows.items()} == {
        "up": HERE, "down": HERE, "from-vehicles": 1, "to-vehicles": 1
    }  # fmt: skip
    down = rows["down"]
    assert (down["messages"], down["delivered"], down["failed"], down["late"]) == (100 * HERE, 100 * HERE - 80, 80, 80)
    assert {route: row["lost"] for route, row in rows.items()} == {"up": 11, "down": 0, "from-vehicles": 0, "to-vehicles": 4}
    assert down["failed_trend"] == down["late_trend"] == [None] * 10 + [0, 0, 0, 0, 80]
    assert down["messages_trend"] == [None] * 10 + [48 * 30, 2900, 2900, 2800, 100 * HERE]
    assert down["messages_usual"] == (48 * 30 + 2900 + 2900 + 2800) / 4


def test_each_planted_fault_is_named_at_its_streamer_with_its_reason(found: dict[str, Any]) -> None:
    told = {row["streamer"]: troubles(row) for row in found["worst"]["rows"]}
    assert told == {
        vehicle(7): ["60 of 200 messages failed, all expired (DEADLINE_EXCEEDED)", "1 objective not met",
                     "links down for 24.0\u202fh"],
        vehicle(8): ["20 of 200 messages failed, all expired (DEADLINE_EXCEEDED)"],
        CLOUD: ["4 messages lost behind it", "11 messages lost on the way to it"],
        vehicle(3): ["11 messages lost behind it"],
        vehicle(5): ["4 messages lost on the way to it"],
        vehicle(9): ["2 broadcasts missing"],
        vehicle(10): ["1 broadcast missing"],
        vehicle(14): ["1 objective not met"],
        vehicle(11): ["404 trace records missing"],
        vehicle(12): ["3 trace files left out"],
        vehicle(13): ["clock 60.0\u202fmin ahead"],
    }  # fmt: skip
    assert [*told] == [vehicle(7), vehicle(8), CLOUD, *map(vehicle, (3, 5, 9, 10, 14, 12, 11, 13))]
    states = {"undelivered": 7, "objectives": 1, "traces": 3, "well": HERE + 1 - 11, "silent": 2}
    assert (found["worst"]["states"], found["worst"]["more"]) == (states, 0)


def test_known_streamers_without_a_record_are_silent_and_those_that_usually_write_come_first(found: dict[str, Any]) -> None:
    silent = found["silent"]
    assert silent["totals"] == {"silent": 3, "usual": 2, "recorded": 4}
    assert [(row["streamer"], row["days"], row["last_ts"][:10], row["usually"]) for row in silent["rows"]] == [
        (vehicle(2), 4, "2026-11-19", True),
        (vehicle(6), 3, "2026-11-18", True),
        (vehicle(15), 1, "2026-11-16", False),
    ]


def test_cohorts_stand_beside_each_other(found: dict[str, Any]) -> None:
    older, newer = found["cohorts"]["rows"]
    assert (older["version"], older["streamers"], older["lost"]) == ("1.3.2", HERE - 2, 11)
    assert (newer["version"], newer["streamers"], newer["expired"]) == ("1.4.0", 2, 80)
    assert (newer["bad_share"], older["others_share"]) == (0.2, 0.2)
    assert older["bad_share"] == newer["others_share"] == 11 / (200 * (HERE - 2))
    ranks = {(row["route"], row["version"]): row["latency_p99_us"] for row in found["cohorts"]["routes"]}
    assert ranks[("up", "1.4.0")] == 900_000
    assert ranks[("up", "1.3.2")] == 180_000


def test_links_and_completeness_name_the_longest_and_the_worst(found: dict[str, Any]) -> None:
    links = found["links"]
    assert [(row["streamer"], row["offline_s"], row["up_ts"] is None) for row in links["rows"]] == [
        (vehicle(7), 86_400.0, True),
        (vehicle(16), 5400.0, False),
        (vehicle(17), 12.5, False),
    ]
    assert (links["totals"]["sessions"], links["totals"]["still"], links["totals"]["piled_up"]) == (3, 1, 93)
    assert [row["streamer"] for row in links["slow_drain"]] == [vehicle(16)]
    whole = found["completeness"]
    totals = {"streamers": HERE, "complete": HERE - 4, "lacking": 2, "open": 2, "files_left_out": 3}
    assert totals.items() <= whole["totals"].items()
    assert [
        (row["streamer"], row["hours"], row["missing"], row["until"] and row["until"][11:19]) for row in whole["rows"]
    ] == [
        (vehicle(12), 24, 0, None),
        (vehicle(11), 23, 404, "08:12:00"),
        (vehicle(18), 17, 0, "17:59:58"),
        (vehicle(19), 17, 0, "17:59:58"),
    ]


def test_what_is_first_on_the_page_says_whether_the_fleet_is_well_and_who_is_not(found: dict[str, Any]) -> None:
    assert verdict(found)[0] == "attention"
    assert "silent, though usually not: gateway.v0002" in sentences(found)[0]
    page = Page(render(found))
    page.must_show(found)
    top = page.text[: page.text.index("Messages handled")]
    for words in ("Needs attention", "did not get all through", vehicle(7), "60 of 200 messages failed", vehicle(2)):
        assert words in top
    assert [*shown(found)][:6] == ["fleet", "worst", "silent", "cohorts", "links", "completeness"]


def test_a_fleet_without_a_fault_says_so_and_has_no_section_about_nothing(tmp_path: Path) -> None:
    make_fleet(tmp_path, 12, NONE, days=5)
    found = of(tmp_path)
    assert verdict(found) == ("good", "nothing lost, nothing unusual found")
    assert found["worst"]["states"] == {"undelivered": 0, "objectives": 0, "traces": 0, "well": 13, "silent": 0}
    assert not shown(found).keys() & {"silent", "cohorts", "links"}
    page = Page(render(found))
    assert "Every streamer with records is well." in page.text
    assert "No record of any streamer is missing, none has started again, and no clock is off." in page.text


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("large")
    make_fleet(made, 120, replace(NONE, silent={5: 0}, missing={6: 3}, left_out={7: 1}, skew_ms={8: 2000.0}), days=5)
    return made


@pytest.mark.parametrize(
    ("limits", "retired", "level", "says"),
    [
        ({}, (), "good", "nothing lost; within the limits: 1 streamer silent, 1 trace file left out, 3 trace records "
         "missing and 1 clock wrong by a second or more"),
        ({"silent": 0}, (), "attention", "1 streamer silent"),
        ({"silent": 0}, ("gateway.v0005",), "good", "nothing lost; within the limits: 1 trace file left out, 3"),
        ({"silent": 0}, ("x", "gateway.v*5"), "good", "nothing lost; within the limits: 1 trace file left out, 3"),
        ({"silent": 0}, ("gateway.v000", "gateway?v0005"), "attention", "1 streamer silent"),
        ({"records_missing": 0.008}, (), "attention", "3 trace records missing"),
        ({"records_missing": 0.009}, (), "good", "nothing lost"),
    ],
)  # fmt: skip
def test_a_fleet_with_one_late_vehicle_is_well_up_to_the_limits(
    large: Path, limits: dict[str, float], retired: tuple[str, ...], level: str, says: str
) -> None:
    found = figures(collected(large, retired=retired), DAY, MADE) | {"limits": limits}
    assert verdict(found)[0] == level
    assert verdict(found)[1].startswith(says)
    assert found["worst"]["states"]["silent"] == (0 if any("5" in each and "?" not in each for each in retired) else 1)


def test_a_clock_that_is_off_is_in_the_health_of_the_traces_also_without_another_fault(tmp_path: Path) -> None:
    make_fleet(tmp_path, 12, replace(NONE, skew_ms={4: 3_600_000.0}), days=1)
    found = of(tmp_path)
    assert [row["streamer"] for row in found["health"]["rows"]] == [vehicle(4)]
    assert "Clocks that are a second or more from the one they were compared with: gateway.v0004" in Page(render(found)).text


def test_a_few_streamers_are_told_one_by_one_and_a_silent_one_is_named(tmp_path: Path) -> None:
    make_fleet(tmp_path, 3, NONE, days=5)
    assert not shown(of(tmp_path)).keys() & {"fleet", "worst", "silent", "cohorts", "links"}
    silent = tmp_path / "silent"
    make_fleet(silent, 3, replace(NONE, silent={2: 0}), days=5)
    found = of(silent)
    assert verdict(found) == ("attention", "1 streamer silent")
    assert next(iter(shown(found))) == "silent"
    assert [row["streamer"] for row in found["volume"]["routes"][:2]] == [CLOUD, CLOUD]


def test_the_page_of_one_streamer_is_about_no_other(root: Path) -> None:
    found = of(root, vehicle(5))
    assert verdict(found) == ("attention", "4 messages lost (4 from gateway.cloud to gateway.v0005)")
    assert sentences(found)[0] == "4 messages lost on the way to it."
    assert [row["streamer"] for row in found["volume"]["routes"]] == [vehicle(5)] * 2
    assert found["findings"]["groups"][0]["messages"] == 4
    assert not shown(found).keys() & {"fleet", "worst", "silent", "audit", "fan-out"}
    page = Page(render(found))
    page.must_show(found)
    assert not {name for name in map(vehicle, range(1, VEHICLES + 1)) if name in page.text} - {vehicle(5)}


def test_the_page_of_a_streamer_shows_its_links_and_its_silence(root: Path) -> None:
    down = of(root, vehicle(16))
    assert [row["offline_s"] for row in down["links"]["rows"]] == [5400.0]
    assert verdict(down)[0] == "good"
    silent = of(root, vehicle(2))
    assert verdict(silent) == ("attention", "silent that day")
    assert silent["silent"]["totals"]["recorded"] == 4


def test_a_name_that_is_part_of_another_is_not_that_one(tmp_path: Path) -> None:
    """Findings list streamers in one text."""
    line = {"finding": "lost", "msg_id": bytes(16), "msg_type": "request", "copies": 0, "last_route": "up"}
    put(tmp_path, tables.ROUTE_HOURLY, [hour(3, name, "up", delivered=1) for name in ("v1", "v11", "a,v1")])
    put(
        tmp_path,
        tables.DELIVERY_AUDIT_DETAIL,
        [line | {"streamers": "v11", "last_streamer": "v11", "missing_at": "cloud"},
         line | {"streamers": "cloud", "last_streamer": "cloud", "missing_at": "v2,v1"}],
    )  # fmt: skip
    assert {name: of(tmp_path, name)["findings"]["groups"][0]["messages"] for name in ("v1", "v11")} == {"v1": 1, "v11": 1}


def test_no_query_returns_more_for_more_streamers(tmp_path: Path, root: Path) -> None:
    """The report's memory and length are bounded, however many streamers and troubles there are."""
    many = 120
    every = dict.fromkeys(range(1, many + 1), 3)
    troubled = replace(
        NONE, lost_up=every, failed=every, lacking=every, missing=every, left_out=every, unmet=tuple(every)
    )  # fmt: skip
    silent, down = dict.fromkeys(range(61, 101), 0), dict.fromkeys(every, 9.5)
    troubled = replace(troubled, silent=silent, offline_s=down)
    make_fleet(tmp_path, many, troubled, days=2)
    rows = collected(tmp_path)
    assert max(len(found) for found in rows.values()) <= max(reading.OBJECTIVES, reading.ROUTES * 3)
    found = figures(rows, DAY, MADE)
    assert (len(found["worst"]["rows"]), found["worst"]["more"]) == (20, many + 1 - 20)
    states = {"undelivered": many + 1, "objectives": 0, "traces": 0, "well": 0, "silent": 0}
    assert found["worst"]["states"] == states, "each counts once, also those that are silent and were sent something"
    assert (len(found["silent"]["rows"]), found["silent"]["more"]) == (20, 20)
    assert (len(found["links"]["rows"]), found["links"]["more"]) == (20, 100)
    assert len(render(found).encode()) < 400_000
    assert found["fan_out"]["lacking"] == [], "what a hundred lack is one fault, of none of them"
    assert "(120 of 120 gateways lack //cloud/8001/8000 at 08:00 UTC)" in verdict(found)[1]
    assert verdict(found)[1].startswith("360 messages lost (3 from gateway.v0001 to gateway.cloud, 3 from")


def test_the_share_of_a_route_counts_what_is_missing_of_broadcasts_and_what_was_lost(tmp_path: Path) -> None:
    """Beside 1 333 missing deliveries, nobody reads of 100 % delivered."""
    sent: dict[str, Any] = {"hour": 8, "src_authority": "cloud", "outcome": "delivered", "first_ts": None}
    rows = [sent | {"src_ue_id": 1, "streamer": vehicle(n), "route": "campaign", "messages": 10} for n in range(1, 10)]
    rows += [sent | {"src_ue_id": 1, "streamer": CLOUD, "route": "out", "messages": 10}]
    rows += [sent | {"src_ue_id": 2, "streamer": vehicle(n), "route": "down", "messages": 10} for n in range(1, 10)]
    put(tmp_path, tables.ROLLUP, rows)
    lost = {"finding": "lost", "msg_id": bytes(16), "streamers": "x", "last_streamer": "x", "missing_at": "y"}
    lost |= {"last_route": "down", "src_authority": "cloud", "ucode": "OK"}
    put(tmp_path, tables.DELIVERY_AUDIT_DETAIL, [lost] * 9)
    topic = {"src_authority": "cloud", "src_ue_id": 1, "src_resource_id": 1, "hour": 8}
    put(tmp_path, tables.FAN_OUT, [topic | {"expected": 120, "missing": 30, "publishes": 10, "gateways": 12, "lacking": 3}])
    found = of(tmp_path)
    shares = {row["route"]: (row["delivered"], row["missing"], row["delivered_share"]) for row in found["fleet"]["routes"]}
    assert shares == {"campaign": (90, 30, 0.75), "down": (90, 0, 0.9), "out": (10, 0, 1.0)}
    Page(render(found)).must_show(found)


def test_without_the_newer_tables_the_report_of_a_fleet_is_as_good_as_it_can_be(tmp_path: Path) -> None:
    put(tmp_path, tables.ROUTE_HOURLY, [hour(3, vehicle(n), "up", delivered=9, expired=n) for n in range(12)])
    found = of(tmp_path)
    assert {"cohorts", "link_sessions", "completeness"} <= set(found["missing"])
    assert [row["lost"] for row in found["fleet"]["routes"]] == [None]
    assert found["worst"]["states"]["undelivered"] == 11
    assert found["worst"]["states"]["silent"] is None
    page = Page(render(found))
    page.must_show(found)
    assert "the table completeness was not written" in page.text
