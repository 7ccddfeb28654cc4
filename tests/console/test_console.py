"""The console in Chromium: what it shows, to whom, without a mouse, and when the daemon goes away."""

import asyncio
import json
import re
import signal
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.browser import DESK, PHONE, SECTIONS, Console
from tests.console.scene import ROUTE, SPEED_TEXT, TOKEN, asked, publishes, rows
from tests.e2e.topology import Topology, TopologyThread

pytestmark = [pytest.mark.chromium, pytest.mark.console]


# what is shown


def test_the_root_leads_to_an_overview_that_says_how_it_is(console: Console, topology: Topology) -> None:
    console.page.goto(f"{console.base}/")
    expect(console.page.locator("#health")).to_have_text("Ready")
    expect(console.page.locator("#authority")).to_have_text("gw")
    expect(console.page.locator("#link")).to_have_text("live")
    for name in ("first", "second"):
        expect(rows(console.page).filter(has_text=name)).to_contain_text("up")
    expect(console.page.get_by_role("progressbar", name="Share of its bound")).to_be_visible()
    assert re.search(r"Configuration\s+\w{6,}", console.page.locator(".properties").first.inner_text())


def test_an_endpoint_that_is_alone_is_named_where_the_streamer_is_ready(console: Console) -> None:
    text = "endpoint vehicle (zenoh) is alone: no other node is connected to it: tcp/a:7447: connection refused"

    def about(route: Any) -> None:
        route.fulfill(json=route.fetch().json() | {"notes": [text]})

    console.page.route("**/api/v1", about)
    console.page.goto(f"{console.base}/")
    expect(console.page.locator(".health")).to_contain_text(text)
    expect(console.page.locator(".health")).not_to_contain_text("Every endpoint is connected")


def test_one_of_a_pair_says_its_role_and_whether_it_is_protected(console: Console) -> None:
    page, more = console.page, dict[str, Any]()
    pair: dict[str, Any] = {
        "role": "active",
        "since": "2026-01-01T00:00:00.000Z",
        "why": "both are on standby",
        "epoch": 1,
        "takeovers": 1,
        "link": {"up": True, "problem": ""},
        "other_version": "9.8.7",
        "alike": True,
        "protected": True,
        "problem": "",
        "waiting_bytes": 2048,
        "overheard": 0,
        "refused": {"stranger": 0, "frame": 0, "heartbeat": 0},
    }
    page.route("**/api/v1", lambda route: route.fulfill(json=route.fetch().json() | {"pair": pair} | more))
    page.goto(f"{console.base}/")
    card, health = page.locator(".card").filter(has=page.get_by_role("heading", name="Pair")), page.locator(".health")
    expect(page.locator("#role")).to_have_text("active")
    expect(health).to_contain_text("Every endpoint is connected")
    for text in (
        "active, epoch 1",
        "2026-01-01 00:00:00 UTC: both are on standby",
        "yes",
        "version 9.8.7",
        "alike",
        "2.0 KiB",
    ):
        expect(card).to_contain_text(text)
    assert console.violations() == []
    gone = {"up": False, "problem": "nothing answers"}
    pair |= {"protected": False, "problem": "there is no link", "link": gone, "other_version": None, "alike": False}
    page.reload()
    expect(page.locator("#role")).to_have_text("active, not protected")
    expect(health).to_contain_text("the other one of the pair could not take over: there is no link")
    for text in ("no", "nothing answers", "not connected", "differ: neither takes over"):
        expect(card).to_contain_text(text)
    page.set_viewport_size(PHONE)
    assert console.violations() == []
    assert console.overflow() == 0
    pair |= {"role": "standby"}
    more |= {"ready": False, "reasons": ["on standby: there is no link"]}
    page.reload()
    expect(health).to_have_text(re.compile("Not ready.*on standby: there is no link$"))
    more |= {"ready": True, "reasons": [], "notes": []}
    page.reload()
    expect(health).to_contain_text("it could not take over: there is no link")
    pair |= {"protected": True, "problem": ""}
    page.reload()
    expect(page.locator("#role")).to_have_text("standby")
    expect(health).to_have_text("On standbyIt has a copy of everything that waits at the active one.")


def test_one_that_works_alone_has_no_role(console: Console) -> None:
    console.page.goto(f"{console.base}/")
    expect(console.page.locator("#health")).to_have_text("Ready")
    expect(console.page.locator("#role")).to_be_hidden()
    expect(console.page.get_by_role("heading", name="Pair")).to_have_count(0)


