"""What a reload cannot change: each is named with its key, and nothing else is."""

from typing import Any

import pytest

from streamer.config.models import Config
from streamer.config.reload import beyond_reload


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
        ({"state": {"path": "/s.db"}}, {"state": {"path": "/t.db"}}, ["state.path"]),
        ({"usubscription": {}}, {"usubscription": {"external": {"service": "//veh1/0/3/0"}}}, ["usubscription.external"]),
        ({"usubscription": {}}, {"usubscription": None}, ["usubscription"]),
    ],
)
def test_what_needs_a_restart_is_named_by_its_key(before: dict[str, Any], after: dict[str, Any], keys: list[str]) -> None:
    expected = [f"{key}: changed; restart to use it" for key in keys]
    assert beyond_reload(config(**before), config(**after)) == expected
    assert beyond_reload(config(**after), config(**before)) == expected


def test_another_authority_needs_a_restart_and_both_are_named() -> None:
    assert beyond_reload(config(), config(authority="other")) == ["authority: changed from gw to other; restart to use it"]
