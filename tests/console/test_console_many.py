"""The console with much of everything: two hundred endpoints, floods of dead letters, an endpoint that is down."""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.scene import ROUTE, publishes, rows
from tests.e2e.topology import Topology, TopologyThread

pytestmark = [pytest.mark.chromium, pytest.mark.console]


def play(console: Console, page: str, **answer: Any) -> None:
    """Have the browser get this answer instead of the daemon's."""
    console.page.route(f"**/api/v1/{page}", lambda route: route.fulfill(json=answer))


def endpoint(name: str, state: str = "up", problems: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "name": name,
        "transport": "mqtt5",
        "state": state,
        "problems": list(problems),
        "authorities": [f"authority-of-{name}"],
        "received_packets": 0,
        "received_messages": 0,
        "malformed": {},
        "unwanted": {},
        "backlog": 0,
        "in_flight": 0,
        "reconnects": 0,
    }


def letter(number: int, reason: str, text: str) -> dict[str, Any]:
    when = "2026-11-27T09:32:26.123Z"
    return {
        "number": number, "id": f"id-{number}", "when": when, "age_s": 5, "reason": reason, "text": text, "first": when,
        "outcome": "expired", "route": "a-route-with-a-long-name-to-a-long-endpoint", "ingress": "a", "egress": "b",
        "attempts": 10, "type": "request", "source": "//vehicle-0123456789.fleet.example/A8000/2/8A50",
        "sink": "//cloud-0123456789.fleet.example/C0FFEE/1/7FFF", "size": 123456789, "redrive": None, "redrive_ttl_ms": None,
    }  # fmt: skip


MANY = [endpoint(f"gate{number:03}") for number in range(197)]
BROKEN = [
    endpoint("zeta", "down"),
    endpoint("late", "connecting"),
    endpoint("odd", problems=("its broker refuses a subscription",)),
]


def test_of_two_hundred_endpoints_the_broken_ones_come_first_and_others_are_found(console: Console) -> None:
    play(console, "endpoints", endpoints=[*MANY, *BROKEN])
    console.open("endpoints")
    names = [row.split()[0] for row in rows(console.page).all_inner_texts()]
    assert len(names) == 200
    assert names[:4] == ["zeta", "late", "odd", "gate000"]
    expect(rows(console.page).nth(2)).to_contain_text("its broker refuses a subscription")
    console.field("State").select_option("broken")
    expect(rows(console.page)).to_have_count(3)
    console.field("State").select_option("")
    console.field("Name or authority contains").fill("of-gate19")
    expect(rows(console.page)).to_have_count(7)
    console.button("Show gate190").click()
    expect(console.page.get_by_role("dialog", name="Endpoint")).to_contain_text("authority-of-gate190")
    assert console.violations() == []


def test_of_few_endpoints_each_has_a_card_and_nothing_to_filter(console: Console) -> None:
    console.open("endpoints")
    expect(console.page.locator(".card h2").filter(has_text="first")).to_be_visible()
    expect(console.page.get_by_label("Name or authority contains")).to_be_hidden()


def test_the_overview_lists_the_broken_endpoints_and_leads_to_all(console: Console) -> None:
    play(console, "endpoints", endpoints=[*MANY, *BROKEN])
    console.open("overview")
    expect(rows(console.page)).to_have_count(8)
    expect(rows(console.page).first).to_contain_text("zeta")
    console.page.get_by_role("link", name="All 200 endpoints").click()
    expect(rows(console.page)).to_have_count(200)


def test_a_flow_that_waits_for_its_endpoint_says_so(
    console: Console, send: Any, thread: TopologyThread, topology: Topology
) -> None:
    held = {"route": ROUTE, "endpoint": "second", "waiting": 3, "bytes": 1, "unconfirmed": 0, "in_flight": 0,
            "source": "//a/1/1/8001", "sink": None, "oldest_age_s": 1, "priority": "CS1"}  # fmt: skip
    flows = [
        held | {"endpoint_state": "down", "held": []},
        held | {"endpoint_state": "up", "held": ["absent"], "sink": "//b/1/1/0"},
    ]
    play(console, "flows*", flows=flows, next=None, total=2)
    console.open("flows")
    expect(rows(console.page).nth(0)).to_contain_text("endpoint down")
    expect(rows(console.page).nth(1)).to_contain_text("absent")
    expect(rows(console.page).nth(1)).not_to_contain_text("endpoint")