def test_a_card_has_the_last_error_of_its_endpoint(console: Console) -> None:
    error = {"reason": "unknown_host", "text": "no such name", "address": "b:1883", "when": "2026-01-01T00:00:00.000Z"}

    def endpoints(route: Any) -> None:
        answer = route.fetch().json()
        cause = {"reason": "reset", "text": "closed by the broker", "address": "b:1883", "when": "2025-12-31T00:00:00.000Z"}
        known = {"since": "2025-12-31T00:00:01.000Z", "first_error": cause, "next_attempt": "2026-01-01T00:00:09.000Z"}
        answer["endpoints"][0] |= {"state": "down", "last_error": error, "connected_to": ["b.example:8883"], **known}
        route.fulfill(json=answer)

    console.page.route("**/api/v1/endpoints", endpoints)
    console.page.goto(f"{console.base}/")
    console.open("endpoints")
    card = console.page.locator(".card").first
    for each in ("unknown host, 2026-01-01 00:00:00 UTC", "b:1883: no such name", "2026-01-01 00:00:09 UTC"):
        expect(card).to_contain_text(each)
    for each in (
        "Not up since",
        "2025-12-31 00:00:01 UTC",
        "reset, 2025-12-31 00:00:00 UTC",
        "b:1883: closed by the broker",
    ):
        expect(card).to_contain_text(each)
    expect(card).to_contain_text("b.example:8883")


def test_explain_says_that_a_destination_is_not_up(console: Console) -> None:
    why = "is not connected since 2026-01-01T00:00:00.000Z: b:1883: connection refused"

    def explained(route: Any) -> None:
        answer = route.fetch().json()
        answer["hops"][0]["link"] |= {"state": "down", "why": why}
        route.fulfill(json=answer)

    console.page.route("**/api/v1/explain*", explained)
    console.open(f"explain?type=publish&source={SPEED_TEXT}")
    row = console.page.get_by_role("region", name="Answer").get_by_role("row", name=ROUTE)
    expect(row).to_contain_text("down")
    expect(row).to_contain_text(why)


def test_routes_show_what_was_delivered_and_draw_it(console: Console, thread: TopologyThread, topology: Topology) -> None:
    thread.run(topology.exchange(0, publishes(*range(7))))
    thread.run(topology.daemon.until_total(7, "ustreamer_outcomes_total", route=ROUTE, outcome="delivered"))
    console.open(f"routes?name={ROUTE}")
    card = console.page.locator(".card").filter(has_text=ROUTE)
    card.locator("summary").click()
    expect(card.get_by_role("row", name="delivered 7", exact=True)).to_be_visible()
    drawn = card.locator("svg[role=img]")
    expect(drawn).to_have_count(2)
    expect(drawn.first).to_have_attribute("aria-label", re.compile("^Messages per second, the last hour: accepted"))


def test_rates_of_the_last_hour_go_on_with_those_that_come(console: Console) -> None:
    """An hour of samples is given; what the daemon says each second goes on from there."""
    begin = "() => new Date(Date.now() - 3600000).toISOString()"

    def hour(route: Any) -> None:
        values = [float(number % 50) for number in range(360)]
        body = {
            "name": ROUTE,
            "accepted_per_s": values,
            "delivered_per_s": values,
            "failed_per_s": values,
            "queued": [3] * 360,
        }
        start = console.page.evaluate(begin)
        route.fulfill(json={"interval_s": 10, "start": start, "left_out_routes": 4, "routes": [body]})

    console.page.goto(f"{console.base}/console/")
    console.page.route("**/api/v1/history", hour)
    console.open(f"routes?name={ROUTE}")
    expect(console.page.locator("main")).to_contain_text("Of 4 routes there is no history")
    svg = console.page.locator("svg[role=img]").first
    expect(svg).to_have_attribute("aria-label", re.compile("49 /s at most"))
    path = svg.locator(".edge").get_attribute("d") or ""
    assert path.count("L") > 300
    svg.hover()
    expect(console.page.locator(".read").first).to_have_text(re.compile(r"\d\d:\d\d:\d\d UTC · accepted \d+ /s"))
    console.page.wait_for_function("before => document.querySelector('.edge').getAttribute('d') !== before", arg=path)


