"""What a reload cannot change: each is named with its key, and nothing else is."""

from typing import Any

import pytest

from streamer.config.models import Config
from streamer.config.reload import beyond_reload, rebuilt_endpoints


def config(**sections: Any) -> Config:
    endpoints = {"vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": "v"}}}
    return Config.model_validate({"authority": "gw", "endpoints": endpoints, "routes": [], **sections})


JOURNAL = {"journal": {"path": "/j.db"}}
METRICS = {"metrics": {"listen": "127.0.0.1:1"}}


@pytest.mark.parametrize(
    ("before", "after", "keys"),
    [
        (METRICS, {"metrics": {"listen": "127.0.0.1:2", "hosts": ["gw"]}}, ["metrics.listen"]),
        (METRICS, {"metrics": {"listen": "127.0.0.1:1", "hosts": ["gw"]}}, []),
        (METRICS, {"metrics": None}, ["metrics"]),
        (JOURNAL, {"journal": {"path": "/k.db"}}, ["journal.path"]),
        (JOURNAL, {"journal": {"path": "/j.db", "memory": 1, "max_bytes": "2GiB"}}, ["journal.max_bytes", "journal.memory"]),
        (JOURNAL, {"journal": None}, ["journal"]),
    ],
)
def test_what_needs_a_restart_is_named_by_its_key(before: dict[str, Any], after: dict[str, Any], keys: list[str]) -> None:
    expected = [f"{key}: changed; restart to use it" for key in keys]
    assert beyond_reload(config(**before), config(**after)) == expected
    assert beyond_reload(config(**after), config(**before)) == expected


def test_another_authority_needs_a_restart_and_both_are_named() -> None:
    assert beyond_reload(config(), config(authority="other")) == ["authority: changed from gw to other; restart to use it"]


VEHICLE = {"transport": "memory", "authorities": ["veh1"], "options": {"bus": "v"}}
CLOUD = {"transport": "memory", "authorities": ["*"]}


@pytest.mark.parametrize(
    ("after", "rebuilt"),
    [
        ({"vehicle": VEHICLE, "cloud": CLOUD}, []),
        ({"vehicle": VEHICLE | {"authorities": ["veh2"]}, "cloud": CLOUD}, []),  # says who lives there, not how to get there
        ({"vehicle": VEHICLE | {"options": {"bus": "w"}}, "cloud": CLOUD}, ["vehicle"]),
        (
            {"vehicle": VEHICLE, "cloud": {"transport": "mqtt5", "authorities": ["*"], "options": {"broker": "mqtt://b"}}},
            ["cloud"],
        ),
        ({"vehicle": VEHICLE, "cloud": CLOUD, "phone": CLOUD | {"authorities": ["phone1"]}}, ["phone"]),
        ({"vehicle": VEHICLE}, []),
        ({"car": VEHICLE, "cloud": CLOUD}, ["car"]),
    ],
)
def test_endpoints_are_rebuilt_that_are_new_or_reached_in_another_way(after: dict[str, Any], rebuilt: list[str]) -> None:
    before = config(endpoints={"vehicle": VEHICLE, "cloud": CLOUD})
    assert rebuilt_endpoints(before, config(endpoints=after)) == rebuilt
