"""The console in Chromium: every action, really done by the daemon."""

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.browser import Console
from tests.console.scene import ROUTE, SPEED_TEXT, TOKEN, asked, publishes, rows
from tests.e2e.topology import Topology, TopologyThread
from tests.independent.message import id_text
from tests.waiting import until

pytestmark = [pytest.mark.chromium, pytest.mark.console]


def test_without_a_token_it_is_asked_for_and_nothing_changes(console: Console, topology: Topology) -> None:
    console.open("pause")
    console.field("Topic or source").fill(SPEED_TEXT)
    console.button("Pause").click()
    dialog = console.page.get_by_role("dialog", name="Token")
    expect(dialog).to_contain_text("Authorization: Bearer")
    dialog.get_by_role("button", name="Cancel").click()
    expect(console.page.get_by_role("alert").filter(has_text="Nothing was changed")).to_be_visible()
    expect(console.field("Topic or source")).to_have_value(SPEED_TEXT)
    console.button("Pause").click()
    console.give("a-wrong-token-of-some-length")
    expect(console.page.get_by_role("alert").filter(has_text="expected")).to_be_visible()
    assert asked(topology, "/paused") == {"paused": []}
    assert "denied" in topology.daemon.log


def test_a_pause_holds_messages_and_a_resume_frees_them(
    console: Console, topology: Topology, send: Any, arrives: Any
) -> None:
    console.open("pause")
    expect(console.page.locator("main")).to_contain_text("Nothing is paused")
    console.field("Topic or source").fill(SPEED_TEXT)
    console.button("Pause").click()
    console.give(TOKEN)
    console.said(f"Paused {SPEED_TEXT}")
    assert [rule["topic"] for rule in asked(topology, "/paused")["paused"]] == [SPEED_TEXT]
    messages = publishes(1, 2, 3)
    send(messages)
    console.open("flows")
    row = rows(console.page).filter(has_text=SPEED_TEXT)
    expect(row).to_contain_text("paused")
    expect(row.locator("td[data-head=Waiting]")).to_have_text("3")
    row.get_by_role("link", name="pause").click()
    expect(console.field("Topic or source")).to_have_value(SPEED_TEXT)
    console.button(f"Resume {SPEED_TEXT}").click()
    console.said(f"Resumed {SPEED_TEXT}")
    expect(console.page.locator("main")).to_contain_text("Nothing is paused")
    arrives(messages)


def test_a_dead_letter_appears_is_shown_and_arrives_once_it_is_redriven(
    console: Console, topology: Topology, send: Any, arrives: Any
) -> None:
    console.pause(SPEED_TEXT, TOKEN)
    console.open("dead-letters")
    expect(console.page.locator("main")).to_contain_text("There is no dead letter like that")
    messages = publishes(41, ttl=200)
    send(messages)
    console.button("Show 1 new dead letter").click()
    row = rows(console.page)
    expect(row).to_have_count(1)
    expect(row).to_contain_text("deadline exceeded")
    console.open("pause")
    console.button(f"Resume {SPEED_TEXT}").click()
    console.said("Resumed")

    console.open("dead-letters?reason=DEADLINE_EXCEEDED")
    console.button(f"Show {id_text(messages[0].id)}").click()
    dialog = console.page.get_by_role("dialog", name="Dead letter")
    dialog.get_by_role("button", name="Show its content").click()
    expect(dialog.get_by_role("region", name="Payload")).to_contain_text('{"speed": 41}')
    dialog.get_by_role("button", name="Close").click()

    row.get_by_role("checkbox").check()
    console.button("Redrive selected (1)").click()
    dialog = console.page.get_by_role("dialog", name="Redrive")
    dialog.get_by_role("button", name="Redrive").click()
    expect(console.page.locator(".note")).to_contain_text("1 not:")  # its TTL has passed
    console.button("Redrive all 1").click()
    dialog.get_by_label("TTL", exact=True).select_option("new")
    dialog.get_by_role("button", name="Redrive").click()
    console.said("1 dead letter redriven")
    arrives(messages)
    expect(console.page.locator("main")).to_contain_text("There is no dead letter like that")
    assert "payload_shown" in topology.daemon.log
    assert "redriven" in topology.daemon.log


