"""The page: well-formed, complete, loads nothing, escapes what the network named, and renders in a browser."""

import datetime as dt
import json
import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from spark_jobs.report import numbers
from spark_jobs.report.figures import figures
from spark_jobs.report.page import render
from spark_jobs.report.sentences import sentences, verdict
from tests.programs import require
from tests.spark.report_pages import MADE, Page
from tests.spark.report_rows import DAY, collected, empty

HOSTILE = "<script>alert(1)</script>"
HOSTILE_ROUTE = "\"'><img src=x onerror=alert(2)></title></style></svg>&lt;{{ 7*7 }}\x00\u202e"


def fleet(authority: str = "veh1", route: str = "up", **more: Any) -> dict[str, list[dict[str, Any]]]:
    """A day of so many streamers that they are told together."""
    rows = collected(authority, route, **more)
    rows["streamers"] = [row | {"total_rows": 500} for row in rows["streamers"]]
    rows["routes"] = [row | {"streamer": None, "streamers": 499 - n} for n, row in enumerate(rows["routes"])]
    return rows | {"slowest": rows["latency"]}


DAYS = {
    "full": collected(),
    "fleet": fleet(),
    "hostile fleet": fleet(HOSTILE, HOSTILE_ROUTE),
    "huge fleet": fleet("veh" * 200, "way " * 80, routes=500, findings=10_000),
    "hostile": collected(HOSTILE, HOSTILE_ROUTE),
    "empty": empty(),
    "nothing-written": {},
    "huge": collected("veh" * 200, "way " * 80, routes=500, findings=10_000),
}


@pytest.mark.parametrize("day", DAYS)
def test_the_page_is_whole_and_loads_nothing(day: str) -> None:
    given = figures(DAYS[day], DAY, MADE)
    source = render(given)
    page = Page(source)
    page.must_show(given)
    assert len(source.encode()) < 1_000_000
    assert not {tag for tag, _ in page.tags} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "use",
        "image",
    }
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert not attributes.keys() & {"src", "srcset", "action", "xlink:href"}
        assert (attributes.get("href") or "#").startswith("#")
        assert "url(" not in (attributes.get("style") or "")
    assert not re.findall(r"https?:|@import|url\((?!#)", source)
    for drawing in drawings(source):
        tree = ElementTree.fromstring(drawing)
        assert tree.get("aria-hidden") or (tree.findtext("title") and tree.findtext("desc"))


def drawings(source: str) -> list[str]:
    """The outermost svg elements."""
    found, depth, start = [], 0, 0
    for tag in re.finditer(r"<(/?)svg\b", source):
        start = tag.start() if not depth else start
        depth += -1 if tag[1] else 1
        if not depth:
            found.append(source[start : tag.end() + 1])
    return found


@pytest.mark.parametrize(("hostile", "harmless"), [("hostile", "full"), ("hostile fleet", "fleet")])
def test_a_hostile_name_is_text_and_nothing_else(hostile: str, harmless: str) -> None:
    page = Page(render(figures(DAYS[hostile], DAY, MADE)))
    plain = Page(render(figures(DAYS[harmless], DAY, MADE)))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]  # names change no structure
    assert HOSTILE in page.text
    assert "{{ 7*7 }}" in page.text  # and are no template
    assert not re.search("[\x00\u202e]", page.source)


def test_what_is_left_out_is_counted() -> None:
    text = Page(render(figures(DAYS["huge"], DAY, MADE))).text
    for words in (
        "and 480 more routes, with fewer failures",
        "and 9\u202f997 more in the table",
        "494 more routes",
        "and 480 more routes with larger margins",
    ):
        assert words in text


def test_the_five_sentences_name_zeros_and_unknown_figures() -> None:
    full, none, unknown = (sentences(figures(DAYS[day], DAY, MADE)) for day in ("full", "empty", "nothing-written"))
    assert [len(said) for said in (full, none, unknown)] == [5, 5, 5]
    assert full[0].startswith("On Friday, 20 November 2026, 2 streamers (gw and veh1) handled 176 messages, about as usual")
    assert "no message was recorded" in none[0]
    assert none[2].startswith("No message failed")
    assert all("unknown" in sentence or "not written" in sentence for sentence in unknown)


def test_what_was_judged_together_is_named() -> None:
    told = "were judged together"
    rows = collected()
    assert told in Page(render(figures(rows, DAY, MADE))).text
    rows["audit_days"] = [row | {"crowded": 0} for row in rows["audit_days"]]
    assert told not in Page(render(figures(rows, DAY, MADE))).text


