"""The console in Chromium: the findings of the live audit."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.console.browser import chromium, unharmed
from tests.console.daemon import memory_daemon
from tests.console.scene import rows

pytestmark = [pytest.mark.chromium, pytest.mark.console]

HOSTILE = "<img src=x onerror=pwned=1>\u202eevil"
FINDING = {"minute": "2026-11-28T10:00:00Z", "verdict": "lost", "messages": 1, "streamer": "gw-a", "id": "0193-1", "was": ""}
ANSWER = {"compares": True, "streamers": 2, "open_minutes": 3, "messages": {"equal": 40, "lost": 1}}


def test_a_loss_is_shown_with_its_id_and_without_a_live_audit_the_section_says_so(tmp_path: Path) -> None:
    def lost(route: Route) -> None:
        route.fulfill(
            body=json.dumps(ANSWER | {"findings": [FINDING | {"class": HOSTILE}]}), content_type="application/json"
        )

    with chromium() as browser, memory_daemon(tmp_path) as daemon, unharmed(browser, daemon.admin) as console:
        console.open("live-audit")
        expect(console.page.locator("main")).to_contain_text("compares nothing: set live_audit")
        console.page.route("**/api/v1/live-audit", lost)
        console.open("overview")
        console.open("live-audit")
        expect(rows(console.page)).to_have_count(1)
        for head, text in {
            "Minute": "2026-11-28 10:00:00 UTC",
            "Verdict": "lost",
            "Streamer": "gw-a",
            "Id": "0193-1",
        }.items():
            expect(rows(console.page).locator(f"[data-head={head}]")).to_have_text(text)
