"""Keys of earlier versions that are constants now: the constant itself is accepted, every other value refused with it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.config.load import ConfigError, load_text

FILE = Path("streamer.yaml")
MINIMAL: dict[str, Any] = {
    "authority": "gateway",
    "endpoints": {
        "vehicle": {"transport": "memory", "authorities": ["veh1"]},
        "cloud": {"transport": "memory", "authorities": ["*"]},
    },
    "routes": [{"from": "vehicle", "to": "cloud"}],
}

MQTT = {"transport": "mqtt5", "authorities": ["*"]}


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
    ],
    ids=["policy", "dead letters", "route"],
)
def test_a_file_that_gives_the_constant_is_accepted(sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.config.models.RetryConfig.jitter", 0.2)  # tests have another one
    assert problems(**sections) == []


@pytest.mark.parametrize(
    ("sections", "key", "constant"),
    [
        ({"queue_policy": {"lower_share": 0.2}}, "queue_policy.lower_share", "0.1"),
        ({"queue_policy": {"retry": {"factor": True}}}, "queue_policy.retry.factor", "2.0"),
        ({"dead_letter": {"resource": 0x9000}}, "dead_letter.resource", "32769"),
        ({"dead_letter": {"report_rate": {"bytes": 5}}}, "dead_letter.report_rate.bytes", "null"),
        ({"usubscription": {"page": 5}}, "usubscription.page", "1000"),
        (
            {
                "endpoints": MINIMAL["endpoints"]
                | {"cloud": MQTT | {"options": {"broker": "mqtt://b", "max_token_bytes": 9}}}
            },
            "endpoints.cloud.options.max_token_bytes",
            "1024",
        ),
        (
            {"routes": [{"from": "vehicle", "to": "cloud", "lower_share": 0.2}]},
            "routes[0].lower_share",
            "0.1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_value_is_refused_with_the_constant(sections: dict[str, Any], key: str, constant: str) -> None:
    assert problems(**sections) == [f"{key}: this key is gone, its value is always {constant} now; leave the key out"]


def test_all_mistakes_are_said_together() -> None:
    assert len(problems(queue_policy={"lower_share": 0.2, "window": 0}, control={"max_rules": 7})) == 3
