"""``streamer diff --traces``: a change judged over messages that the daemon's own recorder and compaction have written."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.uprotocol.message import Attributes, UMessageType, UPriority
from streamer.uprotocol.uri import UUri, everything_at
from tests.unit.features.traces.recorded import Recorded
from tests.unit.tools.commands import status_of

SPEED = UUri("veh1", 0xA8000, 2, 0x8A50)
CLIMATE = UUri("veh1", 0xB, 1, 0x8001)
ROUTE: dict[str, Any] = {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}
OLD: dict[str, Any] = {
    "authority": "gateway.veh1",
    "endpoints": {
        "vehicle": {"transport": "zenoh", "authorities": ["veh1"]},
        "cloud": {"transport": "mqtt5", "authorities": ["cloud"], "options": {"broker": "mqtt://127.0.0.1"}},
    },
    "routes": [ROUTE],
    "permissions": {"endpoints": {"vehicle": {"rules": [{"allow": {}}]}}},
    "journal": {"path": "/var/lib/streamer/journal.db"},
}


class Change:
    """Two files and a folder of traces of the streamer that has the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.traces = folder / "traces"
        self.recorded = Recorded(self.traces, "gateway.veh1", time.time_ns() // 1000, "vehicle-cloud")

    def diff(self, capsys: pytest.CaptureFixture[str], *words: str, **new: Any) -> tuple[int, str]:
        """The exit code and what is printed; ``new``: the sections that the new file has instead."""
        for name, raw in (("old", OLD), ("new", OLD | new)):
            (self._folder / f"{name}.yaml").write_text(yaml.safe_dump(raw))
        files = [str(self._folder / f"{name}.yaml") for name in ("old", "new")]
        status = status_of("diff", *files, "--traces", str(self.traces), *words)
        return status, capsys.readouterr().out


@pytest.fixture
def change(tmp_path: Path) -> Change:
    found = Change(tmp_path)
    for topic, count in ((SPEED, 6), (CLIMATE, 2)):
        attributes = Attributes(UMessageType.PUBLISH, topic, priority=UPriority.CS3)
        found.recorded.deliver(attributes, count, everything_at("cloud"), bytes(9400))
    found.recorded.compact()
    return found


@pytest.mark.needs("judge")
def test_what_would_be_denied_has_the_weight_of_recorded_messages(
    change: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [{"deny": {"to": str(SPEED)}}, {"allow": {}}]
    new = {"permissions": {"endpoints": {"vehicle": {"rules": rules}}}}
    status, said = change.diff(capsys, "--last", "7d", "--fail-on", "denied,moved", **new)
    assert status == 1
    # All records are of the last hour, the shortest time that messages per day are averaged over.
    assert "1 flow, 144 messages a day, would be denied: permissions.endpoints.vehicle.rules[0] denies it" in said
    assert said.splitlines()[0].endswith(f"over the 2 flows in {change.traces} of the last 7 days, 192 messages a day")


@pytest.mark.needs("judge")
def test_a_flow_that_goes_nowhere_in_the_new_file_is_found(change: Change, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = change.diff(capsys, "--json", "--fail-on", "unrouted", routes=[ROUTE | {"publish": [str(SPEED)]}])
    (found,) = json.loads(said)["changes"]
    assert (status, found["kind"], found["flows"], found["messages_per_day"]) == (1, "unrouted", 1, 48)
    assert found["examples"][0]["source"] == str(CLIMATE)


@pytest.mark.needs("judge")
def test_the_same_files_give_nothing(change: Change, capsys: pytest.CaptureFixture[str]) -> None:
    assert change.diff(capsys, "--fail-on", "denied,unrouted,moved,settings")[0] == 0
    assert "nothing differs in meaning" in change.diff(capsys)[1]


@pytest.mark.needs("judge")
def test_records_before_the_period_do_not_count(change: Change, capsys: pytest.CaptureFixture[str]) -> None:
    long_ago = Recorded(change.traces, "gateway.veh1", time.time_ns() // 1000 - 9 * 86_400_000_000, "vehicle-cloud")
    long_ago.deliver(Attributes(UMessageType.PUBLISH, UUri("veh1", 0xC, 1, 0x8002)), 5, everything_at("cloud"))
    long_ago.compact()
    for last, flows in (("7d", 2), ("10d", 3)):
        assert json.loads(change.diff(capsys, "--json", "--last", last)[1])["flows"] == flows
