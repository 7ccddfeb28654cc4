"""Real Chromium in front of a real daemon: what the tests of the console share. No tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Dialog, Locator, Page, ViewportSize, expect, sync_playwright

from tests.programs import require

DESK: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 360, "height": 740}
SECTIONS = (
    "overview",
    "endpoints",
    "routes",
    "flows",
    "dead-letters",
    "pause",
    "explain",
    "subscriptions",
    "last-values",
    "configuration",
    "live-audit",
    "tap",
)
EXPECTED_ERRORS = ("Failed to load resource: the server responded with a status of", "Failed to load resource: net::ERR_")
"""What the browser itself writes about answers such as 401, and about a daemon that is away."""

_WATCH = """
addEventListener("securitypolicyviolation", event => {
    (window.violations ??= []).push(event.violatedDirective + " " + event.blockedURI)
})
"""

expect.set_options(timeout=15_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of the distribution, without a window."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=flags)
        try:
            yield browser
        finally:
            browser.close()


class Console:
    """The console in a page of its own. What goes wrong in the page is collected in ``wrong``."""

    def __init__(self, browser: Browser, base: str, **options: Any) -> None:
        self.base = base
        self.wrong: list[str] = []
        self.context: BrowserContext = browser.new_context(**({"viewport": DESK} | options))
        self.context.add_init_script(_WATCH)
        self.page: Page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.wrong.append(f"{error} {error.stack}"))
        self.page.on("dialog", self._surprised)
        self.page.on(
            "console",
            lambda line: (
                self.wrong.append(line.text)
                if line.type in ("error", "warning") and not line.text.startswith(EXPECTED_ERRORS)
                else None
            ),
        )

    def _surprised(self, dialog: Dialog) -> None:
        self.wrong.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    def close(self) -> None:
        """Nothing may have gone wrong."""
        self.wrong += self.page.evaluate("window.violations ?? []")
        self.context.close()
        assert self.wrong == []

    def open(self, section: str) -> None:
        """Go to a section, and wait until it shows what it asked for."""
        where = f"{self.base}/console/#{section}"
        if self.page.url.startswith(f"{self.base}/console/"):
            self.page.evaluate("hash => { location.hash = hash }", f"#{section}")
        else:
            self.page.goto(where)
        name = section.partition("?")[0]
        expect(self.page.locator(f".section.{name}[aria-busy=false]")).to_be_visible()

    def button(self, name: str, within: str = "main") -> Locator:
        return self.page.locator(within).get_by_role("button", name=name)

    def field(self, label: str, within: str = "main") -> Locator:
        return self.page.locator(within).get_by_label(label, exact=True)

    def give(self, token: str) -> None:
        """Answer the question for the token."""
        dialog = self.page.get_by_role("dialog", name="Token")
        dialog.get_by_label("Token", exact=True).fill(token)
        dialog.get_by_role("button", name="Use").click()

    def pause(self, topic: str, token: str) -> None:
        """Pause a topic, as nobody who has given a token yet."""
        self.open("pause")
        self.field("Topic or source").fill(topic)
        self.button("Pause").click()
        self.give(token)
        self.said("Paused")

    def said(self, text: str) -> None:
        """The page says that something has been done."""
        expect(self.page.locator("#status")).to_contain_text(text)

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return width

    def violations(self) -> list[str]:
        """What axe-core finds: contrast, labels, roles, order."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        found = self.page.evaluate("axe.run({ resultTypes: ['violations'] }).then(results => results.violations)")
        return [f"{each['id']}: {node['html']} {node['failureSummary']}" for each in found for node in each["nodes"]]


@contextmanager
def unharmed(browser: Browser, port: int) -> Iterator[Console]:
    """The console of a daemon whose data are hostile: in the end nothing of them has run, or has become an element."""
    console = Console(browser, f"http://127.0.0.1:{port}")
    yield console
    assert console.page.evaluate("window.pwned") is None
    assert console.page.locator("main script, main img").count() == 0
    console.close()
