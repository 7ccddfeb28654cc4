"""The console in Chromium, with ten thousand dead letters and with names that want to be more than names."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from streamer.journal.entries import Batch
from streamer.uprotocol.message import Options, UPayloadFormat, publish
from streamer.uprotocol.status import UCode
from tests.console.browser import PHONE, SECTIONS, Console, unharmed
from tests.console.daemon import memory_daemon
from tests.console.scene import TOKEN
from tests.process import StreamerProcess
from tests.unit.journal.harness import JournalHarness
from tests.unit.tools.letters import HOUR_MS, NOW_MS, SPEED, letter_of

pytestmark = [pytest.mark.chromium, pytest.mark.console]

LETTERS = 10_000
MARKUP = "<script>pwned=1</script><img src=x onerror=pwned=1>\"'&lt;</bdi></table>"
UNSEEN = "\u202eevil\u2066\u200b\u00a0\u0007\u0000\ud800"
HOSTILE = f"{MARKUP}{UNSEEN}😀👩‍👧{'Z̸̧̢͓̱̊͛' * 5}שלום{'A' * 4096}"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamerProcess]:
    folder = tmp_path_factory.mktemp("hostile")
    text = HOSTILE.replace("\ud800", "").replace("\0", "")  # UTF-8 cannot carry the one, SQLite ends a text at the other
    hostile = letter_of(
        1,
        publish(NOW_MS - 1000, SPEED, MARKUP.encode(), Options(payload_format=UPayloadFormat.TEXT)),
        UCode.UNAVAILABLE,
        100,
        text,
    )._replace(ingress=text, target=text, outcome=text, text=text, source=text, sink=text)
    codes = (UCode.DEADLINE_EXCEEDED, UCode.UNAVAILABLE)
    letters = (
        letter_of(number, publish(NOW_MS - HOUR_MS + number, SPEED, b"x" * 200), codes[number % 2], 1000, "vehicle-cloud")
        for number in range(2, LETTERS + 2)
    )
    desk = JournalHarness(folder / "journal.db", 2 * LETTERS, 1 << 26).open()
    desk.write(Batch(letters=[hostile, *letters]))
    desk.close()
    journal = {"path": str(folder / "journal.db")}
    with memory_daemon(folder, journal=journal, dead_letter={"store": {"messages": 2 * LETTERS}}) as daemon:
        yield daemon


@pytest.fixture
def console(browser: Browser, daemon: StreamerProcess) -> Iterator[Console]:
    with unharmed(browser, daemon.admin) as console:
        yield console


def test_a_hostile_dead_letter_is_text_and_shows_what_cannot_be_seen(console: Console) -> None:
    console.open("dead-letters?reason=UNAVAILABLE&newer_than=365d")
    row = console.page.locator("main tbody tr").filter(has_text="pwned=1")
    expect(row).to_contain_text("<script>pwned=1</script><img src=x onerror=pwned=1>\"'&lt;")
    for unseen in ("U+202E", "U+2066", "U+200B", "U+00A0", "U+0007"):
        assert row.get_by_text(unseen, exact=True).count() > 0, unseen
    row.get_by_role("button", name="Show").click()
    dialog = console.page.get_by_role("dialog", name="Dead letter")
    dialog.get_by_role("button", name="Show its content").click()
    console.give(TOKEN)
    expect(dialog.get_by_role("region", name="Payload")).to_contain_text("<script>")
    more = dialog.get_by_role("button", name=re.compile("characters")).first
    more.click()
    expect(dialog).to_contain_text("A" * 4000)
    console.page.keyboard.press("Escape")


def test_ten_thousand_dead_letters_are_paged_and_purged_by_a_filter(console: Console, daemon: StreamerProcess) -> None:
    console.open("dead-letters")
    total, pages = console.page.locator(".total"), console.page.locator(".pages .hint")
    rows = console.page.locator("main tbody tr:not(.reasons tr)")
    expect(total).to_contain_text("10,001 dead letters")
    expect(rows).to_have_count(100)
    first = rows.first.get_by_role("button", name="Show").get_attribute("aria-label")
    assert first is not None
    console.button("Next").click()
    expect(pages).to_have_text("page 2 of 101")
    expect(console.button("Next")).to_be_focused()
    console.button("Back").click()
    expect(pages).to_have_text("page 1 of 101")
    expect(rows.first.get_by_role("button", name=first)).to_be_visible()
    console.field("Reason").select_option("DEADLINE_EXCEEDED")
    console.button("Filter").click()
    expect(total).to_contain_text("5,000 dead letters")
    console.page.get_by_label("Select all on this page").check()
    console.button("Purge selected (100)").click()
    confirm = console.page.get_by_role("dialog", name="Purge").get_by_role("button", name="Delete for good")
    confirm.click()
    console.give(TOKEN)
    console.said("100 dead letters deleted")
    console.button("Purge all 4,900").click()
    confirm.click()
    console.said("4,900 dead letters deleted")
    expect(console.page.locator("main")).to_contain_text("There is no dead letter like that")
    console.button("Clear").click()
    expect(total).to_contain_text("5,001 dead letters")
    expect(console.page.locator("[data-section=dead-letters] .count")).to_have_text("5,001")
    assert json.loads(daemon.get("/api/v1/dead-letters")[1])["total"] == 5001


def hostile(value: Any) -> Any:
    """The same with a hostile text for every text."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return {key: hostile(each) for key, each in value.items()} if isinstance(value, dict) else value


