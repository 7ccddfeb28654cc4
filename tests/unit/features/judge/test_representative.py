"""Made-up flows stand for all that the patterns tell apart."""

from typing import Any

import pytest

from streamer.config.models import Config
from streamer.features.judge import representative
from streamer.features.judge.representative import representatives
from streamer.uprotocol.message import UMessageType
from streamer.uprotocol.uri import UUri
from tests.configurations import config_of, endpoint_of

BASE: dict[str, Any] = config_of(
    {"vehicle": endpoint_of("memory", "veh1"), "cloud": endpoint_of("memory", "*")},
    [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/A/1/FFFF", "//veh1/FFFFFFFF/FF/8000"]}],
)


def config(**changes: Any) -> Config:
    return Config.model_validate(BASE | changes)


def test_there_is_a_topic_in_each_pattern_in_both_and_in_none() -> None:
    found = representatives(config()).flows
    topics = [flow.source for flow in found if flow.kind is UMessageType.PUBLISH and flow.ingress == "vehicle"]
    patterns = [UUri.parse("//veh1/A/1/FFFF"), UUri.parse("//veh1/FFFFFFFF/FF/8000")]
    matched = {tuple(pattern.matches(topic) for pattern in patterns) for topic in topics}
    assert matched == {(True, False), (False, True), (True, True), (False, False)}


def test_every_type_comes_in_at_every_endpoint_and_no_address_has_a_wildcard() -> None:
    found = representatives(config())
    assert not found.is_cut
    assert {(flow.kind, flow.ingress) for flow in found.flows} == {
        (kind, ingress) for kind in UMessageType if kind for ingress in ("vehicle", "cloud")
    }
    assert not any(flow.source.has_wildcard or (flow.sink and flow.sink.has_wildcard) for flow in found.flows)


def test_sources_are_those_that_may_come_in() -> None:
    for flow in representatives(config()).flows:
        assert (flow.source.authority == "veh1") == (flow.ingress == "vehicle")


def test_what_only_the_second_file_names_is_judged_too() -> None:
    changed = config(permissions={"endpoints": {"vehicle": {"rules": [{"deny": {"to": "//fleet/C/1/7"}}]}}})
    sinks = {flow.sink for flow in representatives(config(), changed).flows}
    assert UUri.parse("//fleet/C/1/7") in sinks


def test_identities_and_levels_are_tried() -> None:
    permissions = {
        "endpoints": {"cloud": {"identities": {"one": ["fleet"], "two": ["*"]}, "rules": [{"allow": {}}]}},
        "methods": [{"method": "//veh1/A/1/7", "permission_level": 4}],
    }
    found = representatives(config(permissions=permissions)).flows
    assert {flow.identity for flow in found if flow.ingress == "cloud"} == {None, "one", "two", "nobody-you-know"}
    assert {flow.permission_level for flow in found if flow.kind is UMessageType.REQUEST} == {None, 4}


def test_too_many_are_cut_and_no_kind_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(representative, "MOST", 60)
    found = representatives(config())
    assert (len(found.flows), found.is_cut) == (60, True)
    assert {(flow.kind, flow.ingress) for flow in found.flows} == {
        (kind, ingress) for kind in UMessageType if kind for ingress in ("vehicle", "cloud")
    }


def test_the_order_is_always_the_same() -> None:
    assert representatives(config()) == representatives(config())
