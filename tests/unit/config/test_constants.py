"""Keys of earlier versions that are constants now: the constant itself is accepted, every other value refused with it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.config.load import ConfigError, load_text
from streamer.transports.base import TransportOptions

FILE = Path("streamer.yaml")
MINIMAL: dict[str, Any] = {
    "authority": "gateway",
    "endpoints": {
        "vehicle": {"transport": "memory", "authorities": ["veh1"]},
        "cloud": {"transport": "memory", "authorities": ["*"]},
    },
    "routes": [{"from": "vehicle", "to": "cloud"}],
}

TAP = {"verifier": "jwt", "options": {"jwks_file": "/k", "issuer": "i", "audience": "a", "leeway_s": 60}}


def of_cloud(options: dict[str, Any]) -> dict[str, Any]:
    """Endpoints whose MQTT one has these options."""
    cloud = {"transport": "mqtt5", "authorities": ["*"], "options": {"broker": "mqtt://b", **options}}
    return {"endpoints": MINIMAL["endpoints"] | {"cloud": cloud}}


def problems(**sections: Any) -> list[str]:
    try:
        load_text(yaml.safe_dump(MINIMAL | sections, sort_keys=False), FILE)
    except ConfigError as exc:
        return [f"{problem.key}: {problem.message}" for problem in exc.problems]
    return []


@pytest.mark.parametrize(
    "sections",
    [
        {"queue_policy": {"lower_share": 0.1, "retry": {"factor": 2, "jitter": 0.2, "attempts": 3}}},
        {"dead_letter": {"resource": 0x8001, "store": {"rejected": {"messages": 5000, "bytes": 16 * 1024 * 1024}}}},
        {"routes": [{"from": "vehicle", "to": "cloud", "lower_share": 0.1, "queue": {"strangers": 0.8}}]},
        {"queue_policy": {"rate": {"messages": 1, "burst_s": 2}, "rate_per_authority": {"bytes": 1, "burst_s": 2}}},
        of_cloud({"window": 1000, "listeners": {"max_listeners": 200_000}, "reconnect": {"factor": 2, "jitter": 0.2}}),
    ],
    ids=["policy", "dead letters", "route", "rates", "transport"],
)
def test_a_file_that_gives_the_constant_is_accepted(sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.config.models.RetryConfig.jitter", 0.2)  # tests have other ones
    monkeypatch.setattr("streamer.config.types.RateConfig.burst_s", 2)
    assert problems(**sections) == []


@pytest.mark.parametrize(
    ("sections", "key", "constant"),
    [
        ({"queue_policy": {"lower_share": 0.2}}, "queue_policy.lower_share", "0.1"),
        ({"queue_policy": {"retry": {"factor": True}}}, "queue_policy.retry.factor", "2.0"),
        ({"dead_letter": {"resource": 0x9000}}, "dead_letter.resource", "32769"),
        ({"dead_letter": {"report_rate": {"bytes": 5}}}, "dead_letter.report_rate.bytes", "null"),
        (of_cloud({"max_token_bytes": 9}), "endpoints.cloud.options.max_token_bytes", "1024"),
        (of_cloud({"reconnect": {"factor": 3}}), "endpoints.cloud.options.reconnect.factor", "2.0"),
        ({"permissions": {"tap": TAP}}, "permissions.tap.options.leeway_s", "30"),
        ({"routes": [{"from": "vehicle", "to": "cloud", "lower_share": 0.2}]}, "routes[0].lower_share", "0.1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_value_is_refused_with_the_constant(sections: dict[str, Any], key: str, constant: str) -> None:
    assert problems(**sections) == [f"{key}: this key is gone, its value is always {constant} now; leave the key out"]


@pytest.mark.parametrize(
    ("options", "key", "instead"),
    [
        ({"window": 50}, "window", "queue_policy.window sets it"),
        (
            {"listeners": {"max_listeners": 7}},
            "listeners",
            "its values are always max_listeners 200000, max_listeners_per_filter 100",
        ),
    ],
    ids=["another key", "a section"],
)
def test_what_sets_it_now_is_said(options: dict[str, Any], key: str, instead: str) -> None:
    found = problems(**of_cloud(options))
    assert found == [f"endpoints.cloud.options.{key}: this key is gone, {instead} now; leave the key out"]


def test_a_plugin_that_has_such_a_key_itself_keeps_it() -> None:
    with pytest.warns(UserWarning, match="shadows"):

        class Own(TransportOptions):
            window: int = 5  # type: ignore[misc]

    assert Own.model_validate({"window": 1000}).window == 1000


def test_all_mistakes_are_said_together() -> None:
    assert len(problems(queue_policy={"lower_share": 0.2, "window": 0}, control={"max_rules": 7})) == 3