def test_dead_letters_are_counted_by_reason_and_one_reason_is_one_click_away(
    console: Console, thread: TopologyThread, topology: Topology, send: Any
) -> None:
    send(publishes(1, 2, 3, ttl=1))
    thread.run(topology.daemon.until_total(3, "ustreamer_outcomes_total", outcome="expired"))
    console.open("dead-letters")
    groups = console.page.get_by_role("table", name="Dead letters by reason").locator("tbody tr")
    expect(groups).to_have_count(1)
    expect(groups.first).to_contain_text("deadline exceeded")
    groups.first.get_by_role("button", name="Purge all with deadline exceeded").click()
    dialog = console.page.get_by_role("dialog", name="Purge")
    expect(dialog).to_contain_text("reason: DEADLINE_EXCEEDED")
    dialog.get_by_role("button", name="Cancel").click()
    groups.first.get_by_role("button", name="List deadline exceeded").click()
    expect(console.page.get_by_role("table", name="Dead letters by reason")).to_have_count(0)
    expect(console.field("Reason")).to_have_value("DEADLINE_EXCEEDED")
    assert console.violations() == []


def test_on_a_phone_every_cell_begins_below_the_one_above(console: Console) -> None:
    console.page.set_viewport_size({"width": 390, "height": 844})
    moment = "2026-11-27T09:32:26.123Z"
    found = {"reason": "DEADLINE_EXCEEDED", "number": 2, "oldest": moment, "newest": moment}
    play(console, "dead-letters/reasons*", reasons=[found])
    play(console, "dead-letters?*", dead_letters=[letter(1, "DEADLINE_EXCEEDED", "late")], next=None, total=1, total_bytes=7)
    console.open("dead-letters")
    expect(rows(console.page).first).to_be_visible()
    aligned = console.page.evaluate(
        "[...document.querySelectorAll('tbody td')].map((cell) => getComputedStyle(cell).textAlign)"
    )
    assert len(aligned) > 6
    assert set(aligned) == {"left"}


def test_at_1440_pixels_no_time_is_cut(console: Console) -> None:
    console.page.set_viewport_size({"width": 1440, "height": 900})
    found = [
        letter(number, "DEADLINE_EXCEEDED", "its TTL passed while the link to the endpoint was down " * 3)
        for number in (1, 2)
    ]
    play(console, "dead-letters?*", dead_letters=found, next=None, total=2, total_bytes=7)
    moment = "2026-11-27T09:32:26.123Z"
    play(
        console,
        "dead-letters/reasons*",
        reasons=[{"reason": "DEADLINE_EXCEEDED", "number": 2, "oldest": moment, "newest": moment}],
    )
    console.open("dead-letters")
    expect(rows(console.page)).to_have_count(2)
    cut = "[...document.querySelectorAll('main time')].filter(each => each.scrollWidth > each.clientWidth).length"
    assert console.page.locator("main time").count() == 3
    assert console.page.evaluate(cut) == 0
    assert console.overflow() == 0


def test_a_dead_letter_from_the_future_says_that_the_clock_was_set_back(console: Console) -> None:
    ahead = letter(1, "UNAVAILABLE", "away") | {"age_s": -10_800}
    play(console, "dead-letters/reasons*", reasons=[])
    play(console, "dead-letters?*", dead_letters=[ahead], next=None, total=1, total_bytes=7)
    console.open("dead-letters")
    expect(rows(console.page)).to_contain_text("3 h ahead: the clock was set back since")


def test_a_flood_of_dead_letters_displaces_no_change_of_state(console: Console) -> None:
    states = [f'event: state\ndata: {{"what": "endpoint", "name": "e", "state": "{state}"}}\n\n' for state in ("up", "down")]
    letters = [
        f'event: dead_letter\ndata: {{"reason": "UNAVAILABLE", "route": "r{number % 3}"}}\n\n' for number in range(300)
    ]
    body = "".join([*states, *letters])
    console.page.route(
        "**/api/v1/events*",
        lambda route: route.fulfill(status=200, headers={"Content-Type": "text/event-stream"}, body=body),
        times=1,
    )
    console.open("overview")
    log = console.page.locator(".log li")
    expect(log.filter(has_text="endpoint e down")).to_have_count(1)
    expect(log.filter(has_text="100 dead letters, unavailable, on route r0")).to_have_count(1)
    expect(log.filter(has_text="unavailable")).to_have_count(3)


def test_failures_are_a_line_of_the_overview(console: Console) -> None:
    console.open("overview")
    chart = console.page.locator(".chart").first
    expect(chart.locator(".legend")).to_have_text("accepteddeliveredfailed")
    assert "failed" in (chart.locator("svg[role=img]").get_attribute("aria-label") or "")
    expect(chart.locator("path.third")).to_have_count(1)
