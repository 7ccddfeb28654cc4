"""The report's sentences, each for the figures that decide what it says."""

import datetime as dt
from typing import Any

import pytest

from spark_jobs.report.figures import figures
from spark_jobs.report.numbers import share
from spark_jobs.report.reading import FAULTS
from spark_jobs.report.sentences import REASONS, USUAL, against_usual, judged, sentences, verdict
from spark_jobs.schema import FAILURES
from tests.spark.report_pages import MADE
from tests.spark.report_rows import DAY, collected


def line(value: float | None, usual: float | None, days: int = 14) -> dict[str, Any]:
    change = value / usual - 1 if value is not None and usual else None
    return {"value": value, "usual": usual, "days": days, "change": change}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (line(None, 5), ""),
        (line(5, None, 0), ", with no earlier day to compare with"),
        (line(0, 0), ", as usual"),
        (line(3, 0), ", where none is usual"),
        (line(3, 0, 1), ", where none is usual (1 recorded day)"),
        (line(119, 100), ", about as usual (14-day mean: 100)"),
        (line(81, 100, 3), ", about as usual (14-day mean: 100, from 3 recorded days)"),
        (line(121, 100), ", 21\u202f% more than the 14-day mean of 100"),
        (line(75, 100, 2), ", 25\u202f% less than the 14-day mean of 100 (2 recorded days)"),
        (line(199, 100), ", 99\u202f% more than the 14-day mean of 100"),
        (line(200, 100), ", 2.0 times the 14-day mean of 100"),
    ],
)
def test_a_figure_is_compared_with_what_is_usual(given: dict[str, Any], says: str) -> None:
    assert against_usual(given) == says


NONE_LACKED = [{"publishes": 3, "expected": 3000, "missing": 0}]


def said(**rows: Any) -> list[str]:
    return sentences(figures(collected() | rows, DAY, MADE))


@pytest.mark.parametrize("outcome", REASONS)
def test_the_first_reason_of_failures_is_named_by_what_happened(outcome: str) -> None:
    words = {"expired": "expired", "rejected": "were rejected", "dead_lettered": "were dead-lettered"}
    letter = {"date": DAY, "outcome": outcome, "ucode": "UNAVAILABLE", "messages": 30}
    assert said(dead_letter_days=[letter])[2].endswith(f"; all {words[outcome]} (UNAVAILABLE).")
    other = letter | {"ucode": "INTERNAL", "messages": 10}
    assert said(dead_letter_days=[other, letter])[2].endswith(f"; 75.0\u202f% of them {words[outcome]} (UNAVAILABLE).")


@pytest.mark.parametrize("status", ["unheard", "sampled_out", "unwanted", "local"])
def test_messages_for_nobody_are_told_from_those_that_failed(status: str) -> None:
    def row(name: str, messages: int) -> dict[str, Any]:
        return {"date": DAY, "status": name, "messages": messages, "copies": 0, "crowded": 0, "latency_max_us": 1}

    days = [row("delivered", 6), row(status, 3), row("expired", 1)]
    assert said(audit_days=days, fan_out_totals=NONE_LACKED)[1] == (
        "Of the 10 messages created that day, each counted once, 60.0\u202f% reached the destination, 30.0\u202f% had none "
        "beyond the network where they came from, and none was lost on the way."
    )


def test_the_speed_is_that_of_the_busiest_route_and_objectives_are_counted() -> None:
    usual = said()[3]
    assert usual.startswith(
        "On the busiest route, up of veh1, half of the messages took at most 100\u202fµs and 99 of 100 at"
    )
    rows = collected()["slo"]
    for met, total, says in ((0, 0, "no service objectives are set"), (1, 1, "the service objective was met"),
                             (2, 2, "all 2 service objectives were met"), (1, 3, "1 of 3 service objectives was met"),
                             (0, 3, "0 of 3 service objectives were met")):  # fmt: skip
        slo = [row | {"total_rows": total} for row in rows[:total]]
        assert said(slo=slo, slo_met=[{"objectives": met}])[3].endswith(f"; {says}.")