def test_a_count_of_one_is_singular_and_a_quiet_day_is_good() -> None:
    rows = collected() | {"anomalies": [], "slo": [], "slo_met": [{"objectives": 0}], "clocks": [], "fan_out": []}
    rows["fan_out_totals"] = [dict.fromkeys(("publishes", "expected", "missing"), 0)]
    rows |= {"silent": [], "silent_totals": empty()["silent_totals"]}
    rows["health_totals"] = [rows["health_totals"][0] | {"records_missing": 0, "files_left_out": 0}]
    rows["audit_days"] = [row | {"messages": 1} for row in rows["audit_days"] if row["status"] in ("delivered", "lost")]
    assert "; 1 message was handed over but never seen again" in sentences(figures(rows, DAY, MADE))[1]
    assert verdict(figures(rows, DAY, MADE)) == ("attention", "1 message lost (39 from veh1 to cloud,other)")
    rows["audit_days"] = [row for row in rows["audit_days"] if row["status"] == "delivered"]
    assert (
        "Of the 1 message created that day, each counted once, 100\u202f% reached" in sentences(figures(rows, DAY, MADE))[1]
    )
    assert verdict(figures(rows, DAY, MADE))[0] == "good"
    rows["audit_days"] += [row | {"status": "unheard", "messages": 3} for row in rows["audit_days"]]
    expected = "25.0\u202f% reached the destination, 75.0\u202f% had none beyond the network"
    assert f"messages created that day, each counted once, {expected}" in sentences(figures(rows, DAY, MADE))[1]
    assert verdict(figures({}, DAY, MADE))[0] == "unknown"


def quiet(earlier: int) -> dict[str, list[dict[str, Any]]]:
    """A day without anomalies, after so many recorded days."""
    rows = collected() | {"anomalies": [], "slo": [], "slo_met": [{"objectives": 0}], "clocks": [], "fan_out": []}
    rows["fan_out_totals"] = [dict.fromkeys(("publishes", "expected", "missing"), 0)]
    rows["health_totals"] = [rows["health_totals"][0] | {"records_missing": 0, "files_left_out": 0}]
    rows["audit_days"] = [row for row in rows["audit_days"] if row["status"] == "delivered"]
    rows |= {"silent": [], "silent_totals": empty()["silent_totals"]}
    rows["days"] = [rows["days"][0] | {"date": DAY - dt.timedelta(days=back)} for back in range(earlier + 1)]
    return rows


@pytest.mark.parametrize(
    ("earlier", "why", "says", "section"),
    [
        (
            0,
            "nothing lost; what is unusual is unknown (0 of 5 nights before)",
            "it takes 5 earlier days to tell",
            "too few earlier days",
        ),
        (
            4,
            "nothing lost; what is unusual is unknown (4 of 5 nights before)",
            "it takes 5 earlier days to tell",
            "too few earlier days",
        ),
        (5, "nothing lost, nothing unusual found", "no hour differed unusually", "No hour differed unusually"),
    ],
)
def test_nothing_is_called_usual_before_there_are_days_to_compare_with(
    earlier: int, why: str, says: str, section: str
) -> None:
    found = figures(quiet(earlier), DAY, MADE)
    assert verdict(found) == ("good", why)
    assert says in sentences(found)[4]
    assert section in Page(render(found)).text


def test_a_day_on_which_anomalies_were_not_searched_for_is_not_called_usual() -> None:
    rows = quiet(14)
    del rows["anomalies"]
    assert verdict(figures(rows, DAY, MADE)) == ("good", "nothing lost; what is unusual is unknown")


LACKED = (
    "450 of 3\u202f000 deliveries of broadcasts missing (300 of 1\u202f000 gateways lack //veh1/18001/8001 at 09:00 UTC)"
)


@pytest.mark.parametrize("table", ["slo", "health"])
def test_a_day_whose_objectives_or_traces_are_unknown_is_not_called_good(table: str) -> None:
    rows = quiet(14)
    del rows[table]
    assert verdict(figures(rows, DAY, MADE)) == ("unknown", "tables are missing")


@pytest.mark.parametrize(
    ("name", "why", "says"),
    [
        ("clocks", "1 clock wrong by a second or more", "; clocks are wrong: veh1 by 60.0\u202fmin ahead of gw"),
        ("health_totals", "2 trace files left out", "; 2 files of veh1 could not be used"),
        ("fan_out_totals", LACKED, "are missing (300 of 1\u202f000 gateways lack"),
    ],
)
def test_a_fault_that_loses_no_message_is_told_at_the_top(name: str, why: str, says: str) -> None:
    rows = quiet(14)
    rows[name] = collected()[name]
    if name == "health_totals":
        rows[name] = [rows[name][0] | {"records_missing": 0}]
    if name == "fan_out_totals":
        rows["fan_out"] = collected()["fan_out"]
    found = figures(rows, DAY, MADE)
    assert verdict(found) == ("attention", why)
    assert says in " ".join(sentences(found))
    assert why in Page(render(found)).text


