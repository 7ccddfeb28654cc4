"""Files of a newer version: the daemon does not start, no command touches them, and each says what to do."""

import json
import os
from pathlib import Path

import pytest
import yaml

from streamer import __version__
from streamer.main import main
from streamer.tools.text import EX_CONFIG
from tests.preloaded import command
from tests.unit.journal.harness import JournalHarness, execute
from tests.upgrade.fixtures import released

ENDPOINTS = {
    "vehicle": {"transport": "memory", "authorities": ["veh1"]},
    "cloud": {"transport": "memory", "authorities": ["backend"]},
}
EXPLAIN = ["explain", "--source", "//veh1/A8000/2/8A50", "--type", "publish"]


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Of a streamer whose files are there."""
    files = released(tmp_path)
    JournalHarness(files.journal).open().close()
    path = tmp_path / "streamer.yaml"
    path.write_text(yaml.safe_dump(files.configuration(ENDPOINTS) | {"metrics": None, "trace": None}))
    return str(path)


def make_newer(path: Path, application_id: int) -> str:
    """What is said about the file from now on."""
    execute(path, f"PRAGMA application_id = {application_id}")
    execute(path, "PRAGMA user_version = 3")
    execute(path, "CREATE TABLE IF NOT EXISTS ustreamer_format (written_by TEXT NOT NULL) STRICT")
    execute(path, "DELETE FROM ustreamer_format")
    execute(path, "INSERT INTO ustreamer_format VALUES ('9.8.7')")
    return (
        f"{path}: format 3 was written by ustreamer 9.8.7; this is ustreamer {__version__}, which knows formats up to 1: "
        "install 9.8.7 or newer, or move the file away"
    )


JOURNAL = ("journal.db", 0x75537472)


async def test_the_daemon_does_not_start(config: str, tmp_path: Path) -> None:
    path = tmp_path / JOURNAL[0]
    said = make_newer(path, JOURNAL[1])
    before = path.read_bytes()
    ended = await command("run", "--config", config)
    assert ended.returncode == EX_CONFIG
    assert json.loads(ended.stderr.splitlines()[-1])["problem"] == f"{config}: {said}"
    assert "endpoint_state" not in ended.stderr  # it has connected to nothing
    assert path.read_bytes() == before
    assert not any(".corrupt-" in name for name in os.listdir(tmp_path))


@pytest.mark.needs("check", "judge")
@pytest.mark.parametrize(
    ("file", "words"),
    [
        (JOURNAL, ["dead-letters", "list"]),
        (JOURNAL, ["dead-letters", "show", "01a2028f-6a62-7e70-98cf-5d52470b6541"]),
        (JOURNAL, EXPLAIN),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_commands_say_so_and_change_nothing(
    config: str, tmp_path: Path, file: tuple[str, int], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journal-state.db").unlink()  # of an earlier version, which a newer one has taken over
    path = tmp_path / file[0]
    said = make_newer(path, file[1])
    before = path.read_bytes()
    assert main([*words, "--config", config]) == EX_CONFIG
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", [said])
    assert path.read_bytes() == before
