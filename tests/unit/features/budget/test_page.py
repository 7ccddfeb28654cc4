"""The page of budgets has every key with its default."""

import yaml

from streamer.features.budget.config import BudgetConfig
from tests.config_keys import leaves
from tests.pages import DOCS, rows


def test_every_key_is_described_with_its_default() -> None:
    schema = BudgetConfig.model_json_schema()
    known = {key: "required" if is_required else node["default"] for key, node, is_required in leaves(schema, {})}
    listed = rows(DOCS / "features/budget.md", "## Keys")
    assert {key.strip("`"): yaml.safe_load(default.strip("`")) for key, default, _ in listed} == known