def test_explain_answers_and_keeps_what_is_filled_in_if_it_cannot(console: Console) -> None:
    console.open("explain")
    console.field("Source").fill(SPEED_TEXT)
    console.button("Explain").click()
    answer = console.page.get_by_role("region", name="Answer")
    expect(answer).to_contain_text("It goes on")
    expect(answer.get_by_role("row", name=ROUTE)).to_contain_text("second")
    console.field("Source").fill("//nobody/10/1/8001")
    console.button("Explain").click()
    expect(answer).to_contain_text("It goes nowhere")
    console.field("Source").fill("nonsense")
    console.button("Explain").click()
    expect(console.page.get_by_role("alert").filter(has_text="nonsense")).to_be_visible()
    expect(console.field("Source")).to_have_value("nonsense")


def test_the_configuration_is_shown_without_secrets(console: Console) -> None:
    console.open("configuration")
    shown = console.page.get_by_role("region", name="Running configuration")
    expect(shown).to_contain_text('"authority": "gw"')
    expect(shown).not_to_contain_text(TOKEN)


def test_subscriptions_say_who_keeps_them(console: Console) -> None:
    console.open("subscriptions")
    expect(console.page.locator("main")).to_contain_text("This streamer is the uSubscription service")
    expect(console.page.locator("main")).to_contain_text("There is no subscription")


# without a mouse


def test_the_keyboard_is_enough_to_pause_and_resume(console: Console, topology: Topology) -> None:
    page = console.page
    console.open("overview")
    page.locator("body").press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()

    def tab_to(name: str, role: Any, back: bool = False) -> None:
        for _ in range(60):
            page.keyboard.press("Shift+Tab" if back else "Tab")
            if page.locator(":focus").and_(page.get_by_role(role, name=name)).count():
                outline = "getComputedStyle(document.activeElement).outlineStyle"
                assert page.evaluate(outline) != "none"
                return
        raise AssertionError(f"{name} cannot be reached")

    tab_to("Pause", "link", back=True)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Pause")
    expect(page.locator("h1")).to_be_focused()
    tab_to("Topic or source", "textbox")
    page.keyboard.type(SPEED_TEXT)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Token")
    expect(dialog.get_by_label("Token", exact=True)).to_be_focused()
    seen = set()
    for _ in range(8):  # the focus stays in the dialog
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.closest('dialog') ? 'in' : document.activeElement.tagName"))
    assert seen <= {"in", "BODY"}  # BODY: the browser's own frame
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("Nothing was changed")).to_be_visible()  # until then, the button is at work
    expect(console.field("Topic or source")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog.get_by_label("Token", exact=True)).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    console.said("Paused")
    tab_to(f"Resume {SPEED_TEXT}", "button")
    page.keyboard.press("Space")
    console.said("Resumed")
    expect(page.locator("h1")).to_be_focused()  # the button is gone
    assert asked(topology, "/paused") == {"paused": []}


# light and dark, small and large


def test_every_section_is_accessible_light_and_dark_and_no_wider_than_a_phone(console: Console) -> None:
    page = console.page
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    background = "getComputedStyle(document.body).backgroundColor"
    for section in SECTIONS:
        console.open(section)
        assert console.violations() == []
    page.locator("#token").click()
    assert console.violations() == []
    page.keyboard.press("Escape")
    light = page.evaluate(background)
    page.locator("#theme").select_option("Dark")
    dark = page.evaluate(background)
    page.locator("#theme").select_option("System")
    assert page.evaluate(background) == light != dark
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(background) == dark

    page.set_viewport_size(PHONE)
    for section in SECTIONS:
        page.get_by_role("button", name="Menu").click()
        page.locator(f"#sections a[data-section={section}]").click()
        expect(page.locator(f".section.{section}[aria-busy=false]")).to_be_visible()
        assert console.overflow() == 0, section
        assert console.violations() == []


# what others may not


