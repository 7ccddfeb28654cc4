"""What the bounds of a configuration add up to, as `docs/bounds.md` says."""

import re
from typing import Any

import pytest

from streamer.config.models import Config
from streamer.config.types import MIB
from streamer.features.every import FILE
from streamer.tools.cost import disk_bytes, memory_bytes, memory_hint, sum_line
from tests.configurations import config_of, endpoint_of
from tests.unit.deployed import unit

pytestmark = pytest.mark.needs("usubscription", "traces")


def config(**sections: Any) -> Config:
    """A bridge between Zenoh and MQTT with a journal."""
    raw: dict[str, Any] = config_of(
        {"vehicle": endpoint_of("zenoh", "veh1"), "cloud": endpoint_of("mqtt5", "*", broker="mqtt://127.0.0.1")},
        authority="gateway",
        journal={"path": "/var/lib/streamer/journal.db"},
    )
    return FILE.model_validate(raw | sections)


def test_the_sums_are_those_of_the_document() -> None:
    queue = 64 * MIB
    routes = 2 * (2 * queue + 600 * 10_000 * 10)
    endpoints = 2 * (16 * MIB + 30 * MIB + 2 * 32 * MIB)
    received = 16 * MIB + (256 + 1000) * 1024 + 32 * MIB + 2 * 16 * MIB + 64 * MIB
    assert memory_bytes(config()) == 70_000_000 + routes + 64 * MIB + endpoints + received + 128 * MIB + 200_000 * 100
    assert disk_bytes(config()) == 2 * 1024 * MIB + 32 * MIB


@pytest.mark.parametrize(
    ("sections", "memory", "disk"),
    [
        # without a journal unconfirmed messages are in memory, and absent receivers have no room of their own
        ({"journal": None}, 64 * MIB - 64 * MIB - 2 * 600 * 100_000, -(2 * 1024 * MIB + 32 * MIB)),
        ({"routes": [{"from": "vehicle", "to": "cloud"}]}, -(128 * MIB + 600 * 100_000), 0),
        ({"usubscription": None}, -128 * MIB, 0),
        ({"trace": {"path": "/t", "max_bytes": "1GiB"}}, 90_000_000 + 19 * MIB, 1024 * MIB),
        ({"remember": {"ids": 10}}, -199_990 * 100, 0),
        ({"dead_letter": {"queue": {"bytes": "1MiB"}}}, -4 * 31 * MIB, 0),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_section_changes_the_sums_by_what_it_allows(sections: dict[str, Any], memory: int, disk: int) -> None:
    changed = config(**sections)
    assert memory_bytes(changed) - memory_bytes(config()) == memory
    assert disk_bytes(changed) - disk_bytes(config()) == disk


@pytest.mark.parametrize("journal", [None, {"path": "/var/lib/streamer/journal.db"}], ids=["memory", "journal"])
def test_the_defaults_fit_into_the_memory_of_the_service(journal: dict[str, str] | None) -> None:
    limit = unit()["Service"]["MemoryMax"]
    assert memory_bytes(config(journal=journal)) <= int(limit.removesuffix("G")) << 30


def test_a_hint_names_the_lowest_limit_that_does_not_hold_the_sum() -> None:
    needed = memory_bytes(config())
    assert list(memory_hint(config(), {})) == []
    assert list(memory_hint(config(), {"a": needed, "b": needed + 1})) == []
    (text,) = memory_hint(config(), {"a": needed + 1, "b": 256 * MIB, "c": 512 * MIB})
    assert re.fullmatch(r"memory: bounds add up to [\d.]+ GB, and b allows 268 MB: .*", text)


def test_check_says_one_sum_and_no_capacity() -> None:
    """Messages per second were a promise that nobody had measured."""
    text = sum_line(config())
    assert re.fullmatch(r"its bounds add up to [\d.]+ [kMGT]?B of memory and [\d.]+ [kMGT]?B of disk", text)
