"""The documents know every key of the configuration with its default, and show no configuration that is wrong."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from streamer.config.load import json_schema, load, warnings
from streamer.config.models import POLICY_KEYS, Config
from streamer.config.permissions import load_verifier
from streamer.features.every import FILE
from streamer.features.traces.config import TraceConfig
from streamer.transports.installed import available_transports, load_transport
from tests.config_keys import leaves
from tests.figures import of_features
from tests.pages import DOCS, INLINE, ROOT, rows, yaml_blocks

OURS = [kind for kind in available_transports() if load_transport(kind).__module__.startswith("streamer.")]
"""The transports of this package; others may be installed beside it."""

SHIPPED = sorted(set((ROOT / "config").rglob("*.yaml")) - {ROOT / "config/slo.yaml"})


@cache
def sections() -> frozenset[str]:
    return frozenset(FILE.model_json_schema()["properties"])


def default_of(node: dict[str, Any], is_required: bool) -> object:
    return "required" if is_required else node["default"]


def described(headings: list[str]) -> dict[str, object]:
    """Key to default, as the tables below some headings say."""
    found: dict[str, object] = {}
    for heading in headings:
        for keys, default, meaning in rows(DOCS / "configuration.md", heading):
            assert meaning, keys
            for key in INLINE.findall(keys):
                assert key not in found, key
                found[key] = "required" if default == "required" else value(default)
    return found


def value(cell: str) -> object:
    text = cell.strip("`")
    size = re.fullmatch(r"(\d+)([KMG])iB", text)
    return int(size[1]) << {"K": 10, "M": 20, "G": 30}[size[2]] if size else yaml.safe_load(text)


def test_every_key_is_described_with_its_default() -> None:
    schema = json_schema(FILE)
    mirrored = {f"routes[].{key}" for key in POLICY_KEYS} | {"routes[].topics[]"}
    known = {
        path: default_of(node, is_required)
        for path, node, is_required in leaves(schema, schema["$defs"])
        if path not in ("endpoints.NAME.options", "permissions.tap.options")
        and set(path.split(".")).isdisjoint(of_features())  # on their own pages
        and ".".join(path.split(".")[:2]) not in mirrored
    }
    page = (DOCS / "configuration.md").read_text()
    headings = [f"### {name}" for name in re.findall(r"^### (.*)$", page.partition("\n## Reference\n")[2], re.MULTILINE)]
    assert described(headings) == known


@pytest.mark.parametrize("kind", OURS)
def test_every_option_of_a_transport_is_described_with_its_default(kind: str) -> None:
    schema = load_transport(kind).Options.model_json_schema()
    known = {path: default_of(node, is_required) for path, node, is_required in leaves(schema, schema.get("$defs", {}))}
    assert described([f"#### Options of `{kind}`"]) == known


def test_every_option_of_our_token_verifier_is_described_with_its_default() -> None:
    schema = load_verifier("jwt").Options.model_json_schema()
    known = {path: default_of(node, is_required) for path, node, is_required in leaves(schema, schema.get("$defs", {}))}
    assert described(["#### Options of the verifier `jwt`"]) == known


@pytest.mark.parametrize(("page", "block"), yaml_blocks(), ids=lambda text: text if text.endswith(".md") else "block")
def test_every_piece_of_configuration_is_good(page: str, block: str, tmp_path: Path) -> None:
    shown = yaml.safe_load(block)
    assert shown.keys() <= sections(), "is it a configuration at all?"
    whole = (
        shown
        if {"authority", "endpoints"} <= shown.keys()
        else yaml.safe_load((ROOT / "config/minimal.yaml").read_text()) | shown
    )
    file = tmp_path / "streamer.yaml"
    file.write_text(block if shown is whole else yaml.safe_dump(whole))
    load(file, kind=FILE)


def test_the_first_configuration_is_complete_and_has_no_warnings(tmp_path: Path) -> None:
    (block,) = [block for page, block in yaml_blocks() if page == "README.md"]
    file = tmp_path / "streamer.yaml"
    file.write_text(block)
    assert warnings(load(file, kind=FILE)) == []


def test_the_trace_section_has_the_defaults() -> None:
    (block,) = [block for page, block in yaml_blocks() if page == "docs/features/traces.md"]
    shown = TraceConfig.model_validate(yaml.safe_load(block)["trace"])
    assert shown == TraceConfig.model_validate({"path": "/var/lib/streamer/traces"})  # where the systemd unit lets it write


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.stem)
def test_a_file_that_we_ship_loads(shipped: Path) -> None:
    assert load(shipped, {}, kind=FILE).routes


def test_the_commented_file_has_every_key() -> None:
    """A key that is added to the models has to be explained there."""
    text = yaml.safe_load((ROOT / "config/streamer.yaml").read_text())
    config = FILE.model_validate(_without_variables(text))
    missing = set(_keys(config)) - {key for key, _ in _pairs(text)} - {*of_features()}
    assert missing == set()


def _without_variables(text: Any) -> Any:
    text["endpoints"]["cloud"]["options"]["broker"] = "mqtt://127.0.0.1"
    return text


def _keys(model: BaseModel) -> Iterator[str]:
    for name, value in model:
        if name != "queue_policy" or isinstance(model, Config):  # a route's queue_policy section stands in the route itself
            yield type(model).model_fields[name].alias or name
            inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            for part in inside:
                if isinstance(part, BaseModel):
                    yield from _keys(part)


def _pairs(data: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield key, value
            yield from _pairs(value)
    if isinstance(data, list):
        for value in data:
            yield from _pairs(value)
