"""The section `usubscription`: what contradicts the rest of a file, and what may not be intended."""

from pathlib import Path
from typing import Any

import pytest

from streamer.config.load import ConfigError, load, warnings
from streamer.config.models import Config
from streamer.config.reload import beyond_reload
from streamer.features.every import FILE
from tests.configurations import config_of, endpoint_of
from tests.unit.config.files import PERMISSIONS, PLAIN


def loaded(folder: Path, text: str) -> Config:
    path = folder / "streamer.yaml"
    path.write_text(text)
    return load(path, {}, kind=FILE)


def with_section(section: Any) -> Config:
    share = {"broker": "mqtt://broker", "share": "gateways", "topics": "off-vehicle", "client_id": "c"}
    endpoints = {"inside": endpoint_of("memory", "cloud"), "fleet": endpoint_of("mqtt5", "fleet", **share)}
    return FILE.model_validate(config_of(endpoints, routes=[], usubscription=section))


SILENT = "route vehicle-cloud: it publishes nothing, and usubscription.subscribe permits nobody behind 'cloud' to subscribe"


@pytest.mark.parametrize(
    ("old", "new", "section", "is_silent"),
    [
        ("", "", "", True),
        ('["*"]', "[cloud]", "", False),
        ('["*"]', "[cloud], global: true", "", False),
        ('["*"]', "[cloud], global: true", "{subscribe: []}", True),
        ("to: cloud", "to: cloud, publish_to: [backend]", "", False),
        ('["*"]', "[cloud]", "{local: [veh1], subscribe: []}", True),
        ('["*"]', "[cloud]", "{local: [veh1, cloud]}", False),
        ("to: cloud", "to: cloud, publish: [//veh1/A/1/FFFF]", "", False),
    ],
)
def test_a_hint_says_that_no_publish_goes_over_a_route(
    tmp_path: Path, old: str, new: str, section: str, is_silent: bool
) -> None:
    text = f"{PLAIN}{PERMISSIONS}journal: {{path: /tmp/j.db}}\n".replace(old, new, 1)
    found = warnings(loaded(tmp_path, f"{text}usubscription: {section or '{}'}\n"))
    assert [hint.startswith(SILENT) for hint in found] == [True] * is_silent


@pytest.mark.parametrize(
    ("section", "is_told"),
    [
        ({}, True),
        ({"local": ["cloud"]}, True),
        ({"local": []}, False),
        ({"external": {"service": "//cloud/0/3/0"}}, False),
        (None, False),
    ],
)
def test_a_service_whose_requests_are_divided_is_told(section: dict[str, Any] | None, is_told: bool) -> None:
    told = [text for text in warnings(with_section(section)) if text.startswith("usubscription.local: ")]
    assert ["comes in through fleet" in text for text in told] == [True] * is_told


@pytest.mark.parametrize("key", ["fetch", "reset", "subscribe"])
def test_a_permission_for_authorities_that_somebody_invents_is_told(key: str) -> None:
    rule = {"from": "//*/A/1/0", "topics": ["//veh1/A/1/FFFF"]}
    found = warnings(with_section({key: [rule if key == "subscribe" else rule["from"]]}))
    assert [text.partition(";")[0] for text in found if "open to every authority" in text] == [
        f"usubscription.{key}: //*/A/1/0: open to every authority, also to one that somebody invents"
    ]


@pytest.mark.parametrize(
    ("after", "key"), [({"external": {"service": "//veh1/0/3/0"}}, "usubscription.external"), (None, "usubscription")]
)
def test_what_needs_a_restart_is_named_by_its_key(after: Any, key: str) -> None:
    configs = with_section({}), with_section(after)
    for before, new in (configs, configs[::-1]):
        assert beyond_reload(before, new) == [f"{key}: changed; restart to use it"]


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (
            "False",
            "usubscription: expected null or a mapping with the keys local, initial, max_answer_bytes, subscribe, fetch, "
            "reset, max_subscriptions, remote_version, external, found false",
        ),
        ("{page: 5}", "usubscription.page: this key is gone, its value is always 1000 now; leave the key out"),
        (
            "{initial: [//veh1/FFFFFFFF/FF/FFFF]}",
            "usubscription.initial: expected a section `utwin` as well: it keeps the last messages",
        ),
    ],
)
def test_a_mistake_is_told_at_its_key(tmp_path: Path, section: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f"{PLAIN}usubscription: {section}\n")
    assert [f"{each.key}: {each.message}" for each in caught.value.problems] == [problem]