FLOW = {"route": "", "endpoint": "", "source": "", "sink": "", "priority": "", "held": [""], "waiting": 1, "bytes": 2}
HOP: dict[str, Any] = {
    "route": "",
    "endpoint": "",
    "sink": "",
    "period_ms": 5,
    "limits": [""],
    "paused_by": "",
    "link": {"state": "", "why": ""},
}
SUBSCRIPTION = {"topic": "", "subscriber": "", "state": "", "expires": "", "sample_period_ms": 1, "version": 3}
LAST = {"topic": "", "id": "", "at": "", "age_s": -5, "ttl_ms": 1, "bytes": 3, "payload_format": "", "cut_bytes": 2}
TAPPED = dict.fromkeys(
    ("t", "route", "ingress", "egress", "type", "source", "sink", "priority", "outcome", "code", "text"), ""
)
FINDING = {**dict.fromkeys(("minute", "verdict", "streamer", "id", "was", "class"), ""), "messages": 1}
FULL: dict[str, Any] = {
    "/flows": {"flows": [FLOW], "next": "", "total": 1},
    "/paused": {"paused": [{"topic": "", "sink": "", "flows": 1, "messages": 2}]},
    "/subscriptions": {"subscriptions": [SUBSCRIPTION], "observers": 1, "next": None, "total": 1, "service": ""},
    "/last-values": {"values": [LAST | {"payload": {"text": ""}}], "next": None, "total": 1, "is_on": True},
    "/explain": {"from": "", "goes": False, "why": [""], "hops": [HOP], "failure": {"outcome": "", "code": "", "text": ""}},
    "/config": {"fingerprint": "", "config": {"authority": [""]}},
    "/live-audit": {"compares": True, "streamers": 1, "open_minutes": 1, "messages": {"lost": 1}, "findings": [FINDING]},
}
"""What the daemon would have to say where it has nothing."""
PAIR: dict[str, Any] = {
    **dict.fromkeys(("role", "since", "why", "problem", "other_version"), ""),
    "epoch": 3,
    "takeovers": 1,
    "alike": False,
    "protected": False,
    "waiting_bytes": 1,
    "overheard": 0,
    "link": {"up": False, "problem": ""},
    "refused": {},
}
EVENTS = {
    "state": {"what": "endpoint", "name": "", "state": "", "problems": [""]},
    "dead_letter": {"id": "", "route": "", "reason": "", "text": "", "type": "", "source": "", "sink": "", "size": 1},
    "config": {"fingerprint": ""},
}


def test_hostile_texts_in_every_field_of_every_section_are_text(console: Console) -> None:
    page = console.page
    told: set[str] = set()

    def answer(route: Route) -> None:
        path = route.request.url.partition("/api/v1")[2].partition("?")[0]
        if path == "/events" and told:
            route.fulfill(status=503, body="{}")
        elif path in ("/events", "/tap"):
            told.add(path)
            given = EVENTS if path == "/events" else {"message": TAPPED | {"payload": {"text": ""}, "bytes": 3}}
            said = "".join(f"event: {kind}\ndata: {json.dumps(hostile(data))}\n\n" for kind, data in given.items())
            changed = json.dumps(hostile(EVENTS["state"]) | {"state": "down"})  # a state is told when it changes
            said += f"event: state\ndata: {changed}\n\n" * (path == "/events")
            route.fulfill(body=said, content_type="text/event-stream")
        elif path == "/history":
            route.continue_()
        else:
            given = FULL[path] if path in FULL else route.fetch().json()
            given |= {"ready": False, "reasons": [""], "pair": PAIR} if path == "" else {}
            route.fulfill(body=json.dumps(hostile(given)), content_type="application/json")

    page.route("**/api/v1**", answer)
    page.route("**/api/v1/**", answer)
    page.set_viewport_size(PHONE)
    for section in SECTIONS:
        console.open(section)
        if section == "explain":
            console.field("Source").fill(HOSTILE.replace("\ud800", ""))
            console.button("Explain").click()
            expect(page.get_by_role("region", name="Answer")).to_contain_text("It goes nowhere")
        if section == "last-values":
            console.button("Show").click()
            expect(page.get_by_role("group", name="Payload")).to_contain_text("pwned=1")
        if section == "tap":
            console.button("Start").click()
            expect(page.locator("main tbody tr").first).to_be_visible()
        expect(page.locator("main")).to_contain_text("<script>pwned=1</script>")
        expect(page.locator("main .ctl").first).to_be_visible()
        assert console.overflow() == 0, section
        if section == "overview":
            expect(page.locator(".log")).to_contain_text("pwned=1")
            expect(page.locator("#health")).to_contain_text("Not ready")
            expect(page.locator("#role")).to_contain_text("not protected")
            expect(page.locator(".card").filter(has=page.get_by_role("heading", name="Pair"))).to_contain_text("pwned=1")
            page.locator("#sections").evaluate("node => node.scrollIntoView()")
    page.get_by_role("button", name="Stop").click()


def test_an_error_is_text(console: Console, daemon: StreamerProcess, tmp_path: Path) -> None:
    body = json.dumps({"error": HOSTILE, "problems": [HOSTILE]})
    console.open("configuration")
    console.page.route(
        "**/api/v1/preview", lambda route: route.fulfill(status=422, body=body, content_type="application/json")
    )
    console.button("Read the file again").click()
    expect(console.page.get_by_role("alert").filter(has_text="pwned=1")).to_contain_text("U+202E")
    assert console.overflow() == 0
