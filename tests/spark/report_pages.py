"""Pages of the report as a browser reads them, of figures that are made up."""

import datetime as dt
import re
from html.parser import HTMLParser
from typing import Any

from spark_jobs.report import numbers
from spark_jobs.report.figures import SECTIONS
from spark_jobs.report.page import shown as shown_sections

MADE = dt.datetime(2026, 11, 21, 2, 30, tzinfo=dt.UTC)


VOID = {"meta", "br", "img", "link", "input", "hr", "base", "col"}


PLACES = {
    "fan_out": "fan-out",  # sections of the figures that share one of the page, or have another name there
    "dead_letters": "dead-letters",
    "ttl_margin": "ttl",
}


class Page(HTMLParser):
    """A page as a strict reader sees it: AssertionError for a tag that is not closed, or closed in the wrong place."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.values: dict[str | None, set[float]] = {None: set()}
        """The values of all ``data`` elements, by the id of their section."""
        self._open: list[str] = []
        self._section: str | None = None
        self.feed(source)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert len(given) == len(attrs), f"an attribute of {tag} is there twice"
        self.tags.append((tag, given))
        if tag == "section":
            self._section = given["id"]
            self.values[self._section] = set()
        if tag == "data":
            self.values[self._section].add(float(given["value"] or "nan"))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag
        if tag == "section":
            self._section = None

    def handle_data(self, data: str) -> None:
        self.text += data

    def must_show(self, given: dict[str, Any]) -> None:
        """Every number of every section is a ``data`` element in that section of the page; every text is in it too."""
        there = shown_sections(given)
        assert set(there) == {name for name in self.values if name is not None}
        for name in SECTIONS:
            if PLACES.get(name, name) not in there:
                continue
            shown = self.values.get(PLACES.get(name, name), set()) or {0}  # a section without a number says so in words
            assert not {value for value in leaves(given[name], (int, float)) if value not in shown}, name
            assert not {text for text in leaves(given[name], (str,)) if not self._has(text)}, name
        assert leaves(given["key"], (int, float)) <= self.values[None]

    def _has(self, text: str) -> bool:
        """As it is, as a part of a time, or with its words put apart as on the page."""
        clock = re.fullmatch(r"\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d).*Z", text)
        forms = {numbers.clean(text), text.replace("_", "-"), text.replace("_", " "), clock[1] if clock else text}
        words = {
            "p99_latency_ms": "latency (p99)",
            "latency_p99_us": "latency (p99)",
            "failed_share": "share of failed messages",
        }
        return words.get(text, "\0") in self.text.lower() or any(f.lower() in self.text.lower() for f in forms)


def leaves(value: Any, kinds: tuple[type, ...]) -> set[Any]:
    """All numbers or all texts in a tree; truth values are neither."""
    if isinstance(value, dict):  # nothing is said about nothing that was left out
        value = [each for name, each in value.items() if each or not name.startswith("more")]
    if isinstance(value, list):
        return {leaf for each in value for leaf in leaves(each, kinds)}
    return {value} if isinstance(value, kinds) and not isinstance(value, bool) else set()
