"""The rules of Prometheus and the dashboard of Grafana use what a streamer exports, and the rules do what they are for."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from streamer.daemon import Daemon
from streamer.delivery.outcomes.settle import NO_ROUTE
from streamer.features.api.metrics import Exposition
from streamer.features.budget.config import BudgetConfig
from streamer.features.budget.feature import BudgetFeature
from streamer.features.budget.period import Period
from streamer.features.budget.service import BudgetUse
from streamer.features.every import FILE
from streamer.features.otel.config import OtelConfig
from streamer.features.otel.push import Push
from streamer.features.pair.feature import PairFeature
from streamer.features.pair.page import families
from streamer.routing.outcome import Outcome
from streamer.transports.base import ByteCounts, Report, TransportContext
from streamer.transports.certificates import CertificateFile, CertificateRole
from streamer.transports.errors import Malformed
from streamer.transports.link_error import LinkFailure
from streamer.transports.memory import MemoryTransport
from streamer.transports.zenoh.options import ZenohOptions
from streamer.transports.zenoh.transport import ZenohTransport
from tests.alert_rules import RULES, alerts, rules
from tests.hosted import one_of
from tests.pages import DOCS, ROOT, named, rows
from tests.programs import require
from tests.unit.features.api.scrape import Scrape, played
from tests.unit.features.pair.found import pair_of

RULE_TESTS = ROOT / "deploy/prometheus/ustreamer-rules.test.yaml"
DASHBOARD = ROOT / "deploy/grafana/ustreamer.json"

OF_TARGETS = {"job", "instance"}
"""The labels that Prometheus gives to all samples of a target."""

VALUES = {
    "figure": set(ZenohTransport(TransportContext("vehicle", "gateway"), ZenohOptions()).report().figures),
    "outcome": {outcome.value for outcome in Outcome},
    "reason": {reason.value for reason in Malformed},
    "result": {"ok", "failed"},
    "route": {NO_ROUTE, "core/.*", "dead-letter/.*", "rpc-error/.*"},
}
"""What a label with such a name may be compared with."""

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)?\s*\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_NAME = re.compile(r"(?<![\w$:.])[a-zA-Z_:][\w:]*(?!\s*\()(?![\w:])")
_WORDS = {"and", "or", "unless", "offset", "bool", "by", "without", "on", "ignoring", "inf"}


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> Iterator[str]:
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard()["templating"]["list"]:
        if match := re.match(r"label_values\((.*), \w+\)", variable.get("definition", "")):
            yield match[1]


def names_in(expression: str) -> set[str]:
    """The metrics of an expression."""
    bare = _GROUPING.sub(" ", _SELECTOR.sub(r"\1 ", expression))
    bare = re.sub(r"\[[^\]]*\]", " ", _TEXT.sub(" ", bare))
    return set(_NAME.findall(bare)) - _WORDS


def labels_in(expression: str) -> set[str]:
    """The labels by which an expression groups or matches series."""
    return {name for part in _GROUPING.findall(expression) for name in re.findall(r"\w+", part)}


@pytest.fixture
async def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Every sample that a streamer exports, with its labels: of a router after some of everything, and of a daemon that has
    everything switched on."""
    found: dict[str, set[str]] = {}
    harness = await played()
    harness.router.ingresses["vehicle"].stats.malformed["marker"] = 3
    harness.router.ingresses["vehicle"].stats.unwanted["copy"] = 1
    harness.router.transports["vehicle"].link_failed(LinkFailure.REFUSED, "connection refused")
    report = Report((), ("b:1883",), ("b:1883",), wire_bytes=ByteCounts(1, 1))
    monkeypatch.setattr(MemoryTransport, "report", lambda transport: report)
    account = next(account for account in harness.router.accounts() if account.has_moved)
    account.stats.limited = account.stats.retries = account.stats.sent_wire_bytes = 1
    harness.router.notices.suppressed["vehicle"] = 1
    for name, labels in Scrape(harness).samples:
        found.setdefault(name, set()).update(dict(labels))
    raw = yaml.safe_load((ROOT / "config/minimal.yaml").read_text())
    raw |= {"journal": {"path": str(tmp_path / "journal.db")}, "trace": {"path": str(tmp_path / "traces")}}
    (tmp_path / "pair.key").write_text("k" * 32)
    raw["pair"] = {"listen": "127.0.0.1:0", "key_file": str(tmp_path / "pair.key")}
    daemon = Daemon(FILE.model_validate(raw))
    use = BudgetUse(BudgetConfig(bytes=1), Period(0, 1), 1, False, 1)
    one_of(daemon.features, BudgetFeature).uses = {"cloud": use}
    told = list(families(pair_of(daemon.features)))
    pair_of(daemon.features)._is_standby = False  # as of one that is active
    others = [feature.families for feature in daemon.features if not isinstance(feature, PairFeature)]
    push = Push(OtelConfig(endpoint="http://localhost"), "gw", daemon.exposition.families, None, 0)
    expiry = daemon._admin._expiry
    exposition = Exposition(daemon.router, [lambda: told, *others, push.families, expiry.families])
    expiry.until_s["cloud", CertificateFile(CertificateRole.CLIENT, Path("/client.pem"))] = 1.0
    for family in text_string_to_metric_families(exposition.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def check_expression(expression: str, exported: dict[str, set[str]], recorded: set[str]) -> None:
    known = exported.keys() | recorded | {"up"}
    names = names_in(expression)
    assert names, expression
    assert names <= known, expression
    labels = {label for name in names for label in exported.get(name, set())} | OF_TARGETS
    if names & recorded == set():
        assert labels_in(expression) <= labels | {"le"}, expression
    for name, selectors in _SELECTOR.findall(expression):
        for label, _, value in _MATCHER.findall(selectors):
            assert label in exported[name] | OF_TARGETS, f"{name}: {label}"
            if not value.startswith("$"):
                assert {value} <= VALUES[label] or set(value.split("|")) <= VALUES[label], f"{label}: {value}"


def test_metrics_are_found_in_expressions() -> None:
    expression = 'sum by (le) (rate(a_total{x="y z", k=~"a|b"}[5m])) / on (job) (b:c or d * 0) unless e offset 15m > 0.1'
    assert names_in(expression) == {"a_total", "b:c", "d", "e"}
    assert labels_in(expression) == {"le", "job"}


async def test_rules_use_what_is_exported(exported: dict[str, set[str]]) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        check_expression(rule["expr"], exported, recorded)


async def test_the_dashboard_uses_what_is_exported(exported: dict[str, set[str]]) -> None:
    for expression in dashboard_expressions():
        check_expression(expression, exported, set())


async def test_the_dashboard_shows_everything_that_is_exported(exported: dict[str, set[str]]) -> None:
    shown = {name for expression in dashboard_expressions() for name in names_in(expression)}
    ours = {name for name in exported if name.startswith("ustreamer_") and not name.endswith(("_sum", "_count"))}
    assert ours - shown == set()


async def test_what_alerts_say_has_labels_that_are_there(exported: dict[str, set[str]]) -> None:
    """Those of books have the labels of what was recorded."""
    for name, rule in alerts().items():
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        there = {label for metric in names_in(rule["expr"]) for label in exported.get(metric, set())} | OF_TARGETS
        assert "ustreamer:" in rule["expr"] or used <= there, name
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}, name