def test_pages_of_other_origins_read_nothing_and_change_nothing(console: Console, topology: Topology) -> None:
    console.page.route("http://elsewhere.example/", lambda route: route.fulfill(body="<p>", content_type="text/html"))
    console.page.goto("http://elsewhere.example/")
    attempt = """async ([address, options]) => {
        try { const answer = await fetch(address, options); return answer.status + await answer.text() }
        catch (error) { return "refused" }
    }"""
    body = json.dumps({"topic": SPEED_TEXT})
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    for page, options in (
        ("", {}),
        ("/dead-letters", {"mode": "no-cors"}),
        ("/pause", {"method": "POST", "body": body, "headers": headers}),
        ("/pause", {"method": "POST", "body": body, "mode": "no-cors"}),
    ):
        answer = console.page.evaluate(attempt, [f"{console.base}/api/v1{page}", options])
        assert answer in ("refused", "0")
    frame = f"<iframe src='{console.base}/console/'></iframe>"
    console.page.set_content(frame)
    expect(console.page.frame_locator("iframe").locator("main")).to_have_count(0)
    assert asked(topology, "/paused") == {"paused": []}
    console.wrong.clear()  # what the browser says of the refusals


# streams


def test_a_page_that_is_not_seen_holds_no_stream_and_one_too_many_polls(
    console: Console, thread: TopologyThread, topology: Topology
) -> None:
    taken: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def take_all() -> None:
        """All eight streams. One is free once the daemon knows that the page has gone."""
        async with asyncio.timeout(20):
            while len(taken) < 8:
                reader, writer = await asyncio.open_connection("127.0.0.1", topology.daemon.admin)
                writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                if b" 200 " in await reader.readline():
                    taken.append((reader, writer))
                else:
                    writer.close()
                    await writer.wait_closed()

    async def give_all() -> None:
        for _, writer in taken:
            writer.close()
            await writer.wait_closed()

    console.open("overview")
    expect(console.page.locator("#link")).to_have_text("live")
    hide = """hidden => { Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden })
        document.dispatchEvent(new Event("visibilitychange")) }"""
    console.page.evaluate(hide, True)
    try:
        thread.run(take_all())
        console.page.evaluate(hide, False)
        expect(console.page.locator("#link")).to_have_text("every 10 s")
        expect(console.page.locator("#health")).to_have_text("Ready")
        console.open("endpoints")
        expect(console.page.locator("main")).to_contain_text("mqtt5")
    finally:
        thread.run(give_all())


# the daemon goes away, and is another one; last, because it is


ASK_NOTHING_UNTIL_A_CLICK = """() => {
    const real = window.fetch
    let isClicked = false
    addEventListener("click", () => { isClicked = true }, { capture: true, once: true })
    window.fetch = (...request) => isClicked ? real(...request) : Promise.reject(new TypeError("not yet"))
}"""
"""The page tries again by itself now and then, which can be just before a test does it."""


def test_a_daemon_that_goes_away_and_comes_back(console: Console, thread: TopologyThread, topology: Topology) -> None:
    console.open("explain")
    console.field("Source").fill(SPEED_TEXT)
    expect(console.page.locator("#health")).to_have_text("Ready")  # it knows which run of the daemon this is
    topology.daemon.signal(signal.SIGKILL)
    thread.run(topology.daemon.ended())
    banner = console.page.locator("#banner")
    expect(banner).to_contain_text("The streamer does not answer")
    expect(console.page.locator("#health")).to_have_text("No answer")
    console.page.evaluate(ASK_NOTHING_UNTIL_A_CLICK)
    topology.daemon.start()
    thread.run(topology.daemon.until_up())
    banner.get_by_role("button", name="Try now").click()
    expect(banner).to_be_hidden()
    expect(console.page.locator("#health")).to_have_text("Ready")
    expect(console.field("Source")).to_have_value(SPEED_TEXT)
    console.open("overview")
    expect(console.page.locator(".log")).to_contain_text("The streamer was started anew")
    expect(console.page.locator(".log")).to_contain_text("The streamer answers again")
    assert DESK["width"] == console.page.evaluate("innerWidth")


def test_a_page_finds_a_daemon_that_comes_back_by_itself(
    console: Console, thread: TopologyThread, topology: Topology
) -> None:
    console.open("overview")
    expect(console.page.locator("#health")).to_have_text("Ready")
    topology.daemon.signal(signal.SIGKILL)
    thread.run(topology.daemon.ended())
    expect(console.page.locator("#banner")).to_contain_text("The streamer does not answer")
    topology.daemon.start()
    thread.run(topology.daemon.until_up())
    expect(console.page.locator("#banner")).to_be_hidden()
    expect(console.page.locator(".log")).to_contain_text("The streamer answers again")