def test_what_nothing_has_confirmed_is_told_beside_what_arrived() -> None:
    rows = quiet(14)
    rows["audit_days"] += [row | {"status": "unconfirmed"} for row in rows["audit_days"]]
    found = figures(rows, DAY, MADE)
    assert "50.0\u202f% were sent without a confirmation that they arrived" in sentences(found)[1]
    assert "Unconfirmed" in Page(render(found)).text


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (numbers.share(0.999999), "99.99990\u202f%"),
        (numbers.share(1 - 2e-9), "99.99999980\u202f%"),
        (numbers.share(3e-11), "0.0000000030\u202f%"),
        (numbers.share(1), "100\u202f%"),
        (numbers.share(0.5), "50.0\u202f%"),
        (numbers.count(1234567), "1\u202f234\u202f567"),
        (numbers.count(0.04), "<\u202f0.1"),
        (numbers.count(None), "–"),
        (numbers.duration_us(999.6), "1.00\u202fms"),
        (numbers.duration_us(12_345), "12.3\u202fms"),
        (numbers.duration_us(-41_500), "−41.5\u202fms"),
        (numbers.size(999_600), "1.0\u202fMB"),
        (numbers.change(-0.25), "−25\u202f%"),
        (numbers.change(4), "×\u202f5.0"),
        (numbers.plural(0, "gap"), "no gaps"),
        (numbers.listing(["a", "b", "c", "d"]), "a, b, c and 1 more"),
    ],
)
def test_numbers_are_rounded_so_that_no_failure_disappears(shown: str, expected: str) -> None:
    assert shown == expected


_PROBE = """<!DOCTYPE html><body><iframe width="390" height="800" src="report.html"></iframe>
<iframe width="1280" height="800" src="report.html"></iframe><pre id="seen"></pre><script>
const look = frame => {
  const page = frame.contentDocument
  const boxes = name => [...page.querySelectorAll(name)].map(each => each.getBoundingClientRect())
  const solid = name => boxes(name).filter(box => box.width > 0.5 && box.height > 0.3).length
  return [solid("svg.chart rect.bar"),
          page.documentElement.scrollWidth, getComputedStyle(page.body).backgroundColor,
          page.scripts.length, page.images.length]
}
const all = () => [...document.querySelectorAll("iframe")].map(look)
onload = () => document.getElementById("seen").textContent = JSON.stringify(all())
</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    return require("chromium")


def seen(browser: str, folder: Path, scheme: int) -> list[list[Any]]:
    """What the probe finds in the page at two widths; ``scheme`` 0 is dark, 1 is light."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        f"--user-data-dir={folder}/profile",
    ]
    look = [f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom", (folder / "probe.html").as_uri()]
    dom = subprocess.run([browser, *flags, *look], capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom)
    assert found
    answer: list[list[Any]] = json.loads(found[1])
    return answer


@pytest.mark.long
@pytest.mark.chromium
def test_a_browser_draws_it_light_and_dark_on_a_phone_and_on_a_desktop(browser: str, tmp_path: Path) -> None:
    rows = DAYS["hostile"]
    (tmp_path / "report.html").write_text(render(figures(rows, DAY, MADE)), encoding="utf-8")
    (tmp_path / "probe.html").write_text(_PROBE)
    light, dark = seen(browser, tmp_path, 1), seen(browser, tmp_path, 0)
    bars = 3 * 23  # three routes; no hour 13: no bar
    for place, width_px in enumerate((390, 1280)):
        for look in (light, dark):
            assert look[place][0] == bars
            assert look[place][1] <= width_px  # wide tables scroll in their own box, the page does not
            assert look[place][3:] == [0, 0]
        assert light[place][2] != dark[place][2]


_PRINTED = """<!DOCTYPE html><body><iframe width="1046" height="800" src="report.html"></iframe><pre id="seen"></pre><script>
const all = () => {
  const page = document.querySelector("iframe").contentDocument
  const cut = [...page.querySelectorAll("table, svg")].filter(each => each.getBoundingClientRect().right > 1046)
  return [[page.querySelectorAll("table").length], cut.map(each => each.closest("section")?.id)]
}
onload = () => document.getElementById("seen").textContent = JSON.stringify(all())
</script>"""
"""At the width of A4 across, less the margins; with the rules for print on the screen."""


@pytest.mark.long
@pytest.mark.chromium
def test_print_has_every_column(browser: str, tmp_path: Path) -> None:
    rows = collected("gateway.of.vehicle.0001", "to-the-cloud-and-back", routes=30)
    rows["health"] = [rows["health"][0] | {"missing_hours": "3,4,5,13,17", "clock_skew_ms": -3_600_000.0}]
    source = render(figures(rows, DAY, MADE))
    assert "@page { size: A4 landscape; margin: 10mm; }" in source
    assert "@media print" in source
    (tmp_path / "report.html").write_text(source.replace("@media print", "@media all"), encoding="utf-8")
    (tmp_path / "probe.html").write_text(_PRINTED)
    (tables,), cut = seen(browser, tmp_path, 1)
    assert tables > 15
    assert cut == []
