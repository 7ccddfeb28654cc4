"""Whatever key of a configuration is changed, it is named; secrets are not."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from streamer.config.load import load
from streamer.config.models import Config
from streamer.config.shown import fingerprint
from streamer.features.every import FILE
from streamer.features.judge.changed import Setting, changed_settings, renamed_endpoints
from tests.configurations import config_of, endpoint_of
from tests.pages import ROOT

EXAMPLE = ROOT / "config/streamer.yaml"


def raw_of(config: Config) -> dict[str, Any]:
    """A configuration as plain values, which make the same one."""
    raw = config.model_dump(mode="json", by_alias=True)
    for route in raw["routes"]:
        route |= route.pop("queue_policy")
    return raw


def leaves(value: Any, location: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*location, key))
    else:
        yield location


def others(value: Any) -> list[Any]:
    """Values that might be allowed in place of one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value / 2]
    if isinstance(value, str):
        return [
            f"{value}x",
            value.replace("1", "2"),
            "arrival",
            "in-vehicle",
            "reject",
            "debug",
            "json",
            "any",
            "CS3",
            f"{value[:-1]}1",
        ]
    return [True, 7, "x", {}]


def test_whatever_value_is_changed_its_key_is_named(tmp_path: Path) -> None:
    config = load(EXAMPLE, {}, kind=FILE)
    raw = raw_of(config)
    assert fingerprint(FILE.model_validate(raw)) == fingerprint(config)
    named = 0
    for location in leaves(raw):
        changed = changed_at(raw, location)
        if changed is None or fingerprint(changed) == fingerprint(config):
            continue
        settings = changed_settings(config, changed)
        assert settings, location
        texts = " ".join(setting.text for setting in settings)
        key = next(str(part) for part in reversed(location) if isinstance(part, str))
        assert key in texts or key == "name" or location[0] in ("permissions", "multicast"), (location, texts)
        named += 1
    assert named > 80


def changed_at(raw: dict[str, Any], location: tuple[Any, ...]) -> Config | None:
    """The configuration with another value at one place, if some other value is allowed there."""
    *above, last = location
    for other in others(_at(raw, location)):
        changed = copy.deepcopy(raw)
        _at(changed, above)[last] = other
        try:
            return FILE.model_validate(changed)
        except ValidationError:
            continue
    return None


def _at(value: Any, location: Any) -> Any:
    for part in location:
        value = value[part]
    return value


def test_a_configuration_differs_in_nothing_from_itself() -> None:
    for path in (EXAMPLE, ROOT / "config/minimal.yaml", *(ROOT / "config/roles").glob("*.yaml")):
        assert changed_settings(load(path, {}, kind=FILE), load(path, {}, kind=FILE)) == []


BASE: dict[str, Any] = config_of(
    {"a": endpoint_of("memory", "one"), "b": endpoint_of("memory", "two", bus="b")},
    [{"from": "a", "to": "b", "publish": ["//one/A/1/FFFF"]}, {"from": "b", "to": "a"}],
)


def settings(**changes: Any) -> list[Setting]:
    return changed_settings(FILE.model_validate(BASE), FILE.model_validate(BASE | changes))


def test_a_key_of_the_file_that_routes_inherit_is_said_once() -> None:
    assert [each.text for each in settings(queue_policy={"window": 7})] == ["queue_policy.window: 7 instead of 1000"]


def test_a_route_that_keeps_its_own_value_does_not_change_with_the_file() -> None:
    routes = [{**each, "window": 9} for each in BASE["routes"]]
    before = FILE.model_validate(BASE | {"routes": routes})
    after = FILE.model_validate(BASE | {"routes": routes, "queue_policy": {"window": 7}})
    assert [each.key for each in changed_settings(before, after)] == ["queue_policy.window"]
    written = [{**each, "window": 1000} for each in BASE["routes"]]
    after = FILE.model_validate(BASE | {"routes": written, "queue_policy": {"window": 7}})
    keys = [each.key for each in changed_settings(FILE.model_validate(BASE), after)]
    assert keys == ["queue_policy.window"]


def test_the_order_of_brokers_means_something() -> None:
    def config(brokers: list[str]) -> Config:
        options = {"broker": brokers}
        endpoints = BASE["endpoints"] | {"b": {"transport": "mqtt5", "authorities": ["two"], "options": options}}
        return FILE.model_validate(BASE | {"endpoints": endpoints})

    (setting,) = changed_settings(config(["mqtt://a:1", "mqtt://b:1"]), config(["mqtt://b:1", "mqtt://a:1"]))
    assert setting.text == "endpoints.b.options.broker: another order, [mqtt://b:1; mqtt://a:1]"


def test_two_endpoints_that_are_alike_are_renamed_one_by_one() -> None:
    def config(*names: str) -> Config:
        endpoints = {name: {"transport": "memory", "authorities": ["*"]} for name in names}
        return FILE.model_validate(config_of(endpoints, []))

    assert renamed_endpoints(config("a", "b"), config("c", "d")) == {"a": "c", "b": "d"}
    assert renamed_endpoints(config("a", "b"), config("b", "c")) == {"a": "c"}
    assert renamed_endpoints(config("a"), config("a", "b")) == {}


@pytest.mark.parametrize("name", ["x y", "über", "a\nb", 'q"', "{}"])
def test_names_that_are_not_plain_are_quoted(name: str) -> None:
    endpoints = {"a": {"identities": {name: ["one"]}, "rules": [{"allow": {}}]}}
    before = FILE.model_validate(BASE | {"permissions": {"endpoints": {"a": {"rules": [{"allow": {}}]}}}})
    after = FILE.model_validate(BASE | {"permissions": {"endpoints": endpoints}})
    (setting,) = changed_settings(before, after)
    assert setting.text.isascii()
    assert setting.text.isprintable()
