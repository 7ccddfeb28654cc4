"""The alerts on the nightly jobs use the metrics that a run writes, and do what they are for."""

import re
import subprocess
from typing import Any

import pytest
import yaml

from spark_jobs.run_metrics import LEVELS, Run, text
from tests.pages import DOCS, ROOT, rows
from tests.programs import require

RULES = ROOT / "deploy/prometheus/ustreamer-nightly-rules.yaml"
RULE_TESTS = ROOT / "deploy/prometheus/ustreamer-nightly-rules.test.yaml"
VERDICT = {
    "date": "2026-11-20",
    "level": "unknown",
    "reasons": [{"kind": "lost"}],
    "figures": {"lost": 0, "records_missing": 12_345_678, "files_left_out": 0},
}


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}


def written() -> dict[str, float]:
    lines = text(Run(1.0, verdict=VERDICT)).splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_alerts_use_what_is_written() -> None:
    used = {name for rule in alerts().values() for name in re.findall(r"ustreamer_nightly_\w+", rule["expr"])}
    assert used <= {name.partition("{")[0] for name in written()}
    levels = {level for rule in alerts().values() for level in re.findall(r'level="(\w+)"', rule["expr"])}
    assert levels <= set(LEVELS)


def test_figures_are_exact_and_what_is_not_known_is_not_there() -> None:
    assert written()["ustreamer_nightly_verdict_records_missing"] == 12_345_678
    unknown = VERDICT | {"figures": dict.fromkeys(VERDICT["figures"])}
    assert "verdict_records_missing" not in text(Run(1.0, verdict=unknown))


def test_every_alert_is_shown_to_fire_and_not_to_fire() -> None:
    cases = [case for test in yaml.safe_load(RULE_TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts().keys()
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts().keys()


def test_every_alert_has_its_place_in_the_runbook() -> None:
    listed = {row[0].strip("`"): row[1:] for row in rows(DOCS / "monitoring.md", "## Nightly jobs")}
    assert {name: row[0] for name, row in listed.items()} == {
        name: rule["labels"]["severity"] for name, rule in alerts().items()
    }
    assert all(meaning and act for _, meaning, act in listed.values())


@pytest.mark.promtool
def test_the_rules_do_what_they_are_for() -> None:
    for command, file in (("check", RULES), ("test", RULE_TESTS)):
        ended = subprocess.run([require("promtool"), command, "rules", file], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.promtool
def test_the_metrics_are_well_formed() -> None:
    checked = subprocess.run(
        [require("promtool"), "check", "metrics"],
        input=text(Run(1.0, verdict=VERDICT)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