def test_missing_records_are_named_with_their_share_and_their_streamers() -> None:
    health = collected()["health"][0]
    rows = [health | {"streamer": name, "records_missing": missing} for name, missing in (("x", 5), ("y", 0), ("z", 1))]
    totals = {"records": 594, "restarts": 0, "gaps": 2, "records_missing": 6, "streamers": 3} | dict.fromkeys(FAULTS[::2], 0)
    told = said(health=rows, health_totals=[totals], clocks=[])[4]
    assert told.startswith(
        "The traces lack 6 records of 600 (1.0\u202f%), at x and z; 99 hours of routes differed unusually"
    )
    whole = said(health=rows, health_totals=[totals | {"records_missing": 0}], clocks=[])[4]
    assert whole.startswith("The traces are complete; ")
    rows = [health | {"streamer": "x", "records_impossible": 2}]
    wrong = said(health=rows, health_totals=[totals | {"records_missing": 0, "records_impossible": 2}], clocks=[])[4]
    assert wrong.startswith("The traces are complete; 2 records of x cannot be: a number twice, ")
    assert said(health=[], health_totals=[totals | {"streamers": 0}])[4].startswith("No streamer wrote traces")


def test_the_verdict_counts_all_that_matters() -> None:
    rows = collected()
    assert verdict(figures(rows, DAY, MADE)) == (
        "attention",
        "120 messages lost (39 from veh1 to cloud,other), 120 messages unknown, because of "
        "veh1 from 09:00 to 10:00, 4 streamers silent, 6 objectives "
        "not met, 450 of 3\u202f000 deliveries of broadcasts missing (300 of 1\u202f000 gateways lack "
        "//veh1/18001/8001 at 09:00 UTC) and 4 more",
    )


@pytest.mark.parametrize(("failed", "lost", "is_told"), [(6, 0, True), (2, 4, True), (2, 0, False), (0, 0, False)])
def test_a_version_that_fails_or_loses_more_than_chance_makes_it_is_in_sentence_and_verdict(
    failed: int, lost: int, is_told: bool
) -> None:
    own = dict.fromkeys(FAILURES, 0) | {"delivered": 72 - failed, "expired": failed, "lost": lost}
    cohort = collected()["cohorts"][0] | own | {"version": "2.0", "config": "ab"}
    everything = own | {"delivered": 72 - failed + 647, "expired": failed + 1}
    day = figures(collected() | {"cohorts": [cohort], "cohort_totals": [everything]}, DAY, MADE)
    reasons = [each for each in judged(day)[1] if each.kind == "version_worse"]
    text = "version 2.0 with configuration ab fails or loses 8.3\u202f%, all others 0.15\u202f%"
    assert [(each.text, each.figures) for each in reasons] == [(text, {"messages": 6, "due": 72})] * is_told
    assert (text in sentences(day)[2]) == is_told


@pytest.mark.parametrize(
    ("name", "tonight", "before", "is_worse"),
    [
        ("failed", 50, [20] * 5, True),
        ("failed", 50, [20, 20, 2_000, 2_000, 20], True),  # after two bad nights, the third one is as bad as before
        ("failed", 39, [20] * 5, False),  # less than twice as many
        ("failed", 9, [0] * 14, False),  # one of a thousand vehicles
        ("failed", 50, [20] * 4, None),  # too few nights
        ("unknown", 50, [20] * 5, True),
        ("unknown", 9, [0] * 14, False),
        ("incomplete", 50, [20] * 5, True),
        ("lost", 9, [0] * 5, True),
        ("lost", 2, [0] * 5, False),  # chance
    ],
)
def test_a_night_is_worse_than_usual_by_the_nights_before_and_unknown_if_there_are_too_few(
    name: str, tonight: int, before: list[int], is_worse: bool | None
) -> None:
    made: dict[str, Any] = {"copies": 0, "crowded": 0, "latency_max_us": 1}
    rows = collected() | {"days": [], "audit_days": [], "health_days": []}
    for back, bad in enumerate((tonight, *before)):
        date, count = DAY - dt.timedelta(days=back), {name: bad}
        sums = rows["routes"][0] | dict.fromkeys(FAILURES, 0) | {"date": date, "delivered": 10_000}
        rows["days"].append(sums | {"delivered": 10_000 - count.get("failed", 0), "expired": count.get("failed", 0)})
        rows["health_days"].append({"date": date, "streamers": 10_000, "incomplete": count.get("incomplete", 0)})
        shares = {"lost": count.get("lost", 0), "unknown": count.get("unknown", 0)}
        shares["delivered"] = 10_000 - sum(shares.values())
        rows["audit_days"] += [made | {"date": date, "status": status, "messages": shares[status]} for status in shares]
    day = figures(rows, DAY, MADE)
    assert {each["name"]: each["is_worse"] for each in day["usual"]["measures"]}[name] is is_worse
    told = [each for each in judged(day)[1] if each.kind == "worse_than_usual"]
    usual = f"usually {share(sorted(before)[len(before) // 2] / 10_000)} (median of {len(before)} nights)"
    assert [each.text for each in told] == [f"{USUAL[name]} {share(tonight / 10_000)}, {usual}"] * bool(is_worse)
