"""The console behind what stands between a browser and the daemon: proxies, logins; and what it says in long sentences."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.console.browser import Console
from tests.console.scene import rows

pytestmark = [pytest.mark.chromium, pytest.mark.console]

PAIR: dict[str, Any] = {
    "role": "standby",
    "since": "2026-01-01T00:00:00.000Z",
    "why": "the other one is active",
    "epoch": 1,
    "takeovers": 0,
    "link": {"up": True, "problem": ""},
    "other_version": "9.8.7",
    "alike": True,
    "protected": True,
    "problem": "",
    "waiting_bytes": 0,
    "overheard": 0,
    "refused": {"stranger": 0, "frame": 0, "heartbeat": 0},
}


@pytest.fixture(autouse=True)
def _answered_by_the_daemon_again(console: Console) -> Iterator[None]:
    yield
    console.page.unroute_all(behavior="ignoreErrors")


def changed(change: Callable[[Any], Any]) -> Callable[[Route], None]:
    def fulfill(route: Route) -> None:
        data = route.fetch().json()
        route.fulfill(json=change(data))

    return fulfill


def test_a_login_page_in_place_of_the_answers_is_no_streamer_that_is_live(console: Console) -> None:
    console.open("overview")
    expect(console.page.locator("#link")).to_have_text("live")
    asked: list[str] = []

    def login(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=200, content_type="text/html", body="<html>Sign in</html>")

    console.page.route("**/api/v1**", login)
    console.page.route("**/api/v1/**", login)
    console.page.reload()
    expect(console.page.locator("#banner")).to_contain_text("perhaps with a login: reload the page")
    expect(console.page.locator("#health")).to_have_text("No answer")
    assert console.page.locator("#link").inner_text() != "live"
    console.page.unroute("**/api/v1**")
    console.page.unroute("**/api/v1/**")
    console.page.locator("#banner").get_by_role("button").click()
    expect(console.page.locator("#link")).to_have_text("live")


def test_where_a_proxy_holds_events_back_the_page_asks_now_and_then(console: Console) -> None:
    console.page.route("**/api/v1/events**", lambda route: None)  # no answer comes
    console.open("overview")
    expect(console.page.locator("#link")).to_have_class("link polling")
    expect(console.page.locator("#link")).to_have_attribute(
        "title", "Something between this page and the streamer holds back its events: the page asks now and then."
    )
    tile = console.page.locator(".tile").filter(has_text="Accepted").locator(".value")
    expect(tile).not_to_have_text("–", timeout=30_000)


def test_a_stream_that_ends_at_once_is_not_asked_for_all_the_time(console: Console) -> None:
    console.page.route("**/api/v1/events**", lambda route: route.fulfill(content_type="text/event-stream", body=""))
    console.open("overview")
    expect(console.page.locator("#banner")).to_contain_text("The streamer ended the stream.")


def test_a_cause_is_shown_whole_and_reasons_are_those_that_are_counted(console: Console) -> None:
    long = "endpoint cloud (mqtt5): " + "the broker refuses the connection " * 12
    reasons, notes = [f"{number} {long}" for number in range(3)], ["a note", "another note"]
    console.page.route("**/api/v1", changed(lambda about: about | {"ready": False, "reasons": reasons, "notes": notes}))
    console.open("overview")
    expect(console.page.locator("#health")).to_have_text("Not ready: 3 reasons")
    lists = console.page.locator(".health ul")
    expect(lists.first.locator("li")).to_have_count(3)
    expect(lists.nth(1).locator("li")).to_have_count(2)
    expect(lists.first).to_contain_text(reasons[2].strip())


def test_endpoints_of_a_healthy_standby_are_not_broken(console: Console) -> None:
    page = console.page
    page.route("**/api/v1", changed(lambda about: about | {"pair": PAIR, "reasons": [], "notes": []}))
    down: dict[str, Any] = {"state": "down", "last_error": None, "problems": []}
    page.route("**/api/v1/endpoints", changed(lambda found: {"endpoints": [each | down for each in found["endpoints"]]}))
    console.open("overview")
    pill = rows(page).first.locator(".pill")
    expect(pill).to_have_text("on standby")
    expect(pill).to_have_class("pill plain")
    error = {"reason": "refused", "text": "x", "address": None, "when": "2026-01-01T00:00:00.000Z"}
    page.unroute("**/api/v1/endpoints")
    broken = down | {"last_error": error}
    page.route("**/api/v1/endpoints", changed(lambda found: {"endpoints": [each | broken for each in found["endpoints"]]}))
    page.reload()
    expect(rows(page).first.locator(".pill")).to_have_class("pill bad")


def test_without_a_journal_no_dead_letters_are_no_error(console: Console) -> None:
    page = console.page
    page.route("**/api/v1", changed(lambda about: about | {"journal": None}))
    refusal = json.dumps({"error": "there is no journal"})
    page.route(
        "**/api/v1/dead-letters**", lambda route: route.fulfill(status=404, content_type="application/json", body=refusal)
    )
    console.open("overview")
    expect(page.locator("#link")).to_have_text("live")
    page.goto(f"{console.base}/console/#dead-letters")
    expect(page.locator("main")).to_contain_text("There is no journal, so no dead letters are kept.")
    expect(page.locator("main .wrong").filter(has_text="there is no journal")).to_have_count(0)
