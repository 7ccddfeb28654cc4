"""What of a recording is sent again, and what is not, with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamer.features.black_box.command_replay import ReplayCommand
from streamer.features.black_box.file import write
from streamer.features.black_box.ring import MESSAGES, Shown
from streamer.tools.network import NetworkError
from streamer.uprotocol.message import UMessage
from tests.unit.features.black_box import other_reader
from tests.unit.tools.client import given, peer
from tests.unit.tools.commands import GOOD

SPEED: dict[str, Any] = {
    "event": "message", "ingress": "vehicle", "type": "publish", "source": "//veh1/A8000/2/8A50", "sink": None, "id": "1",
    "priority": "CS2", "ttl_ms": None, "bytes": 2, "payload_format": "raw", "payload": {"hex": "00ff"}, "cut_bytes": 0,
}  # fmt: skip
CALL = SPEED | {"type": "request", "source": "//veh1/A8000/2/0", "sink": "//cloud/C0/1/7", "priority": "CS4", "ttl_ms": 5000}


def recording(folder: Path, *messages: dict[str, Any]) -> Path:
    path = folder / "a.mcap"
    shown = [Shown(10**18 + number * 1000, MESSAGES, json.dumps(each).encode()) for number, each in enumerate(messages)]
    write(path, shown, {"cause": "unheard"})
    return path


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return str(path)


async def replayed(good: str, path: Path, *words: str) -> tuple[int, list[UMessage]]:
    async with peer("cli-vehicle") as far:
        return await ReplayCommand(*given(good, "replay", str(path), "--endpoint", "vehicle", *words)).run(), far.arrived


async def test_each_message_of_the_endpoint_is_sent_once_with_a_new_id(good: str, tmp_path: Path) -> None:
    elsewhere = SPEED | {"ingress": "cloud", "id": "9"}
    again = SPEED | {"id": "2", "payload": None, "bytes": None, "payload_format": "unspecified"}
    path = recording(tmp_path, SPEED, elsewhere, SPEED, again, CALL | {"id": "3"}, {"event": "left_out", "messages": 4})
    status, arrived = await replayed(good, path, "--pace", "1000")
    assert status == 0
    assert [(each.payload, each.attributes.priority.name, each.attributes.ttl) for each in arrived] == [
        (b"\x00\xff", "CS2", None),
        (None, "CS2", None),
        (b"\x00\xff", "CS4", 5000),
    ]
    assert len({each.id for each in arrived}) == 3


async def test_it_is_sent_as_often_as_asked_from_another_endpoint_too(good: str, tmp_path: Path) -> None:
    path = recording(tmp_path, SPEED | {"ingress": "far"})
    status, arrived = await replayed(good, path, "--ingress", "far", "--count", "3")
    assert (status, len(arrived)) == (0, 3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"type": "response"}, "a Response belongs to the id of its Request"),
        ({"cut_bytes": 7}, "not all of it"),
        ({"payload": None}, "was not recorded"),
        ({"payload": {"hex": "0"}}, "no valid message"),
        ({"priority": "CS9"}, "no valid message"),
        ({"source": "nowhere"}, "no valid message"),
        ({"type": "notification"}, "no valid message"),  # without a sink
        ({"ttl_ms": "long"}, "no valid message"),
        ({"payload": 5}, "no valid message"),
    ],
)
async def test_what_cannot_be_sent_is_left_out_with_the_reason(
    good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], reason: str
) -> None:
    status, arrived = await replayed(good, recording(tmp_path, SPEED | {"id": "0"} | changes, SPEED))
    assert (status, len(arrived)) == (0, 1)
    out = capsys.readouterr().out
    assert out.startswith("left out: 1 messages: ")
    assert reason in out


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "none", "nothing of it"])
def test_another_file_is_refused_with_the_reason(good: str, tmp_path: Path, damage: str) -> None:
    path = recording(tmp_path, *[SPEED | {"id": str(number), "x": "y" * 500} for number in range(100)])
    data = path.read_bytes()
    match damage:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "changed":
            path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
        case "none":
            path.unlink()
    ingress = ("--ingress", "elsewhere") if damage == "nothing of it" else ()
    with pytest.raises(NetworkError, match=str(path)):
        ReplayCommand(*given(good, "replay", str(path), "--endpoint", "vehicle", *ingress))


def test_another_reader_finds_every_message_and_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    path = recording(tmp_path, SPEED, CALL)
    assert other_reader.read(path) == [("messages", 10**18, SPEED), ("messages", 10**18 + 1000, CALL)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob(".*")) == []