@pytest.mark.promtool
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_rules_do_what_they_are_for() -> None:
    for command, file in (("check", RULES), ("test", RULE_TESTS)):
        ended = subprocess.run([require("promtool"), command, "rules", file], capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_alert_is_shown_to_fire_and_not_to_fire() -> None:
    cases = [case for test in yaml.safe_load(RULE_TESTS.read_text())["tests"] for case in test.get("alert_rule_test", ())]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts().keys()
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts().keys()


def test_every_alert_has_its_place_in_the_runbook() -> None:
    listed = {row[0].strip("`"): row[1:] for row in rows(DOCS / "monitoring.md", "## Alerts")}
    assert list(listed) == list(alerts())
    assert {name: row[0] for name, row in listed.items()} == {
        name: rule["labels"]["severity"] for name, rule in alerts().items()
    }
    assert all(meaning and act for _, meaning, act in listed.values())


@pytest.mark.promtool
def test_every_expression_of_the_dashboard_can_be_read(tmp_path: Path) -> None:
    replaced = (re.sub(r"\$__\w+", "5m", expression) for expression in dashboard_expressions())
    file = tmp_path / "expressions.yaml"
    recorded = [{"record": f"r{number}", "expr": expression} for number, expression in enumerate(replaced)]
    file.write_text(yaml.safe_dump({"groups": [{"name": named(DASHBOARD), "rules": recorded}]}))
    ended = subprocess.run([require("promtool"), "check", "rules", file], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_panel_has_a_title_a_unit_and_a_place_of_its_own() -> None:
    everything = dashboard()["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    taken: dict[tuple[int, int], str] = {}
    for panel in everything:
        assert panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    for panel in panels():
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert all(target["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for target in panel["targets"])
    assert len({panel["title"] for panel in panels()}) == len(panels())


def test_every_variable_of_the_dashboard_is_there_and_used() -> None:
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    assert variables == set(re.findall(r"\$\{?(?!_)(\w+)", DASHBOARD.read_text()))
