"""What the documents show as a restriction restricts all that it seems to: asked with the product's own `explain`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from streamer.config.load import load_text
from streamer.config.models import Config
from streamer.config.permissions import TypeName
from streamer.features.every import FILE
from streamer.features.flow import TYPES, Flow
from streamer.features.judge.explain import explain
from streamer.features.judge.judge import Known
from streamer.routing.interest import Interest
from streamer.routing.pause_rules import PauseRules
from streamer.routing.table import RoutingTable
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_RESOURCE, ANY_TYPE, UUri
from tests.hosted import served
from tests.pages import ROOT, yaml_blocks

EXAMPLES = ("config", "deploy", "examples")
_URI = re.compile(r"//[a-z0-9.*-]+/[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,2}/[0-9A-Fa-f]{1,4}")
METHOD = 1


class Restriction(NamedTuple):
    """What an example denies, or what it demands of the callers of methods."""

    where: str
    config: Config
    pattern: UUri
    is_demand: bool
    endpoint: str


def whole(shown: dict[str, Any]) -> dict[str, Any]:
    return shown if "authority" in shown else yaml.safe_load((ROOT / "config/minimal.yaml").read_text()) | shown


def commented(text: str) -> Iterator[str]:
    """The examples in the comments of a file: indented mappings behind ``# ``."""
    for block in re.findall(r"^#\n((?:#   .*\n)+)", text, re.MULTILINE):
        yield re.sub(r"^#   ", "", block, flags=re.MULTILINE)


def shown() -> Iterator[tuple[str, str]]:
    """Every configuration, or part of one, that the repository shows, with its place."""
    yield from yaml_blocks()
    for folder in EXAMPLES:
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            if "permissions:" in (text := path.read_text()) and "helm" not in path.parts:
                place = str(path.relative_to(ROOT))
                if "authority:" in text:
                    yield place, text
                yield from ((place, block) for block in commented(text))


def restrictions() -> Iterator[Restriction]:
    for where, text in shown():
        data = yaml.safe_load(text)
        if not isinstance(data, dict) or not data.get("permissions"):
            continue
        config = load_text(yaml.safe_dump(whole(data)), Path(where), {"CLOUD_BROKER": "mqtt://b"}, FILE)
        assert config.permissions is not None
        endpoints = config.permissions.endpoints
        for name, endpoint in endpoints.items():
            for rule in endpoint.rules:
                if rule.deny is not None:
                    yield Restriction(where, config, rule.deny.to, False, name)
        for method in config.permissions.methods:
            for name in endpoints:
                yield Restriction(where, config, method.method, True, name)


def others(pattern: UUri) -> Iterator[UUri]:
    """What a reader takes a pattern for: every instance and every version of what it names."""
    for instance in (0, 1, 0xFFFE):
        for version in (1, 3, 4, 0xFE):
            kind = 0xB if pattern.type_id == ANY_TYPE else pattern.type_id
            resource = METHOD if pattern.resource == ANY_RESOURCE else pattern.resource
            authority = "veh1" if pattern.authority == ANY_AUTHORITY else pattern.authority
            yield UUri(authority, instance << 16 | kind, version, resource)


def verdict(config: Config, kind: TypeName, source: UUri, sink: UUri, endpoint: str) -> dict[str, Any]:
    own = served(config)
    known = Known(RoutingTable.from_config(config, config.addressed, own), Interest(), PauseRules())
    identities = (config.permissions and config.permissions.endpoints[endpoint].identities) or {}
    identity = next((name for name, spoken_for in identities.items() if source.authority in spoken_for), None)
    return explain(Flow(TYPES[kind], source, sink, endpoint, identity), known)


def test_there_are_examples_of_both_kinds() -> None:
    found = list(restrictions())
    assert {each.is_demand for each in found} == {True, False}
    assert {each.where for each in found} >= {"docs/permissions.md", "config/streamer.yaml"}


@pytest.mark.parametrize(
    "restriction", list(restrictions()), ids=lambda each: f"{each.where}-{each.pattern}-{each.endpoint}"
)
def test_what_an_example_restricts_is_restricted_for_every_instance_and_version(restriction: Restriction) -> None:
    config = restriction.config
    homes = config.endpoints[restriction.endpoint].authorities
    source = UUri("backend" if ANY_AUTHORITY in homes else homes[0], 0xC0, 1, 0)
    if restriction.pattern.authority == source.authority:
        return  # it is local there: nothing is decided about it
    for sink in others(restriction.pattern):
        told = verdict(config, "request", source, sink, restriction.endpoint)
        assert not told["goes"] or restriction.is_demand, (str(sink), told)
        if restriction.is_demand:
            assert any("permission level" in text or "token" in text for text in told["why"]), (str(sink), told)
        else:
            assert told["failure"]["code"] == "PERMISSION_DENIED", (str(sink), told)


def test_a_pattern_in_the_documents_that_names_one_version_of_our_service_says_so() -> None:
    """In a text, not in a rule: whoever copies it into a rule has the same gap."""
    found = [
        (str(path.relative_to(ROOT)), uri)
        for path in sorted((ROOT / "docs").rglob("*.md"))
        for uri in _URI.findall(path.read_text())
        if (parsed := UUri.parse(uri)).type_id == 0 and parsed.resource == ANY_RESOURCE and parsed.ue_id == 0
    ]
    assert sorted(set(found)) == [
        ("docs/features/usubscription.md", "//veh1/0/3/FFFF"),  # both are said to be one version
        ("docs/features/usubscription.md", "//veh1/0/4/FFFF"),
        ("docs/permissions.md", "//veh1/0/3/FFFF"),
        ("docs/permissions.md", "//veh1/0/4/FFFF"),
    ]


def test_the_narrow_pattern_of_the_example_would_be_noticed() -> None:
    (block,) = [block for page, block in yaml_blocks() if page == "docs/permissions.md" and "max_priority: CS4" in block]
    narrow = block.replace("//veh1/FFFF0000/FF/FFFF", "//veh1/0/FF/FFFF")
    config = load_text(yaml.safe_dump(whole(yaml.safe_load(narrow))), Path("narrow"), {}, FILE)
    assert narrow != block
    assert verdict(config, "request", UUri("backend", 0xC0, 1, 0), UUri("veh1", 0x1_0000, 3, METHOD), "cloud")["goes"]
