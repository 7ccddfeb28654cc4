"""The sections of the report, from rows that are in no order and have no row where there was nothing."""

from typing import Any

from spark_jobs.report import sections
from spark_jobs.schema import OUTCOMES

DAYS = [f"2026-11-{day:02}" for day in range(6, 21)]


def route(streamer: str, name: str | None, hours: dict[int, int], **outcomes: int) -> dict[str, Any]:
    messages = sum(hours.values())
    counts = dict.fromkeys(OUTCOMES, 0) | {"delivered": messages - sum(outcomes.values())} | outcomes
    by_hour = [{"hour": hour, "messages": number} for hour, number in hours.items()]
    return {"streamer": streamer, "route": name, "messages": messages, "bytes": 10 * messages, "by_hour": by_hour} | counts


ROUTES = [
    route("gw", "quiet", {23: 1}),
    route("gw", "b", {0: 20, 23: 20}, unheard=40),
    route("back", "z", {0: 30, 5: 10}, expired=2, rejected=1, dead_lettered=1),
    route("gw", "a", {7: 40}, dead_lettered=4),
    *(route("gw", f"r{number}", {12: 50 + number}) for number in range(4)),
]


def test_volume_shows_the_busiest_routes_and_sums_up_the_others() -> None:
    volume = sections.volume({"routes": ROUTES})
    assert [row["route"] for row in volume["routes"]] == ["r3", "r2", "r1", "r0", "z", "a"], "equals by streamer and route"
    assert {hour: number for hour, number in enumerate(volume["others"]["hours"]) if number} == {0: 20, 23: 21}
    assert (volume["others"]["routes"], volume["others"]["messages"], volume["others"]["bytes"]) == (2, 41, 410)
    assert (volume["messages"], volume["bytes"], len(volume["hours"])) == (41 + 80 + 206, 3270, 24)
    assert {hour: number for hour, number in enumerate(volume["hours"]) if number} == {0: 50, 5: 10, 7: 40, 12: 206, 23: 21}


def test_outcomes_show_the_routes_with_most_failures_first_and_judge_only_what_was_due() -> None:
    found = sections.outcomes({"routes": ROUTES})
    assert [row["route"] for row in found["routes"]] == ["z", "a", "r3", "r2", "r1", "r0", "b", "quiet"]
    shares = {row["route"]: row["delivered_share"] for row in found["routes"]}
    assert (shares["z"], shares["a"], shares["r0"], shares["b"]) == (0.9, 0.9, 1.0, None)
    assert found["totals"]["delivered_share"] == (1 + 36 + 36 + 206) / (1 + 40 + 40 + 206)
    assert found["more"] == 0


def test_a_day_without_a_reason_is_zero_if_it_was_recorded_and_unknown_otherwise() -> None:
    def letters(day: str, ucode: str, messages: int) -> dict[str, Any]:
        return {"date": day, "outcome": "expired", "ucode": ucode, "messages": messages}

    rows = [
        letters(DAYS[13], "GONE", 9),
        letters(DAYS[14], "NEW", 5),
        letters(DAYS[12], "OLD", 4),
        letters(DAYS[14], "OLD", 5),
    ]
    recorded = [{"date": DAYS[day]} for day in (11, 12, 14)]
    found = sections.dead_letters({"dead_letter_days": rows, "dead_letters": [], "days": recorded}, DAYS)
    assert [(row["ucode"], row["messages"], row["usual"], row["change"]) for row in found["reasons"]] == [
        ("OLD", 5, 2.0, 1.5),
        ("NEW", 5, 0.0, None),
        ("GONE", 0, 3.0, -1.0),
    ]
    assert [row["trend"][11:] for row in found["reasons"]] == [[0, 4, None, 5], [0, 0, None, 5], [0, 0, 9, 0]]
    assert all(row["trend"][:11] == [None] * 11 for row in found["reasons"])
    assert (found["messages"], found["more_reasons"]) == (10, 0)


def test_what_the_audit_calls_usual_is_the_mean_of_the_days_that_were_audited() -> None:
    def status(day: str, name: str, messages: int) -> dict[str, Any]:
        return {"date": day, "status": name, "messages": messages, "copies": 2, "crowded": 1, "latency_max_us": 70}

    rows = [
        status(DAYS[10], "delivered", 90), status(DAYS[10], "lost", 6), status(DAYS[12], "delivered", 70),
        status(DAYS[12], "unheard", 4), status(DAYS[14], "delivered", 40), status(DAYS[14], "rejected", 1),
    ]  # fmt: skip
    found = sections.audit({"audit_days": rows, "audit_pairs": [], "audit_unknown": []}, DAYS)
    assert [(row["status"], row["messages"], row["copies"], row["usual"], row["change"]) for row in found["statuses"]] == [
        ("delivered", 40, 2, 80.0, -0.5),
        ("lost", 0, 0, 3.0, -1.0),
        ("rejected", 1, 2, 0.0, None),
        ("unheard", 0, 0, 2.0, -1.0),
    ]
    assert (found["messages"], found["crowded"], found["latency_max_us"], found["days"]) == (41, 2, 70, 2)
    assert sections.lost_trend({"audit_days": rows}, DAYS)[9:] == [None, 6, None, 0, None, 0]
    assert sections.lost_trend({"audit_days": rows[:4]}, DAYS)[-1] == 0, "no message was created: none was lost"


def test_health_counts_the_hours_in_which_a_streamer_wrote() -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        "health": [{"streamer": name, "total_rows": 7} for name in ("gw", "back", "new")],
        "health_totals": [{"records": 5, "restarts": None, "gaps": 0, "records_missing": 3, "streamers": 7}],
        "clocks": [],
        "health_hours": [{"streamer": "gw", "hours": 4}, {"streamer": "back", "hours": 2}],
    }
    found = sections.health(rows)
    assert [(row["streamer"], row["hours"]) for row in found["rows"]] == [("gw", 4), ("back", 2), ("new", None)]
    assert found["more"] == 4
    assert found["totals"] == {"records": 5, "restarts": 0, "gaps": 0, "records_missing": 3, "streamers": 7}
