"""The alert rules in ``deploy``."""

from typing import Any

import yaml

from tests.pages import ROOT

RULES = ROOT / "deploy/prometheus/ustreamer-rules.yaml"


def rules() -> list[dict[str, Any]]:
    """Return all rules, also those that record."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Return the rules that alert, by name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}
