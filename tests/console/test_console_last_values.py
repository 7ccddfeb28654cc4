"""The console in Chromium: the last message of each topic, for those with the token only."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from streamer.uprotocol.message import Options, UPayloadFormat, publish
from streamer.uprotocol.protobuf import message_to_proto
from streamer.uprotocol.uri import UUri
from tests.console.browser import PHONE, Console, unharmed
from tests.console.daemon import memory_daemon
from tests.console.scene import SPEED_TEXT, TOKEN, publishes, rows
from tests.e2e.topology import Topology
from tests.hosted import StateOn
from tests.independent.message import Plain
from tests.process import StreamerProcess
from tests.unit.tools.letters import HOUR_MS, NOW_MS

pytestmark = [pytest.mark.chromium, pytest.mark.console]

DOORS = ("alpha", 0x10, 1, 0x8002)
DOORS_TEXT = "//alpha/10/1/8002"
TOPICS = 20_000
HOSTILE = '<img src=x onerror=pwned=1></pre><script>pwned=1</script>"&lt;\u202eevil\u0007'


def cell(console: Console, topic: str, head: str) -> Any:
    return rows(console.page).filter(has_text=topic).locator(f"td[data-head={head}]")


def show(console: Console) -> None:
    """Show the last values, as nobody who has given the token yet."""
    console.open("last-values")
    console.button("Show").click()
    console.give(TOKEN)
    expect(rows(console.page).first).to_be_visible()


# who sees what


@pytest.fixture
def known(send: Any, arrives: Any) -> list[Plain]:
    messages = [*publishes(41, 42), Plain(1, DOORS, payload=b"open", payload_format=6, ttl=3_600_000)]
    send(messages)
    arrives(messages)
    return messages


def test_nothing_is_shown_without_the_token_and_nobody_is_asked_before_a_click(
    console: Console, topology: Topology, known: list[Plain]
) -> None:
    console.open("last-values")
    expect(console.page.locator("main")).to_contain_text("Press Show")
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    console.button("Show").click()
    console.page.get_by_role("dialog", name="Token").get_by_role("button", name="Cancel").click()
    expect(console.page.get_by_role("alert").filter(has_text="this needs the token")).to_be_visible()
    expect(rows(console.page)).to_have_count(0)
    console.open("overview")
    console.open("last-values")
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    expect(console.page.locator("main")).not_to_contain_text("//alpha")


def test_the_last_values_have_their_age_and_payloads_only_on_demand(
    console: Console, topology: Topology, known: list[Plain]
) -> None:
    show(console)
    expect(rows(console.page)).to_have_count(2)
    expect(cell(console, SPEED_TEXT, "Age")).to_contain_text("ago")
    expect(cell(console, SPEED_TEXT, "Size")).to_have_text("13 B")
    expect(cell(console, DOORS_TEXT, "TTL")).to_have_text("1 h")
    expect(console.page.locator("main")).not_to_contain_text("42")
    expect(console.page.locator("main pre")).to_have_count(0)
    console.field("Payload").select_option("text")
    console.button("Show").click()
    expect(cell(console, SPEED_TEXT, "Payload")).to_contain_text('{"speed": 42}')
    expect(cell(console, DOORS_TEXT, "Payload")).to_contain_text("open")
    assert console.page.url.endswith("#last-values?payload=text")
    looks = [line for line in topology.daemon.log.splitlines() if "last_values_shown" in line]
    assert "payload=length" in looks[-2]
    assert "payload=text" in looks[-1]


def test_a_filter_is_a_pattern_and_what_is_none_says_so(console: Console, known: list[Plain]) -> None:
    show(console)
    console.field("Topic").fill("//alpha/FFFFFFFF/FF/8002")
    console.button("Show").click()
    expect(rows(console.page)).to_have_count(1)
    expect(rows(console.page)).to_contain_text(DOORS_TEXT)
    console.open("overview")
    console.open("last-values?topic=//alpha/10/1/8001&payload=json")  # with the token at hand, it needs no click
    expect(rows(console.page)).to_have_count(1)
    expect(cell(console, SPEED_TEXT, "Payload")).to_contain_text('"speed": 42')
    console.field("Topic").fill("//alpha/10/1/9999")
    console.button("Show").click()
    expect(console.page.locator("main")).to_contain_text("No topic like that is known")
    console.field("Topic").fill("nonsense")
    console.button("Show").click()
    expect(console.page.get_by_role("alert").filter(has_text="nonsense")).to_be_visible()
    console.button("Clear").click()
    expect(rows(console.page)).to_have_count(2)


def test_a_newer_value_is_there_after_another_click(console: Console, send: Any, arrives: Any, known: list[Plain]) -> None:
    show(console)
    console.field("Payload").select_option("text")
    console.button("Show").click()
    expect(cell(console, SPEED_TEXT, "Payload")).to_contain_text("42")
    newer = publishes(43)
    send(newer)
    arrives(newer)
    console.button("Show").click()
    expect(cell(console, SPEED_TEXT, "Payload")).to_contain_text("43")


def test_the_keyboard_is_enough(console: Console, known: list[Plain]) -> None:
    page = console.page
    console.open("last-values")
    console.field("Topic").focus()
    page.keyboard.type(SPEED_TEXT)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Token").get_by_label("Token", exact=True)).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(rows(page)).to_have_count(1)
    expect(console.field("Topic")).to_be_focused()
    page.keyboard.press("Tab")
    expect(console.field("Payload")).to_be_focused()
    page.keyboard.type("as text")
    page.keyboard.press("Tab")
    expect(console.button("Show")).to_be_focused()
    page.keyboard.press("Enter")
    payload = page.get_by_role("group", name="Payload")
    expect(payload).to_contain_text("42")
    for _ in ("Clear", "payload"):
        page.keyboard.press("Tab")
    expect(payload).to_be_focused()


# much of it, and what wants to be more


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamerProcess]:
    """A daemon that knows many topics from before its start, and one from when the clock was three hours ahead."""
    folder = tmp_path_factory.mktemp("last-values")
    text = Options(payload_format=UPayloadFormat.TEXT)
    payloads = {3: b"x" * 5000, 4: HOSTILE.encode()}
    statements = []
    for number in range(TOPICS):
        topic = UUri("veh1", 1 + number // 1000, 1, 0x8000 + number % 1000)
        packed = message_to_proto(publish(NOW_MS, topic, payloads.get(number, b"on"), text)).SerializeToString()
        at_ms = NOW_MS + 3 * HOUR_MS if number == 5 else NOW_MS - HOUR_MS
        statements.append(
            ("INSERT INTO utwin_messages (topic, message, at_ms) VALUES (?, ?, ?)", (str(topic), packed, at_ms))
        )
    state = StateOn(folder / "journal.db")
    state.open()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, state.write(statements)).result()
    state.close()
    with memory_daemon(folder, journal={"path": str(folder / "journal.db")}, utwin={"max_topics": TOPICS}) as daemon:
        yield daemon


@pytest.fixture
def full(browser: Browser, many: StreamerProcess) -> Iterator[Console]:
    with unharmed(browser, many.admin) as console:
        yield console


def test_twenty_thousand_topics_are_paged_in_their_order(full: Console) -> None:
    show(full)
    total, pages = full.page.locator(".total"), full.page.locator(".pages .hint")
    expect(total).to_have_text("20,000 topics")
    expect(rows(full.page)).to_have_count(100)
    expect(rows(full.page).first).to_contain_text("//veh1/1/1/8000")
    full.button("Next").click()
    expect(pages).to_have_text("page 2 of 200")
    expect(full.button("Next")).to_be_focused()
    expect(rows(full.page).first).to_contain_text("//veh1/1/1/8064")
    full.button("Back").click()
    expect(pages).to_have_text("page 1 of 200")
    full.field("Topic").fill("//veh1/7/1/FFFF")
    full.button("Show").click()
    expect(total).to_have_text("1,000 topics")


def test_a_message_that_was_dated_later_than_now_counts_from_the_start(full: Console) -> None:
    """What a file says of its arrival is wrong: the clock was set back since."""
    show(full)
    expect(cell(full, "//veh1/1/1/8005", "Age")).to_contain_text("ago")
    expect(cell(full, "//veh1/1/1/8005", "Age")).not_to_contain_text(re.compile(r"ahead|\d h"))
    expect(cell(full, "//veh1/1/1/8006", "Age")).to_contain_text("1 h")
    expect(cell(full, "//veh1/1/1/8006", "Age")).to_contain_text("ago")


@pytest.mark.parametrize(("form", "scheme"), [("text", "light"), ("hex", "dark")])
def test_payloads_are_text_accessible_and_no_wider_than_a_phone(full: Console, form: str, scheme: Any) -> None:
    full.page.emulate_media(color_scheme=scheme)
    show(full)
    full.field("Payload").select_option(form)
    full.button("Show").click()
    payload = cell(full, "//veh1/1/1/8004", "Payload")
    expect(payload.locator("pre")).to_contain_text(HOSTILE.encode().hex(" ")[:40] if form == "hex" else "<img src=x")
    if form != "hex":
        expect(payload.get_by_text("U+202E", exact=True)).to_be_visible()
        expect(payload.get_by_text("U+0007", exact=True)).to_be_visible()
    expect(cell(full, "//veh1/1/1/8003", "Payload")).to_contain_text("2.9 KiB more")
    assert full.violations() == []
    full.page.set_viewport_size(PHONE)
    assert full.overflow() == 0
    assert full.violations() == []


# off, and nothing yet


@pytest.fixture
def beside(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Console]:
    """A console of a daemon through which nothing has gone; the parameter is its key `utwin`."""
    with memory_daemon(tmp_path, utwin=request.param) as daemon:
        console = Console(browser, f"http://127.0.0.1:{daemon.admin}")
        yield console
        console.close()


@pytest.mark.parametrize("beside", [None], indirect=True)
def test_where_utwin_is_off_it_says_what_turns_it_on_with_the_token_and_without(beside: Console) -> None:
    beside.open("last-values")
    expect(beside.page.locator(".empty")).to_contain_text("uTwin is off")
    expect(beside.page.locator(".empty")).to_contain_text("utwin: {}")
    beside.button("Show").click()
    beside.give(TOKEN)
    expect(beside.page.locator(".total")).to_have_text("0 topics")
    expect(beside.page.locator(".empty")).to_contain_text("uTwin is off")


@pytest.mark.parametrize("beside", [{}], indirect=True)
def test_where_nothing_has_come_yet_it_says_so(beside: Console) -> None:
    beside.open("last-values")
    beside.button("Show").click()
    beside.give(TOKEN)
    expect(beside.page.locator(".empty")).to_contain_text("Nothing is known yet")
