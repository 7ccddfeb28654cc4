"""What the commands work on: a configuration, a journal with dead letters."""

from pathlib import Path

import pytest

from streamer import main as main_module
from streamer.journal.entries import Batch
from streamer.tools import dead_letters as dead_letters_command
from tests.unit.journal.harness import JournalHarness
from tests.unit.tools.commands import GOOD, Run, status_of
from tests.unit.tools.letters import LETTERS, NOW_MS, config_with


@pytest.fixture(autouse=True)
def default_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file of this machine, which does not exist unless a test writes it."""
    path = tmp_path / "etc" / "streamer.yaml"
    monkeypatch.setattr(main_module, "DEFAULT_CONFIG", path)
    monkeypatch.delenv("USTREAMER_CONFIG", raising=False)
    return path


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "streamer.yaml"
    path.write_text(GOOD)
    return str(path)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    desk = JournalHarness(path).open()
    desk.write(Batch(letters=LETTERS))
    desk.close()
    return path


@pytest.fixture
def dead_letters(journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs an action at `NOW_MS`; its status, output and complaints."""
    monkeypatch.setattr(dead_letters_command, "_now_ms", lambda: NOW_MS)

    kept = f"{{path: {journal}}}"

    def call(*words: str, journal: str = kept) -> tuple[int, str, str]:
        status = status_of("dead-letters", words[0], "--config", str(config_with(tmp_path, journal)), *words[1:])
        return status, *capsys.readouterr()

    return call