def test_a_purge_deletes_what_was_chosen_and_asks_before(
    console: Console, thread: TopologyThread, topology: Topology, send: Any
) -> None:
    console.pause(SPEED_TEXT, TOKEN)
    send(publishes(1, 2, 3, ttl=100))
    thread.run(until(lambda: asked(topology, "/dead-letters")["total"] == 3, what="three dead letters"))
    console.open("pause")
    console.button(f"Resume {SPEED_TEXT}").click()
    console.said("Resumed")

    console.open("dead-letters?order=newest")
    newest = asked(topology, "/dead-letters?order=newest")["dead_letters"][0]["id"]
    expect(rows(console.page).first.get_by_role("checkbox", name=f"Select {newest}")).to_be_visible()
    rows(console.page).first.get_by_role("checkbox").check()
    console.button("Purge selected (1)").click()
    dialog = console.page.get_by_role("dialog", name="Purge")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    console.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(console.button("Purge selected (1)")).to_be_focused()
    assert asked(topology, "/dead-letters")["total"] == 3
    console.button("Purge selected (1)").click()
    dialog.get_by_role("button", name="Delete for good").click()
    console.said("1 dead letter deleted")
    expect(rows(console.page)).to_have_count(2)
    console.button("Purge all 2").click()
    dialog.get_by_role("button", name="Delete for good").click()
    console.said("2 dead letters deleted")
    assert asked(topology, "/dead-letters")["total"] == 0


def test_a_reload_of_a_wrong_file_shows_its_problems(console: Console, topology: Topology) -> None:
    good = topology.daemon.config
    console.open("configuration")
    topology.daemon.write(good | {"routes": [{"from": "first", "to": "secnd"}]})
    console.button("Read the file again").click()
    console.give(TOKEN)
    expect(console.page.get_by_role("alert").filter(has_text="secnd")).to_be_visible()
    topology.daemon.write(good)
    console.button("Read the file again").click()
    console.said("It says the same")


def test_what_a_file_would_change_is_shown_before_it_is_used(console: Console, topology: Topology, send: Any) -> None:
    good = topology.daemon.config
    send(publishes(88))
    rules: list[dict[str, Any]] = [{"deny": {"types": ["publish"]}}, {"allow": {}}]
    sections = {name: {"rules": rules} for name in good["endpoints"]}
    topology.daemon.write(good | {"permissions": {"endpoints": sections}})
    console.open("configuration")
    console.button("Read the file again").click()
    console.give(TOKEN)
    dialog = console.page.get_by_role("dialog").filter(has_text="What the file would change")
    expect(dialog).to_contain_text("would be denied")
    expect(dialog).to_contain_text(SPEED_TEXT)
    expect(dialog).to_contain_text("permissions: endpoints")
    assert console.overflow() == 0
    dialog.get_by_role("button", name="Cancel").click()
    assert asked(topology, "/config")["config"]["permissions"] is None
    console.button("Read the file again").click()
    dialog.get_by_role("button", name="Use it").click()
    expect(dialog).to_be_hidden()
    assert asked(topology, "/config")["config"]["permissions"] is not None
    topology.daemon.write(good)
    console.button("Read the file again").click()
    expect(dialog).to_contain_text("would now be allowed")
    dialog.get_by_role("button", name="Use it").click()
    expect(dialog).to_be_hidden()
    assert asked(topology, "/config")["config"]["permissions"] is None


def test_a_tap_shows_a_message_with_its_payload_and_can_be_held(console: Console, topology: Topology, send: Any) -> None:
    console.open(f"tap?route={ROUTE}&payload=json")
    expect(console.field("Route")).to_have_value(ROUTE)
    console.button("Start").click()
    console.give(TOKEN)
    expect(console.page.locator("main")).to_contain_text("Listening.")
    send(publishes(88))
    row = rows(console.page)
    expect(row).to_have_count(1)
    expect(row).to_contain_text('"speed": 88')
    expect(row).to_contain_text(SPEED_TEXT)
    console.button("Pause").click()
    send(publishes(89))
    expect(console.page.locator("main")).to_contain_text("Paused; 1 message to come")
    expect(row).to_have_count(1)
    console.button("Continue").click()
    expect(row).to_have_count(2)
    expect(row.first).to_contain_text('"speed": 89')
    assert console.violations() == []
    console.button("Stop").click()
    expect(console.button("Start")).to_be_visible()


def test_the_token_can_be_kept_in_the_tab_and_forgotten(console: Console) -> None:
    console.open("overview")
    console.page.get_by_role("button", name="Token…").click()
    console.page.get_by_label("Keep the token when").check()
    console.give(TOKEN)
    console.page.reload()
    expect(console.page.locator("#token")).to_have_text("Token: set")
    assert console.page.evaluate("JSON.stringify(localStorage)") == "{}"
    assert console.page.evaluate("document.cookie") == ""
    console.page.locator("#token").click()
    console.page.get_by_role("button", name="Forget").click()
    expect(console.page.locator("#token")).to_have_text("Token…")
    assert console.page.evaluate("JSON.stringify(sessionStorage)") == "{}"
